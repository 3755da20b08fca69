"""Tools: a function's parameters become a JSON Schema and a validator; problems become words.

pydantic and griffe are heavy and are imported on first use only, so that declaring a hundred tools
of plain types costs next to nothing. A type is still checked where the tool is declared: plain
ones by looking, others by building their validator at once.

Arguments are read as JSON is, by pydantic's lax rules: "3" and 3.0 are integers where an integer is
declared, "2026-01-31" a date, true the integer 1; but what would lose information is refused (3.5
is no integer, 3 no text). The one exception is JSON's own: a number where a float is declared is
the nearest float. What is left out keeps the function's own default; it is not put into the
arguments.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, get_args, get_origin

from endstop.core.payload import safe_text
from endstop.core.text import describe_error
from endstop.errors import ContractError, InvalidArguments

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PROBLEMS_MAX = 8
"""Problems that are listed of one call's arguments; the others are counted."""

RECEIVED_CHARS = 120

_PLAIN = frozenset({str, int, float, bool, bytes, type(None), Any, dict, list, tuple, set})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the model may fill."""

    name: str
    annotation: Any
    required: bool
    default: Any = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's parameters, and the name of the one that takes the context, if any."""

    parameters: tuple[Parameter, ...]
    context_param: str | None
    context_type: type | None


def read_signature(
    tool: str, fn: Callable[..., Any], context_base: type, names: Mapping[str, Any]
) -> Signature:
    """Read the parameters of a function. `names` are the local names where it is declared.

    Raises ContractError naming the parameter that a model cannot fill, with the mend.
    """
    plain, settled = unwrapped(fn)
    hints = _type_hints(tool, fn, plain, names)
    parameters: list[Parameter] = []
    context: str | None = None
    context_type: type | None = None
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.name in settled:
            # What a partial has fixed is not for the model to change.
            continue
        where = f"tool `{tool}`: parameter `{parameter.name}`"
        annotation = hints.get(parameter.name, parameter.empty)
        found = _context_type(annotation, context_base)
        if found is not None:
            if context is not None:
                raise ContractError(f"{where}: there is one context per body; `{context}` is it")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ContractError(f"{where} is positional-only; remove the `/`")
            context, context_type = parameter.name, found
            continue
        match parameter.kind:
            case parameter.POSITIONAL_ONLY:
                raise ContractError(
                    f"{where} is positional-only, but models name their arguments; remove the `/`"
                )
            case parameter.VAR_POSITIONAL | parameter.VAR_KEYWORD:
                raise ContractError(
                    f"{where} takes any number of values, which no schema describes; "
                    "name them, or take one list or dict"
                )
            case _:
                pass
        if annotation is parameter.empty and parameter.name in ("self", "cls") and not parameters:
            raise ContractError(
                f"{where} makes this a method; leave it undecorated and make a tool of the bound "
                "one: tool(thing.method)"
            )
        if annotation is parameter.empty:
            raise ContractError(f"{where} has no type; write for example `{parameter.name}: str`")
        required = parameter.default is parameter.empty
        if not required and type(parameter.default).__module__.startswith("pydantic"):
            raise ContractError(
                f"{where} has a pydantic field as its default, which the body would receive; "
                f"write `{parameter.name}: Annotated[..., Field(...)] = default`"
            )
        if parameter.name.startswith("_"):
            raise ContractError(f"{where} begins with `_`; models may not name private things")
        parameters.append(
            Parameter(parameter.name, annotation, required, None if required else parameter.default)
        )
    return Signature(tuple(parameters), context, context_type)


