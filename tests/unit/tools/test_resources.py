"""Resources: one name for one thing, templates over arguments, wait limits by kind."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.config import ResourceLimits
from endstop.core.terms import Claim
from endstop.errors import CallerError, ContractError, InvalidArguments
from endstop.tools import shared, tool
from endstop.tools.resources import CLAIMS_MAX, normalise


def edit(path: str, also: list[str] | None = None, mode: str = "w") -> None: ...


def names(made: Any, **arguments: Any) -> list[str]:
    return [claim.resource for claim in made.claims(arguments)]


def test_an_undeclared_tool_takes_itself_and_always_the_same_tuple() -> None:
    made = tool(edit)
    assert made.claims({"path": "a"}) == (Claim(resource="tool:edit", wait_s=60.0),)
    assert made.claims({"path": "a"}) is made.claims({"path": "b"})


def test_an_empty_declaration_takes_nothing() -> None:
    assert tool(resources=())(edit).claims({"path": "a"}) == ()
    assert tool(resources=[])(edit).claims({"path": "a"}) == ()


def test_spellings_of_one_file_are_one_resource(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made = tool(resources=["file:{path}"])(edit)
    want = f"file:{os.path.realpath(tmp_path)}/real/a.txt"
    for spelling in [
        "real/a.txt",
        "./real//a.txt",
        "real/../real/./a.txt",
        "link/a.txt",
        f"{tmp_path}/real/a.txt",
        f"/{tmp_path}/link/a.txt",
        "real/a.txt/",
    ]:
        claims = made.claims({"path": spelling}, base=str(tmp_path))
        assert [claim.resource for claim in claims] == [want], spelling
    (other,) = made.claims({"path": "real/A.txt"}, base=str(tmp_path))
    assert (other.resource == want) == (os.sys.platform == "darwin")  # type: ignore[attr-defined]


def test_home_and_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    real = os.path.realpath(tmp_path)
    assert normalise("file:~/x") == normalise("file:x") == f"file:{real}/x"
    made = tool(resources=["file:{path}"])(edit)
    assert names(made, path="") == [f"file:{real}"], "an empty path is the directory itself"


def test_shared_and_exclusive_and_other_kinds() -> None:
    made = tool(
        resources=["db:{mode}?shared", shared("account:{path}"), "  browser : 1 ", "x:{{braces}}"]
    )(edit)
    claims = made.claims({"path": "42"})
    assert claims == (
        Claim(resource="db:w", shared=True, wait_s=30.0),
        Claim(resource="account:42", shared=True, wait_s=30.0),
        Claim(resource="browser:1", wait_s=300.0),
        Claim(resource="x:{braces}", wait_s=30.0),
    )


def test_a_list_gives_one_resource_each_and_nothing_gives_none() -> None:
    made = tool(resources=["k:{also}", "k:{path}"])(edit)
    assert names(made, path="c", also=["a", "b", "a"]) == ["k:a", "k:b", "k:c"]
    assert names(made, path="c") == ["k:c"]


def test_one_resource_is_claimed_once_and_exclusive_wins() -> None:
    made = tool(resources=["k:{path}?shared", "k:{mode}"])(edit)
    assert made.claims({"path": "a", "mode": "a"}) == (Claim(resource="k:a", wait_s=30.0),)
    made = tool(resources=["k:{mode}", "k:{path}?shared"])(edit)
    assert not made.claims({"path": "a", "mode": "a"})[0].shared


def test_fields_reach_into_values() -> None:
    class Kind(enum.Enum):
        A = "alpha"

    def fn(opts: dict[str, Any], kind: Kind) -> None: ...

    made = tool(resources=["k:{opts.dir}/{kind}"])(fn)
    assert names(made, opts={"dir": "d"}, kind=Kind.A) == ["k:d/alpha"]


def test_a_function_names_resources_or_claims() -> None:
    def wanted(arguments: Any) -> Any:
        return [
            f"account:{arguments['path']}",
            shared("k:{not a field}"),
            Claim(resource="slow:1", wait_s=9.0),
        ]

    assert tool(resources=wanted)(edit).claims({"path": "7"}) == (
        Claim(resource="account:7", wait_s=30.0),
        Claim(resource="k:{not a field}", shared=True, wait_s=30.0),
        Claim(resource="slow:1", wait_s=9.0),
    )
    assert names(tool(resources=lambda arguments: "k:" + arguments["mode"])(edit), path="a") == [
        "k:w"
    ], "one name is enough, and defaults are filled in"


@pytest.mark.parametrize("bad", [lambda _: 1 / 0, lambda _: [3], lambda _: None])
def test_a_function_that_fails_breaks_the_contract(bad: Any) -> None:
    with pytest.raises(ContractError, match="`edit`"):
        tool(resources=bad)(edit).claims({"path": "a"})


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (["file:{pth}"], "names `pth`, which is no parameter"),
        (["file:{}"], "name of a parameter"),
        (["file:{0}"], "name of a parameter"),
        (["file:{path!r}"], "name of a parameter"),
        (["file:{path:>10}"], "name of a parameter"),
        (["file:{path"], "resource template"),
        (["{path}"], "begin with its kind"),
        (["plain"], "begin with its kind"),
        ([3], "not int"),
        (3, "not int"),
    ],
)
def test_a_template_that_cannot_be_meant_is_refused_where_it_is_declared(
    resources: Any, words: str
) -> None:
    with pytest.raises(ContractError, match=words):
        tool(resources=resources)(edit)


def test_limits_by_kind() -> None:
    wait = ResourceLimits().wait_s
    assert [wait(k) for k in ("file", "terminal", "browser", "mcp", "tool", "other")] == [
        30.0,
        300.0,
        300.0,
        300.0,
        60.0,
        30.0,
    ]
    made = tool(resources=["file:{path}", "db:{path}", "mcp:{path}"])(edit)
    limits = ResourceLimits({"file": 2.0, "db": 0, "mcp": -1})
    assert [claim.wait_s for claim in made.claims({"path": "a"}, limits)] == [2.0, None, None]
    fixed = tool(edit)
    short = ResourceLimits({"tool": 1})
    assert fixed.claims({}, short)[0].wait_s == 1.0
    assert fixed.claims({}, short) is fixed.claims({}, short)
    assert fixed.claims({})[0].wait_s == 60.0


@pytest.mark.parametrize("path", ["a\0b", "x" * 5_000, "\ud800"])
def test_a_path_that_no_file_can_have_is_the_callers_to_mend(path: str) -> None:
    with pytest.raises(InvalidArguments, match="`edit`"):
        tool(resources=["file:{path}"])(edit).claims({"path": path})


def test_claims_are_bounded() -> None:
    made = tool(resources=["k:{also}/{also}"])(edit)
    with pytest.raises(InvalidArguments, match="fewer"):
        made.claims({"path": "a", "also": [str(n) for n in range(CLAIMS_MAX)]})
    made = tool(resources=lambda _: [f"k:{n}" for n in range(CLAIMS_MAX + 1)])(edit)
    with pytest.raises(InvalidArguments, match="fewer"):
        made.claims({"path": "a"})


@given(name=st.text(alphabet=st.sampled_from("ab/. ~\\:é{}?#"), max_size=12), kind=st.text())
def test_normalising_twice_changes_nothing(name: str, kind: str) -> None:
    for resource in (f"file:{name}", f"{kind}:{name}"):
        try:
            once = normalise(resource)
        except ValueError:
            continue
        assert normalise(once) == once


@given(path=st.text(), also=st.none() | st.lists(st.text(), max_size=3))
def test_law_19_any_payload_claims_raise_only_what_callers_mend(
    path: str, also: list[str] | None
) -> None:
    made = tool(resources=["file:{path}", "k:{also}"])(edit)
    try:
        claims = made.claims({"path": path, "also": also})
    except CallerError as problem:
        str(problem).encode()
    else:
        assert len({claim.resource for claim in claims}) == len(claims)
