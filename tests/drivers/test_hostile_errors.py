"""Errors of bodies and hooks that cannot even be named (laws 15 record-first, 19 any-payload)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from endstop import CallerError, Limits, Run, ToolCall, tool
from tests.driving import OK, Street, call, endings, quick


class MeanError(Exception):
    """Ends the program that asks what it is."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class MeanOutputError(Exception):
    """Fails whoever looks for what a body has left on its error."""

    @property
    def output(self) -> str:
        raise KeyboardInterrupt


class MeanMap(dict[str, int]):
    """Ends the program that reads it."""

    def items(self) -> Any:
        raise SystemExit(3)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "mean": MeanError,
    "mean output": MeanOutputError,
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "base": lambda: BaseException("bare"),
}


@tool(resources=[])
async def fail_there(how: str) -> None:
    raise ERRORS[how]()


@tool(resources=[])
def fail_here(how: str) -> None:
    raise ERRORS[how]()


@tool(resources=[])
async def fine() -> str:
    return "fine"


@pytest.mark.parametrize("how", sorted(ERRORS))
@pytest.mark.parametrize("body", ["fail_there", "fail_here"])
def test_law_19_any_payload_an_error_that_cannot_be_named_ends_one_call(
    street: Street, kind: str, body: str, how: str
) -> None:
    house = street.open(kind, [fail_there, fail_here, fine], config=quick())
    results = house.execute(call(body, how=how), call("fine"))
    assert endings(results) == [("failed", "tool_error", "unknown"), OK]
    assert results[0].error


@pytest.mark.parametrize("isolation", ["coroutine", "thread"])
def test_law_19_any_payload_a_result_that_cannot_be_read_was_returned(
    street: Street, kind: str, isolation: str
) -> None:
    @tool(resources=[], name="give")
    async def give_there() -> Any:
        return MeanMap(a=1)

    @tool(resources=[], name="give")
    def give_here() -> Any:
        return MeanMap(a=1)

    give = give_there if isolation == "coroutine" else give_here
    house = street.open(kind, [give, fine], config=quick())
    results = house.execute(call("give"), call("fine"))
    # Law 5: the body has done what it does.
    assert endings(results) == [("failed", "result_unserialisable", "done"), OK]
    assert results[0].error
    assert "SystemExit: 3" in results[0].error


@pytest.mark.parametrize("how", sorted(ERRORS))
@pytest.mark.parametrize("plain", [False, True])
def test_law_19_any_payload_whatever_a_before_hook_raises_is_a_refusal(
    street: Street, kind: str, how: str, plain: bool
) -> None:
    async def there(asked: Any) -> None:
        if asked.tool != "fine":
            raise ERRORS[how]()

    def here(asked: Any) -> None:
        if asked.tool != "fine":
            raise ERRORS[how]()

    # Far longer than the test may take: the refusal must not come from the hook's limit.
    config = quick(timeouts={"hooks": 600})
    hook = here if plain else there
    house = street.open(kind, [fail_there, fine], before=[hook], config=config)
    results = house.execute(call("fail_there", how="exit"), call("fine"))
    assert endings(results) == [("rejected", "hook_failed", "none"), OK]


@pytest.mark.parametrize("how", sorted(ERRORS))
@pytest.mark.parametrize("plain", [False, True])
def test_law_15_record_first_whatever_an_after_hook_raises_the_result_stands(
    street: Street, kind: str, how: str, plain: bool
) -> None:
    seen = []

    async def there(result: Any) -> None:
        seen.append(result.tool)
        raise ERRORS[how]()

    def here(result: Any) -> None:
        seen.append(result.tool)
        raise ERRORS[how]()

    config = quick(timeouts={"hooks": 600})
    house = street.open(kind, [fine], after=[here if plain else there], config=config)
    assert endings(house.execute(call("fine"))) == [OK]
    assert endings(house.execute(call("fine"))) == [OK]
    assert seen == ["fine", "fine"]


@pytest.mark.parametrize(
    ("words", "ask"),
    [
        ("parallel is of type str", lambda rt, run: run.execute([], parallel="3")),
        ("parallel is of type float", lambda rt, run: run.execute([], parallel=1.5)),
        ("deadline_s is of type str", lambda rt, run: run.execute([], deadline_s="5")),
        ("limits is of type int", lambda rt, run: rt.run(limits=20)),
        ("the id of a run is of type int", lambda rt, run: rt.run(7)),
        ("id of a run, batch or call, not ", lambda rt, run: rt.cancel(run)),
        (
            "tool and model_id of a ToolCall are text",
            lambda rt, run: run.execute([ToolCall(model_id="", tool=None, arguments={})]),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words_and_harms_nothing(
    street: Street, kind: str, words: str, ask: Callable[[Any, Any], Any]
) -> None:
    house = street.open(kind, [fine], config=quick())
    guest = house.run(limits=Limits(calls=5))

    async def there() -> None:
        asked = ask(house.rt, guest.run)
        if asyncio.iscoroutine(asked):
            await asked

    def here() -> None:
        ask(house.rt, guest.run)

    with pytest.raises(CallerError, match=words):
        if isinstance(guest.run, Run):
            house.await_there(there())
        else:
            here()
    assert endings(guest.execute([call("fine")])) == [OK]
    guest.close()


def test_a_configuration_is_no_dict(kind: str, street: Street) -> None:
    config: Any = {"grace_s": 1}
    with pytest.raises(CallerError, match=r"Config\.load"):
        street.open(kind, [fine], config=config)


def test_a_runtime_from_before_a_fork_says_so(kind: str, street: Street) -> None:
    """Law 7: its threads stayed behind, so a call would wait there until its bound."""
    house = street.open(kind, [fine], config=quick())
    own = house.rt._process
    house.rt._process = own + 1  # As the child of a fork sees it.
    try:
        with pytest.raises(CallerError, match="before a fork; make a new one"):
            house.on_its_thread(house.rt.run)
    finally:
        house.rt._process = own
    assert endings(house.execute(call("fine"))) == [OK]