def unwrapped(fn: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    """The function inside wrappers and partials, and the names that partials have fixed."""
    settled: set[str] = set()
    plain = inspect.unwrap(fn)
    while isinstance(plain, functools.partial):
        settled |= plain.keywords.keys()
        plain = inspect.unwrap(plain.func)
    return getattr(plain, "__func__", plain), frozenset(settled)


def _type_hints(
    tool: str, fn: Callable[..., Any], plain: Callable[..., Any], names: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        try:
            hints = typing.get_type_hints(plain, include_extras=True)
        except NameError:
            # Only then: a local name must not shadow what the function itself sees.
            hints = typing.get_type_hints(plain, localns=dict(names), include_extras=True)
    except NameError as error:
        raise ContractError(
            f"tool `{tool}`: {_where(plain, error)} uses the name `{error.name}`, which is not "
            "defined where the tool is declared; import or define it above the tool, outside "
            "`if TYPE_CHECKING`"
        ) from None
    except (TypeError, SyntaxError) as error:
        raise ContractError(f"tool `{tool}`: its annotations cannot be read: {error}") from None
    # `x: int = None` says "or nothing" to people and to older versions of Python.
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.default is None and parameter.name in hints:
            hints[parameter.name] = hints[parameter.name] | None
    return hints


def _where(fn: Callable[..., Any], error: NameError) -> str:
    for name, annotation in getattr(fn, "__annotations__", {}).items():
        if (
            isinstance(annotation, str)
            and error.name
            and re.search(rf"\b{re.escape(error.name)}\b", annotation)
        ):
            return "the return type" if name == "return" else f"the type of parameter `{name}`"
    return "a type"


def _context_type(annotation: Any, base: type) -> type | None:
    if get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [arg for arg in get_args(annotation) if arg is not type(None)]
        annotation = inner[0] if len(inner) == 1 else annotation
    if isinstance(annotation, type) and issubclass(annotation, base):
        return annotation
    return None


def is_plain(annotation: Any) -> bool:
    """Whether a look is enough to know that this type has a schema."""
    origin = get_origin(annotation)
    if origin is None:
        try:
            return annotation in _PLAIN or (
                isinstance(annotation, type)
                and issubclass(annotation, enum.Enum)
                and bool(annotation.__members__)
            )
        except TypeError:
            return False
    if origin is Literal:
        return all(isinstance(arg, str | int | None) for arg in get_args(annotation))
    if origin in (typing.Union, types.UnionType, list, set):
        return all(is_plain(arg) for arg in get_args(annotation))
    if origin is dict:
        key, value = get_args(annotation)
        return key is str and is_plain(value)
    return False


def build(tool: str, parameters: tuple[Parameter, ...]) -> TypeAdapter[dict[str, Any]]:
    """The validator of a tool's arguments. Raises ContractError naming the parameter."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter, with_config
    from pydantic.errors import PydanticSchemaGenerationError
    from typing_extensions import TypedDict

    def adapter(chosen: tuple[Parameter, ...]) -> TypeAdapter[dict[str, Any]]:
        fields = {p.name: p.annotation if p.required else NotRequired[p.annotation] for p in chosen}
        make: Any = TypedDict  # made from values, which the type checker cannot follow
        shape = with_config(ConfigDict(extra="forbid"))(make("Arguments", fields))
        made: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)
        made.json_schema()
        return made

    # Also covers what a type's own hooks raise while pydantic asks them for a schema.
    try:
        return adapter(parameters)
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError, ValueError) as error:
        problem: Exception = error
    for parameter in parameters:
        try:
            adapter((parameter,))
        except (PydanticUserError, PydanticSchemaGenerationError, TypeError, ValueError) as error:
            what = _one_line(error)
            raise ContractError(
                f"tool `{tool}`: parameter `{parameter.name}` has the type "
                f"{_type_name(parameter.annotation)}, for which no JSON Schema can be made "
                f"({what}); use JSON-like types, a dataclass, a TypedDict or a pydantic model"
            ) from error
    raise ContractError(
        f"tool `{tool}`: no JSON Schema can be made of its parameters: {_one_line(problem)}"
    ) from problem


def _one_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0].partition(". ")[0]
    return f"{type(error).__name__}: {text:.160}"


def _type_name(annotation: Any) -> str:
    return f"`{inspect.formatannotation(annotation)}`"


def json_schema(
    adapter: TypeAdapter[dict[str, Any]],
    parameters: tuple[Parameter, ...],
    descriptions: Mapping[str, str],
) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, with descriptions and defaults."""
    schema = adapter.json_schema()
    schema.pop("title", None)
    properties: dict[str, dict[str, Any]] = schema.setdefault("properties", {})
    for parameter in parameters:
        entry = properties.setdefault(parameter.name, {})
        entry.pop("title", None)
        if "description" not in entry and parameter.name in descriptions:
            entry["description"] = descriptions[parameter.name]
        if not parameter.required and "default" not in entry:
            default = _json_default(parameter.default)
            if default is not _NO_DEFAULT:
                entry["default"] = default
    schema.setdefault("additionalProperties", False)
    return schema


_NO_DEFAULT = object()


def _json_default(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        value = value.value
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return _NO_DEFAULT


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says: of the tool, and of each parameter.

    Google, NumPy and Sphinx styles, told apart by their marks. Other sections (what is returned,
    what is raised, examples) belong to the reader of the code and are left out.
    """
    text = inspect.cleandoc(text)
    if not re.search(r"^\s*(:\w+.*:|\w[\w ]*:\s*$|-{3,}\s*$)", text, re.MULTILINE):
        return text, {}
    import griffe

    if re.search(r"^\s*:(param|parameter|arg|argument|key|return|raise)", text, re.MULTILINE):
        sections = griffe.parse_sphinx(griffe.Docstring(text), warnings=False)
    elif re.search(r"^\s*[A-Z]\w[\w ]*\n\s*-{3,}\s*$", text, re.MULTILINE):
        sections = griffe.parse_numpy(griffe.Docstring(text), warnings=False)
    else:
        sections = griffe.parse_google(griffe.Docstring(text), warnings=False)
    said: list[str] = []
    parameters: dict[str, str] = {}
    for section in sections:
        match section.kind:
            case griffe.DocstringSectionKind.text:
                said.append(str(section.value).strip())
            case (
                griffe.DocstringSectionKind.parameters
                | griffe.DocstringSectionKind.other_parameters
            ):
                for item in section.value:
                    for name in item.name.split(","):
                        parameters[name.strip().lstrip("*")] = inspect.cleandoc(item.description)
            case griffe.DocstringSectionKind.admonition:
                # A warning in the docstring is for whoever calls, and here the model calls.
                said.append(f"{section.title}: {section.value.contents}".strip())
            case _:
                pass
    return "\n\n".join(part for part in said if part), parameters


def invalid(tool: str, known: tuple[str, ...], error: Exception) -> InvalidArguments:
    """Words for the model out of what the validator found: where, what was expected, what came."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return InvalidArguments(
            f"The arguments of `{tool}` could not be checked: {describe_error(error)}"
        )
    found = listed(include_url=False, include_context=False)
    lines = [_line(item, known) for item in found[:PROBLEMS_MAX]]
    if len(found) > PROBLEMS_MAX:
        lines.append(f"and {len(found) - PROBLEMS_MAX} more")
    return complaint(tool, lines)


def complaint(tool: str, lines: list[str]) -> InvalidArguments:
    """One message out of several problems."""
    listed = "\n".join(f"- {line}" for line in lines)
    return InvalidArguments(
        f"The arguments of `{tool}` are invalid; mend them and call again.\n{listed}"
    )


def _line(item: Mapping[str, Any], known: tuple[str, ...]) -> str:
    place = location(item["loc"])
    match item["type"]:
        case "extra_forbidden" if len(item["loc"]) == 1:
            return unknown_name(place, known)
        case "missing":
            return f"`{place}`: required, but missing"
        case _:
            expected = safe_text(item["msg"], 300).removeprefix("Input should be ")
            return f"`{place}`: expected {expected}; received {received(item['input'])}"


def unknown_name(name: str, known: tuple[str, ...]) -> str:
    """The problem with an argument that the tool does not have."""
    names = ", ".join(f"`{each}`" for each in known)
    return f"`{name}`: no such argument; " + (f"known are {names}" if known else "it takes none")


def location(steps: tuple[Any, ...]) -> str:
    """A place in the arguments as people write it: `files[2].path`."""
    text = ""
    for step in steps[:12]:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else f"{step}"
    return safe_text(text or "arguments", 200)


def received(value: Any) -> str:
    """What came, with its type, bounded and safe to show (law 19 any-payload)."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    kind = "null" if value is None else kinds.get(type(value), "")
    if value is None:
        return kind
    if isinstance(value, Mapping):
        kind = "object"
    try:
        shown = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return kind or type(value).__name__
    return f"{kind or type(value).__name__} {safe_text(shown, RECEIVED_CHARS)}"
