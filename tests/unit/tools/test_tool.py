"""`@tool`: signature and docstring to schema, arguments to keywords, wrong declarations."""

from __future__ import annotations

import contextlib
import datetime
import enum
import functools
import inspect
import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from endstop.core.terms import EffectClass, Isolation, Money
from endstop.errors import CallerError, ContractError, InvalidArguments
from endstop.tools import AsyncContext, Context, tool, tool_from_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Box:
    width: float


@tool
def search(
    query: str,
    limit: int = 10,
    order: Literal["new", "old"] = "new",
    colour: Colour = Colour.RED,
    ctx: Context | None = None,
) -> str:
    """Search the archive.

    Slowly.

    Args:
        query: What to look for,
            on two lines.
        limit: How many at most.

    Returns:
        Lines.
    """
    return f"{query} {limit} {order}"


@tool(effect="read_only")
async def nothing(ctx: AsyncContext) -> None:
    """Do nothing."""


@tool(isolation="process")
def in_process(n: int) -> int:
    return n


renamed = tool(isolation="process")(inspect.unwrap(in_process))


def test_a_tool_is_still_the_function() -> None:
    assert search("a", limit=2) == "a 2 new"
    assert search.__name__ == search.name == "search"
    assert (search.__doc__ or "").startswith("Search the archive.")
    assert list(inspect.signature(search).parameters)[:2] == ["query", "limit"]
    assert search.fn is inspect.unwrap(search)  # type: ignore[arg-type]
    assert not search.is_async
    assert nothing.is_async


def test_the_schema_comes_from_signature_and_docstring() -> None:
    assert search.description == "Search the archive.\n\nSlowly."
    schema = search.parameters
    json.dumps(schema)
    assert schema["type"] == "object"
    assert schema["required"] == ["query"]
    assert schema["additionalProperties"] is False
    query, limit = schema["properties"]["query"], schema["properties"]["limit"]
    assert query == {"type": "string", "description": "What to look for,\non two lines."}
    assert limit == {"type": "integer", "description": "How many at most.", "default": 10}
    assert schema["properties"]["order"]["enum"] == ["new", "old"]
    assert schema["properties"]["colour"]["default"] == "red"
    assert "ctx" not in schema["properties"]
    assert search.context_param == "ctx"
    assert nothing.context_param == "ctx"
    assert nothing.parameters["properties"] == {}


STYLES = {
    "google": """Do it.

    Args:
        a: The first.
        b (int): The second.
    """,
    "numpy": """Do it.

    Parameters
    ----------
    a : str
        The first.
    b
        The second.
    """,
    "sphinx": """Do it.

    :param a: The first.
    :param int b: The second.
    :returns: Nothing.
    """,
}


@pytest.mark.parametrize("style", STYLES)
def test_three_docstring_styles_say_the_same(style: str) -> None:
    def fn(a: str, b: int) -> None: ...

    fn.__doc__ = STYLES[style]
    made = tool(fn)
    assert made.description == "Do it."
    properties = made.parameters["properties"]
    assert properties["a"]["description"] == "The first."
    assert properties["b"]["description"] == "The second."


def test_a_plain_docstring_with_odd_marks_is_kept_as_it_is() -> None:
    def fn() -> None:
        """Run `a: b` and see: it works."""

    assert tool(fn).description == "Run `a: b` and see: it works."
    assert tool(description="Said here.")(fn).description == "Said here."


def test_a_warning_in_the_docstring_reaches_the_model() -> None:
    @tool
    def fn(path: str) -> None:
        """Delete a file.

        Warning:
            There is no way back.

        Args:
            path: Which.

        Raises:
            OSError: If it cannot.
        """

    assert fn.description == "Delete a file.\n\nWarning: There is no way back."


def test_a_field_description_wins_over_the_docstring() -> None:
    @tool
    def fn(n: Annotated[int, Field(gt=0, description="Said by the field.")]) -> None:
        """Do it.

        Args:
            n: Said by the docstring.
        """

    assert fn.parameters["properties"]["n"]["description"] == "Said by the field."
    assert fn.parameters["properties"]["n"]["exclusiveMinimum"] == 0
    with pytest.raises(InvalidArguments, match="greater than 0"):
        fn.bind({"n": 0})


def test_bind_converts_what_loses_nothing() -> None:
    @tool
    def fn(n: int, day: datetime.date, at: Path, box: Box, point: Point, some: list[float]) -> None:
        """Take many."""

    bound = fn.bind(
        {
            "n": "3",
            "day": "2026-01-31",
            "at": "/tmp",
            "box": {"width": 2},
            "point": {"x": 1},
            "some": [1, 2.5],
        }
    )
    assert bound["n"] == 3
    assert bound["day"] == datetime.date(2026, 1, 31)
    assert bound["at"] == Path("/tmp")
    assert bound["box"] == Box(width=2.0)
    assert bound["point"] == Point(x=1)
    assert bound["some"] == [1.0, 2.5]


def test_bind_leaves_defaults_to_the_function_and_knows_no_context() -> None:
    assert search.bind({"query": "a"}) == {"query": "a"}
    assert search.bind({"query": "a", "colour": "blue"})["colour"] is Colour.BLUE
    assert nothing.bind({}) == {}
    with pytest.raises(InvalidArguments, match="`ctx`: no such argument"):
        search.bind({"query": "a", "ctx": None})


def test_every_problem_is_listed_with_place_expectation_and_what_came() -> None:
    with pytest.raises(InvalidArguments) as caught:
        search.bind({"limit": 3.5, "order": "best", "qury": "x"})
    text = str(caught.value)
    assert isinstance(caught.value, CallerError)
    assert "`search`" in text
    assert "`query`: required, but missing" in text
    assert "`limit`: expected a valid integer, got a number with a fractional part" in text
    assert "received number 3.5" in text
    assert "`order`: expected 'new' or 'old'; received string \"best\"" in text
    assert "`qury`: no such argument; known are `query`, `limit`, `order`, `colour`" in text
    with pytest.raises(InvalidArguments, match="it takes none"):
        nothing.bind({"a": 1})


def test_places_deep_inside_are_named_and_the_message_is_bounded() -> None:
    @tool
    def fn(points: list[Point]) -> None:
        """Take points."""

    with pytest.raises(InvalidArguments, match=r"`points\[1\]\.x`"):
        fn.bind({"points": [{"x": 1}, {"x": "y" * 10_000}]})
    with pytest.raises(InvalidArguments) as caught:
        fn.bind({"points": [{"x": "y" * 10_000}] * 1_000})
    assert len(str(caught.value)) < 3_000
    assert "and 992 more" in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def picky(value: str) -> str:
    raise RuntimeError("a validator that breaks its promise")


@tool
def hostile(a: int, b: list[Point] | None = None, c: dict[str, Colour] | None = None) -> None:
    """Take hostile things."""


@tool
def broken(a: Annotated[str, AfterValidator(picky)]) -> None:
    """Take nothing well."""


@given(
    arguments=st.dictionaries(st.sampled_from(["a", "b", "c"]) | st.text(), JSON, max_size=4) | JSON
)
@pytest.mark.parametrize("which", [hostile, broken, search, nothing])
def test_law_19_any_payload_bind_raises_only_invalid_arguments(which: Any, arguments: Any) -> None:
    text = ""
    try:
        assert isinstance(which.bind(arguments), dict)
    except InvalidArguments as problem:
        text = str(problem)
    text.encode()
    assert len(text) < 5_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "a", "\ud800": 1},
        {"query": "a", "limit": "\ud800"},
        {"query": "a", "order": "\ud800"},
        {"query": "a", 3: 1},
    ],
)
def test_law_19_any_payload_broken_text_is_an_answer(arguments: Any) -> None:
    with pytest.raises(InvalidArguments) as caught:
        search.bind(arguments)
    str(caught.value).encode()


def test_deep_nesting_is_an_answer_and_not_a_crash() -> None:
    deep: Any = None
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(InvalidArguments):
        search.bind({"query": deep})
    # Taking the list apart layer by layer keeps its destruction flat.
    while deep:
        deep = deep.pop()


@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_a_number_is_never_rounded_into_an_integer(value: float) -> None:
    with contextlib.suppress(InvalidArguments):
        assert search.bind({"query": "a", "limit": value})["limit"] == value


def local_names() -> Callable[..., Any]:
    @dataclass
    class Inner:
        n: int

    @tool
    def fn(inner: Inner) -> int:
        """Take a local type."""
        return inner.n

    return fn


def test_types_of_the_place_of_declaration_are_found() -> None:
    made: Any = local_names()
    assert made.bind({"inner": {"n": 1}})["inner"].n == 1


class Shadowed(enum.Enum):
    """A name that a caller may have too."""

    YES = "yes"


def takes_shadowed(a: Shadowed) -> None: ...


def test_a_name_of_the_caller_does_not_shadow_the_functions_own() -> None:
    outer = takes_shadowed.__globals__["Shadowed"]

    def declare() -> Any:
        Shadowed = int
        assert Shadowed is int
        return tool(takes_shadowed)

    assert declare().bind({"a": "yes"})["a"] is outer.YES


class Shop:
    """Something whose methods may be tools."""

    def __init__(self, stock: int) -> None:
        self.stock = stock

    def sell(self, count: int) -> int:
        """Sell some."""
        return self.stock - count


def test_a_bound_method_is_a_tool_and_an_unbound_one_says_how() -> None:
    sell = tool(Shop(5).sell)
    assert sell.bind({"count": 2}) == {"count": 2}
    assert sell(count=2) == 3
    assert sell.description == "Sell some."
    assert list(sell.parameters["properties"]) == ["count"]
    with pytest.raises(ContractError, match="bound"):
        tool(Shop.sell)
    with pytest.raises(ContractError, match="bound to an object"):
        tool(isolation="process")(Shop(5).sell)


def test_what_a_partial_has_fixed_is_not_for_the_model_to_change() -> None:
    def pay(account: int, amount: int = 1) -> str:
        """Pay."""
        return f"{account}:{amount}"

    made = tool(name="pay")(functools.partial(pay, account=7))
    assert list(made.parameters["properties"]) == ["amount"]
    assert made.description == "Pay."
    with pytest.raises(InvalidArguments, match="no such argument"):
        made.bind({"account": 8})
    assert made(**made.bind({"amount": 2})) == "7:2"


class Arguments(BaseModel):
    """A user's type may have the name that the schema uses itself."""

    n: int


class Tree(BaseModel):
    children: list[Tree] = []


def test_names_and_cycles_in_types_do_not_confuse_the_schema() -> None:
    @tool
    def fn(arguments: Arguments, tree: Tree, model_config: int = 1, json: str = "") -> None:
        """Take them."""

    assert fn.parameters["type"] == "object"
    assert set(fn.parameters["properties"]) == {"arguments", "tree", "model_config", "json"}
    bound = fn.bind({"arguments": {"n": 1}, "tree": {"children": [{}]}, "json": "x"})
    assert bound["tree"].children == [Tree()]
    assert bound["json"] == "x"


@given(
    text=st.lists(
        st.sampled_from(
            [
                "Args:",
                "Parameters",
                "-----",
                ":param x:",
                ":returns:",
                "    x: y",
                "x : int",
                "Note:",
            ]
        )
        | st.text(max_size=20)
    ).map("\n".join)
)
def test_no_docstring_breaks_a_tool(text: str) -> None:
    def fn(x: int) -> None: ...

    fn.__doc__ = text
    made = tool(fn)
    assert isinstance(made.description, str)
    assert made.parameters["properties"]["x"]["type"] == "integer"


def lambda_like(*, a: int) -> None: ...


def no_type(a) -> None:  # type: ignore[no-untyped-def]
    ...


def positional(a: int, /) -> None: ...


def many(*a: int) -> None: ...


def keywords(**a: int) -> None: ...


def odd(a: int, b: socket.socket) -> None: ...


def odd_default(a: int = Field(default=3)) -> None: ...


def unknown_name(a: NotDefinedAnywhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def private(_a: int) -> None: ...


def two(a: Context, b: Context) -> None: ...


def wrong_context(a: AsyncContext) -> None: ...


def generator(a: int) -> Any:
    yield a


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (no_type, "parameter `a` has no type"),
        (positional, "parameter `a` is positional-only"),
        (many, "parameter `a` takes any number"),
        (keywords, "parameter `a` takes any number"),
        (odd, "parameter `b` has the type `socket.socket`"),
        (odd_default, "Annotated"),
        (unknown_name, "parameter `a` uses the name `NotDefinedAnywhere`"),
        (private, "begins with `_`"),
        (two, "one context per body"),
        (wrong_context, "`a` must be Context"),
        (generator, "generator"),
        (lambda: None, "name"),
        (3, "takes a function"),
        (search, "is a tool already"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_where_it_is_declared(
    fn: Any, words: str
) -> None:
    with pytest.raises(ContractError, match=words):
        tool(fn)


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        ({"effect": "harmless"}, 'effect is one of "read_only"'),
        ({"isolation": "container"}, "isolation is one of"),
        ({"isolation": "remote"}, "async function that talks to a peer"),
        ({"isolation": "coroutine"}, "async def"),
        ({"exclusive": 1}, "exclusive is True or False"),
        ({"timeout": "soon"}, "timeout = 'soon'"),
        ({"timeout": True}, "timeout"),
        ({"idle_timeout": float("nan")}, "NaN"),
        ({"grace": -1}, "grace"),
        ({"grace": float("inf")}, "cannot be endless"),
        ({"cost": "much"}, "cost"),
        ({"cost": 0.04}, "cost"),
        ({"approval": "sometimes"}, "approval is"),
        ({"approval": "above much"}, "approval is"),
        ({"approval": "above 5 USD"}, "needs a cost"),
        ({"interrupt": coroutine}, "interrupt"),
        ({"description": 3}, "description"),
        ({"name": "has space"}, "name"),
        ({"name": ""}, "name"),
        ({"colour": "red"}, "`colour` is nothing that a tool declares"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    contract: dict[str, Any], words: str
) -> None:
    with pytest.raises(ContractError, match=words):
        tool(**contract)(lambda_like)


def test_an_async_function_cannot_be_a_thread() -> None:
    with pytest.raises(ContractError, match='isolation="thread"'):
        tool(isolation="thread")(coroutine)
    assert tool(isolation="process")(coroutine).declared.isolation is Isolation.PROCESS


def test_the_defaults_of_a_declaration() -> None:
    assert search.declared.isolation is Isolation.THREAD
    assert nothing.declared.isolation is Isolation.COROUTINE
    assert search.declared.effect is EffectClass.EFFECTFUL
    assert nothing.declared.effect is EffectClass.READ_ONLY
    assert search.declared.timeout_s is None
    assert tool(timeout=0)(lambda_like).declared.timeout_s == "off"
    assert tool(timeout="off")(lambda_like).declared.timeout_s == "off"
    assert tool(idle_timeout=3)(lambda_like).declared.idle_s == 3.0


def test_a_process_tool_needs_an_address() -> None:
    def inner(n: int) -> int:
        return n

    for fn, words in [
        (inner, "top of a module"),
        (lambda: None, "lambda"),
        (functools.partial(lambda_like, a=1), r"partial"),
    ]:
        with pytest.raises(ContractError, match=words):
            tool(isolation="process", name="x")(fn)
    assert tool(inner).address is None
    assert (in_process.address or "").endswith(":in_process")
    assert (renamed.address or "").endswith(":renamed")


def test_addresses_of_main_of_a_module_and_of_a_file(tmp_path: Path) -> None:
    source = textwrap.dedent(
        """
        from endstop.tools import tool

        @tool(isolation="process")
        def body(n: int) -> int:
            return n

        if __name__ == "__main__":
            print(body.address)
        """
    )
    (tmp_path / "standing.py").write_text(source)
    (tmp_path / "load.py").write_text(
        textwrap.dedent(
            """
            import importlib.util, sys
            spec = importlib.util.spec_from_file_location(sys.argv[2], sys.argv[1])
            module = importlib.util.module_from_spec(spec)
            sys.modules[sys.argv[2]] = module
            spec.loader.exec_module(module)
            print(module.body.address)
            """
        )
    )
    (tmp_path / "use.py").write_text("import standing; print(standing.body.address)")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    file = str(tmp_path / "standing.py")
    assert run("standing.py") == f"{file}:body"
    assert run("-m", "standing") == "standing:body"
    assert run("use.py") == "standing:body"
    assert run("load.py", file, "user_tools") == f"{file}:body"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run("-c", source)
    assert "at a prompt" in caught.value.stderr


def usd(amount: str) -> Money:
    return Money(amount=Decimal(amount), currency="USD")


def test_costs() -> None:
    assert search.cost_of({}) is None
    assert tool(cost="0.04 usd")(lambda_like).cost_of({"a": 1}) == usd("0.04")
    by_size = tool(cost=lambda arguments: f"{arguments['limit']} USD")(search.fn)
    assert by_size.cost_of({"query": "a", "limit": 3}) == usd("3")
    assert by_size.cost_of({"query": "a"}) == usd("10"), "the default counts where it is left out"
    for bad in (lambda _: "much", lambda _: 1 / 0, lambda _: 0.5):
        with pytest.raises(ContractError, match="cost function"):
            tool(cost=bad)(lambda_like).cost_of({"a": 1})


def test_approvals() -> None:
    a = {"a": 1}
    assert not tool(lambda_like).needs_approval(a, None)
    assert tool(approval="always")(lambda_like).needs_approval(a, None)
    above = tool(approval="above 5 USD", cost="0.04 USD")(lambda_like)
    assert not above.needs_approval(a, usd("5"))
    assert above.needs_approval(a, usd("5.01"))
    assert above.needs_approval(a, Money(amount=Decimal(1), currency="EUR"))
    assert above.needs_approval(a, None), "silence is never consent"
    asked = tool(approval=lambda arguments: arguments["a"] > 3)(lambda_like)
    assert not asked.needs_approval(a, None)
    assert asked.needs_approval({"a": 4}, None)
    for bad in (lambda _: "yes", lambda _: 1 / 0):
        with pytest.raises(ContractError, match="approval function"):
            tool(approval=bad)(lambda_like).needs_approval(a, None)


def test_an_interrupt_is_called_with_the_context_or_without() -> None:
    seen: list[object] = []
    one = tool(interrupt=seen.append)(lambda_like)
    assert one.interrupt is not None
    one.interrupt("ctx")
    none = tool(interrupt=lambda: seen.append("nothing"))(lambda_like)
    assert none.interrupt is not None
    none.interrupt("ctx")
    none.interrupt()
    assert seen == ["ctx", "nothing", "nothing"]


GIVEN = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "n": {"type": ["integer", "null"]},
        "x": {"type": "number"},
        "odd-name": {},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def echo(**arguments: Any) -> dict[str, Any]:
    return arguments


def test_a_tool_from_a_schema_checks_the_top_level() -> None:
    made = tool_from_schema("fs/read", GIVEN, echo, "Read.", effect="read_only", timeout=3)
    assert made.parameters is GIVEN
    assert made.description == "Read."
    assert made.declared.timeout_s == 3.0
    good = {"path": "a", "n": None, "x": 1, "odd-name": []}
    assert made.bind(good) == good
    assert made(**made.bind(good)) == good
    with pytest.raises(InvalidArguments) as caught:
        made.bind({"n": True, "x": "1", "more": 1})
    text = str(caught.value)
    assert "`path`: required, but missing" in text
    assert "`n`: expected integer or null; received boolean true" in text
    assert "`x`: expected number; received string" in text
    assert "`more`: no such argument; known are `path`" in text
    loose = tool_from_schema("loose", {"type": "object"}, echo)
    assert loose.bind({"anything": 1}) == {"anything": 1}


def test_a_tool_from_a_schema_can_take_one_dict() -> None:
    def take(arguments: dict[str, Any]) -> Any:
        return arguments["odd-name"]

    made = tool_from_schema("take", GIVEN, take, as_dict="arguments", resources=["k:{path}"])
    for arguments in ({"path": "a"}, made.bind({"path": "a"})):
        assert [claim.resource for claim in made.claims(arguments)] == ["k:a"]
    assert made(**made.bind({"path": "a", "odd-name": 3})) == 3


@pytest.mark.parametrize(
    "schema", [[], {"type": "string"}, {"properties": []}, {"required": "path"}, {"required": [1]}]
)
def test_a_schema_of_something_else_is_refused(schema: Any) -> None:
    with pytest.raises(ContractError, match="`t`"):
        tool_from_schema("t", schema, echo)


@given(arguments=st.dictionaries(st.text(), JSON, max_size=4) | JSON)
def test_law_19_any_payload_a_given_schema_raises_only_invalid_arguments(arguments: Any) -> None:
    made = tool_from_schema("fs/read", GIVEN, echo)
    try:
        made.bind(arguments)
    except InvalidArguments as problem:
        str(problem).encode()


def test_declaring_plain_tools_loads_neither_pydantic_nor_griffe() -> None:
    script = textwrap.dedent(
        """
        import sys
        from endstop.tools import Context, tool

        def body(path: str, n: int = 3, some: list[str] | None = None, ctx: Context = None) -> str:
            '''Do it.

            Args:
                path: Where.
            '''

        made = [tool(name=f"t{n}", resources=["file:{path}"])(body) for n in range(100)]
        heavy = {"pydantic", "pydantic_core", "griffe", "typing_extensions"} & set(sys.modules)
        assert not heavy, heavy
        assert made[0].bind({"path": "a"}) == {"path": "a"}
        assert made[0].parameters["properties"]["path"]["description"] == "Where."
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
