"""S3 · hermes-agent #85125 and #84719: a hung tool on the sequential path wedges the turn.

The original bounds concurrent batches and not a lone call. Here one call and many have the same
deadline, the same ladder and the same one owner of the ending.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
import time
from typing import Any

import pytest

from endstop import AsyncContext, Config, Context, HookCall, tool
from endstop.core import decide, inputs
from endstop.core import events as e
from endstop.core.terms import Contract
from endstop.run import plans
from endstop.run.heartbeat import Heartbeat
from endstop.work.thread import ThreadWorker
from tests.driving import (
    OK,
    House,
    Street,
    call,
    endings,
    fails_when,
    quick,
    until,
)

TIMED_OUT = ("timed_out", "deadline", "unknown")


def hung_first_call(street: Street, kind: str, threads: bool, timeouts: dict[str, Any]) -> None:
    """A hangs for ever; it is answered at its deadline, and B is dispatched after it."""
    door = street.door()
    ran: list[str] = []

    @tool(name="hang", resources=())
    def hang() -> str:
        door.wait()
        return "too late"

    @tool(name="hang", resources=())
    async def ahang() -> str:
        while not door.is_open:
            try:
                await door.pass_through()
            except asyncio.CancelledError:
                continue
        return "too late"

    @tool(resources=())
    def fine() -> str:
        ran.append("fine")
        return "fine"

    config = quick(grace_s=0.1, timeouts={"tools": timeouts})
    house = street.open(kind, [hang if threads else ahang, fine], config=config)
    run = house.run("r")
    going = run.begin([call("hang", "a"), call("fine", "b")], parallel=1)
    results = going.result(6.0)
    assert endings(results) == [TIMED_OUT, OK]
    assert ran == ["fine"]
    assert str(results[0].stopped_by) == "abandoned"
    assert results[0].alive
    assert re.search(r"timed out after 0\.\d+ s of running", results[0].text)
    assert [r.model_id for r in results] == ["a", "b"]
    assert [view.call_id for view in house.rt.calls() if view.abandoned] == ["r/0.0"]

    door.open()
    late = house.watch.wait(e.LateEnd, 0, limit_s=2.0)
    assert str(late.how) == "returned"
    # Exactly one ending each; the late one is kept beside it and is none.
    assert [x.call for x in house.watch.told(e.CallSettled)] == ["r/0.0", "r/0.1"]
    assert len(house.watch.told(e.LateEnd)) == 1
    assert house.rt.calls() == []
    assert endings(results) == [TIMED_OUT, OK]


SEQUENTIAL = {"sequential_call": 0.2, "concurrent_batch": 60}
INHERITED = {"concurrent_batch": 0.2}


def plant_no_deadline_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug: only concurrent batches have a deadline."""
    resolve = plans.resolve

    def unbounded(declared: Any, *, sequential: bool, **terms: Any) -> Contract:
        contract = resolve(declared, sequential=sequential, **terms)
        if not sequential:
            return contract
        names = Contract.__slots__
        return Contract(**{n: getattr(contract, n) for n in names} | {"deadline_s": None})

    monkeypatch.setattr(plans, "resolve", unbounded)


@pytest.mark.parametrize("timeouts", [SEQUENTIAL, INHERITED], ids=["own", "inherited"])
@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_a_hung_sequential_call(
    street: Street, kind: str, threads: bool, timeouts: dict[str, Any]
) -> None:
    hung_first_call(street, kind, threads, timeouts)


@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_a_hung_sequential_call_fails_on_the_original_bug(kind: str, threads: bool) -> None:
    fails_when(plant_no_deadline_for_one, hung_first_call, kind, threads, SEQUENTIAL)


def plant_late_end_as_a_second_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two owners of the ending: the abandoned worker tells its success as well."""
    body_ended = decide._DECIDE[inputs.BodyEnded]

    def twice(state: Any, said: inputs.BodyEnded, now: float) -> list[e.Event]:
        found = body_ended(state, said, now)
        if any(isinstance(event, e.LateEnd) for event in found):
            watch = state.calls[said.call].run
            house = _HOUSES[watch.id]
            house.watch(
                e.CallSettled(
                    run=watch.id,
                    call=said.call,
                    outcome="succeeded",  # type: ignore[arg-type]
                    reason="ok",  # type: ignore[arg-type]
                    effect="done",  # type: ignore[arg-type]
                )
            )
        return found

    monkeypatch.setitem(decide._DECIDE, inputs.BodyEnded, twice)


_HOUSES: dict[str, House] = {}


def one_ending_and_a_late_end(street: Street, kind: str) -> None:
    """The list of endings of a call that is abandoned and returns later has one entry."""
    door = street.door()

    @tool(resources=(), timeout=0.1)
    def hang() -> str:
        door.wait()
        return "too late"

    house = street.open(kind, [hang], config=quick(grace_s=0.05))
    run = house.run("one")
    _HOUSES["one"] = house
    results = run.execute([call("hang")])
    assert endings(results) == [TIMED_OUT]
    door.open()
    house.watch.wait(e.LateEnd)
    assert [str(x.outcome) for x in house.watch.told(e.CallSettled)] == ["timed_out"]


def test_one_ending_and_a_late_end(street: Street, kind: str) -> None:
    one_ending_and_a_late_end(street, kind)


def test_one_ending_fails_with_two_owners(kind: str) -> None:
    fails_when(plant_late_end_as_a_second_ending, one_ending_and_a_late_end, kind)


def hook_that_outlasts_its_time(street: Street, kind: str, async_hook: bool) -> None:
    """Reported once, at its time; the body never runs, however late the hook says yes."""
    door = street.door()
    ran: list[str] = []
    answered = threading.Event()

    def slow(seen: HookCall) -> None:
        door.wait()
        answered.set()

    async def aslow(seen: HookCall) -> None:
        while not door.is_open:
            try:
                await door.pass_through()
            except asyncio.CancelledError:
                continue
        answered.set()

    @tool(resources=())
    def pay() -> str:
        ran.append("paid")
        return "paid"

    config = quick(timeouts={"hooks": 0.2, "tools": {"sequential_call": 0.2}})
    hook = aslow if async_hook else slow
    house = street.open(kind, [pay], config=config, before=[hook])
    going = house.run("r").begin([call("pay")])
    results = going.result(6.0)
    assert endings(results) == [("rejected", "hook_failed", "none")]
    assert "did not answer in time" in results[0].text
    assert "timed out" not in results[0].text, "law 5: a body that did not begin did not time out"
    door.open()
    assert answered.wait(5)
    # One more call through the same hook: by then the late answer has been taken, or dropped.
    assert endings(house.run("s").begin([call("pay")]).result(6.0)) == [OK]
    assert ran == ["paid"], "the late yes ran the body"
    assert len(house.watch.told(e.CallSettled, "r/0.0")) == 1


def plant_late_yes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug: whoever waits for the hook dispatches the body after it, late or not."""
    from endstop.run.engine import Engine

    tell = Engine.tell

    def dispatching(self: Engine, said: Any, *landed: Any) -> bool:
        took = tell(self, said, *landed)
        if isinstance(said, inputs.Prepared) and not took:
            run = said.call.partition("/")[0]
            self._start(e.CallGranted(run=run, call=said.call))
        return took

    monkeypatch.setattr(Engine, "tell", dispatching)


def plant_late_yes_runs_unclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, with a worker that does not ask at the last instant."""
    plant_late_yes_runs(monkeypatch)
    run = ThreadWorker._run

    def unclaimed(self: ThreadWorker, body: Any) -> None:
        tell = self._tell
        self._tell = lambda said: tell(said) or True
        run(self, body)

    monkeypatch.setattr(ThreadWorker, "_run", unclaimed)


@pytest.mark.parametrize("async_hook", [False, True], ids=["plain-hook", "async-hook"])
def test_a_policy_hook_that_outlasts_the_deadline(
    street: Street, kind: str, async_hook: bool
) -> None:
    hook_that_outlasts_its_time(street, kind, async_hook)


def test_a_policy_hook_fails_on_the_original_bug() -> None:
    fails_when(plant_late_yes_runs_unclaimed, hook_that_outlasts_its_time, "blocking", False)


def test_the_worker_s_claim_alone_stops_a_late_yes(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_late_yes_runs(monkeypatch)
    hook_that_outlasts_its_time(street, "blocking", False)


# -- which deadline: the rules of the configuration, as calls that run meet them


def deadline_of(street: Street, kind: str, config: Config, **terms: Any) -> float | None:
    """The deadline that a call of a plain tool gets."""

    @tool(resources=())
    async def noop() -> None:
        return None

    house = street.open(kind, [noop], config=config)
    names = ["a"] if terms.pop("lone", True) else ["a", "b"]
    house.execute(*[call("noop", n) for n in names], **terms)
    return house.watch.told(e.CallAccepted)[0].contract.deadline_s


def tools(**timeouts: Any) -> Config:
    """A configuration with these timeouts of tools."""
    return quick(timeouts={"tools": timeouts})


RULES = [
    pytest.param(tools(), 420.0, id="default"),
    pytest.param(tools(concurrent_batch=7), 7.0, id="inherits"),
    pytest.param(tools(concurrent_batch=0), None, id="inherits-off"),
    pytest.param(tools(concurrent_batch=7, sequential_call=3), 3.0, id="own"),
    pytest.param(tools(concurrent_batch=7, sequential_call=0), None, id="own-off"),
    pytest.param(tools(concurrent_batch=0, sequential_call=3), 3.0, id="own-on-where-other-is-off"),
    pytest.param(tools(concurrent_batch="off", sequential_call="off"), None, id="words"),
]


@pytest.mark.parametrize(("config", "expected"), RULES)
def test_the_deadline_of_one_call(
    street: Street, kind: str, config: Config, expected: float | None
) -> None:
    assert deadline_of(street, kind, config) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(tools(), 420.0, id="default"),
        pytest.param(tools(sequential_call=3), 420.0, id="not-the-other-s"),
        pytest.param(tools(concurrent_batch=7, sequential_call=3), 7.0, id="own"),
        pytest.param(tools(concurrent_batch=-1, sequential_call=3), None, id="off"),
    ],
)
def test_the_deadline_in_a_concurrent_batch(
    street: Street, kind: str, config: Config, expected: float | None
) -> None:
    assert deadline_of(street, kind, config, lone=False) == expected


def test_one_after_the_other_is_sequential(street: Street, kind: str) -> None:
    config = tools(concurrent_batch=7, sequential_call=3)
    assert deadline_of(street, kind, config, lone=False, parallel=1) == 3.0


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ENDSTOP_TIMEOUTS_TOOLS_CONCURRENT_BATCH": "9"}, 9.0),
        ({"ENDSTOP_TIMEOUTS_TOOLS_CONCURRENT_BATCH": "0"}, None),
        ({"ENDSTOP_TIMEOUTS_TOOLS_SEQUENTIAL_CALL": "5"}, 5.0),
        ({"ENDSTOP_TIMEOUTS_TOOLS_CONCURRENT_BATCH": "nonsense"}, 420.0),
        ({"ENDSTOP_TIMEOUTS_TOOLS_CONCURRENT_BATCH": "nan"}, 420.0),
    ],
    ids=["bridge", "bridge-off", "own", "junk", "nan"],
)
def test_the_environment_is_a_bridge(
    street: Street,
    kind: str,
    environ: dict[str, str],
    expected: float | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        config = Config.load(directory="/", environ=environ, grace_s=0.1)
    assert deadline_of(street, kind, config) == expected
    (value,) = environ.values()
    assert (not value.isdigit()) == any("is not used" in line for line in caplog.messages)


def test_a_tool_s_own_deadline_wins_over_the_configuration(street: Street, kind: str) -> None:
    """Not one 420 s for tools that declare 600; and no list of exempt names anywhere."""

    @tool(resources=(), timeout=600)
    def long() -> None:
        return None

    @tool(resources=(), timeout="off")
    def clarify() -> None:
        return None

    house = street.open(kind, [long, clarify], config=tools(sequential_call=3))
    house.execute(call("long"), call("clarify"), parallel=1)
    accepted = house.watch.told(e.CallAccepted)
    assert [a.contract.deadline_s for a in accepted] == [600.0, None]


# -- pauses


@pytest.mark.parametrize("body", ["thread", "coroutine", "process"])
def test_a_human_s_time_inside_a_body_does_not_count(
    street: Street, kind: str, body: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interactive tool owns its wait: it is answered long after its running time."""
    door = street.door()

    @tool(name="clarify", resources=(), timeout=0.4)
    def clarify(ctx: Context) -> str:
        with ctx.human("which of the two?"):
            door.wait()
        return "the second"

    @tool(name="clarify", resources=(), timeout=0.4)
    async def aclarify(ctx: AsyncContext) -> str:
        async with ctx.human("which of the two?"):
            await door.pass_through()
        return "the second"

    file = tmp_path / "asking_tools.py"
    file.write_text(PROCESS_TOOL)
    made = {"thread": clarify, "coroutine": aclarify}.get(body) or process_tool(file, monkeypatch)
    answer = tmp_path / "answer"
    house = street.open(kind, [made])
    arguments = {"path": str(answer)} if body == "process" else {}
    going = house.run("r").begin([call("clarify", **arguments)])
    paused = house.watch.wait(e.CallPaused)
    assert paused.why == "which of the two?"
    assert [view.waits_for for view in house.rt.calls()] == ["a human"]
    # Another call has this long to overrun; the deadline of the asking one is over by then.
    other = house.run("s").begin([call("clarify")]) if body != "process" else None
    time.sleep(0.6)
    assert not going.over, "the wait for a human was counted"
    door.open()
    answer.write_text("the second")
    results = going.result()
    assert endings(results) == [OK]
    assert results[0].value == "the second"
    assert results[0].ran_s < 0.4
    if other is not None:
        assert endings(other.result()) == [OK]


PROCESS_TOOL = """
import os, time
from endstop import Context, tool

@tool(isolation="process", resources=(), timeout=0.4, name="clarify")
def clarify(path: str, ctx: Context) -> str:
    with ctx.human("which of the two?"):
        while not os.path.exists(path) or not open(path).read():
            if ctx.wait_cancelled(0.01):
                return ""
    return open(path).read()
"""


def process_tool(file: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tool that another process finds in a file."""
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location("asking_tools", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "asking_tools", module)
    monkeypatch.syspath_prepend(str(file.parent))
    spec.loader.exec_module(module)
    return module.clarify


def test_a_pause_is_one_call_s_own(street: Street, kind: str) -> None:
    """A human wait of one call does not extend the deadline of its neighbour."""
    door = street.door()

    @tool(resources=(), timeout=30)
    def ask(ctx: Context) -> str:
        with ctx.human("?"):
            door.wait()
        return "answered"

    @tool(resources=(), timeout=0.2)
    def hang() -> str:
        door.wait()
        return "late"

    house = street.open(kind, [ask, hang], config=quick(grace_s=0.1))
    going = house.run("r").begin([call("ask"), call("hang")])
    house.watch.wait(e.CallPaused, 0)
    settled = house.watch.wait(e.CallSettled, 1, limit_s=2.0)
    assert str(settled.outcome) == "timed_out"
    assert not going.over
    door.open()
    assert endings(going.result()) == [OK, TIMED_OUT]


def test_the_wait_for_an_approval_does_not_count(street: Street, kind: str) -> None:
    @tool(resources=(), approval="always", timeout=0.3)
    def sudo() -> str:
        return "done"

    house = street.open(kind, [sudo])
    going = house.run("r").begin([call("sudo")], deadline_s=0.3)
    house.watch.wait(e.ApprovalAsked)
    time.sleep(0.5)
    assert not going.over, "an approval was counted as running time"
    assert house.rt.approve("r/0.0")
    assert endings(going.result()) == [OK]


def test_a_human_wait_listens_to_a_cancel(street: Street, kind: str) -> None:
    @tool(resources=(), timeout=30)
    def ask(ctx: Context) -> str:
        with ctx.human("?"):
            ctx.sleep(60)
        return "answered"

    house = street.open(kind, [ask])
    run = house.run("r")
    going = run.begin([call("ask")])
    house.watch.wait(e.CallPaused)
    run.cancel()
    results = going.result(6.0)
    assert endings(results) == [("cancelled", "cancelled_by_user", "unknown")]
    assert str(results[0].stopped_by) == "asked"


# -- results and signs of life


def test_success_exception_and_answer_are_unchanged(street: Street, kind: str) -> None:
    @tool(resources=())
    def good() -> dict[str, int]:
        return {"n": 1}

    @tool(resources=())
    def bad() -> None:
        raise ValueError("no such file: x")

    house = street.open(kind, [good, bad], config=tools(sequential_call=5))
    results = house.execute(call("good"), call("bad"), parallel=1)
    assert results[0].value == {"n": 1}
    assert endings(results)[1] == ("failed", "tool_error", "unknown")
    assert "ValueError: no such file: x" in results[1].text


def test_abandoned_bodies_do_not_fill_the_pool(street: Street, kind: str) -> None:
    """Eight wedged bodies on eight slots: the next call is told so at once, and does not hang."""
    door = street.door()

    @tool(resources=(), timeout=0.1)
    def hang(wait: bool) -> str:
        if wait:
            door.wait()
        return "ok"

    config = quick(grace_s=0.05, slots={"thread": 4})
    house = street.open(kind, [hang], config=config)
    wedged = house.execute(*[call("hang", wait=True)] * 4)
    assert endings(wedged) == [TIMED_OUT] * 4
    refused = house.begin(call("hang", wait=False)).result(6.0)
    assert endings(refused) == [("rejected", "saturated", "none")]
    door.open()
    house.watch.wait(e.LateEnd, count=4)
    assert endings(house.execute(call("hang", wait=False))) == [OK]


def test_heartbeats_come_at_most_once_per_interval_and_end_with_the_call(
    street: Street, kind: str
) -> None:
    door = street.door()

    @tool(resources=(), timeout=0.45)
    def hang() -> str:
        door.wait()
        return "late"

    @tool(resources=())
    def fine() -> str:
        return "fine"

    house = street.open(kind, [hang, fine], config=quick(grace_s=0.05, heartbeat_s=0.1))
    beats: list[tuple[float, Heartbeat]] = []
    end = house.rt.listen(lambda beat: beats.append((time.monotonic(), beat)))
    began = time.monotonic()
    house.execute(call("fine"))
    assert beats == [], "a fast call has none"
    results = house.run("r").execute([call("hang")])
    over = time.monotonic()
    assert endings(results) == [TIMED_OUT], "a heartbeat extended the deadline"
    assert {beat.call for _, beat in beats} == {"r/0.0"}
    assert 1 <= len(beats) <= (over - began) / 0.1 + 1
    instants = [at for at, _ in beats]
    assert all(later - earlier > 0.05 for earlier, later in itertools.pairwise(instants))
    assert all(beat.ran_s <= over - began for _, beat in beats)
    count = len(beats)
    time.sleep(0.3)
    assert len(beats) == count, "an abandoned worker still beats"
    end()
    door.open()
    until(lambda: house.rt.calls() == [])


def test_heartbeats_come_while_a_human_is_asked_and_for_calls_that_ran_before(
    street: Street, kind: str
) -> None:
    door = street.door()

    @tool(resources=())
    def ask(ctx: Context) -> str:
        with ctx.human("?"):
            door.wait()
        return "ok"

    house = street.open(kind, [ask], config=quick(heartbeat_s=0.05))
    going = house.run("r").begin([call("ask")])
    house.watch.wait(e.CallPaused)
    seen = threading.Event()
    beats: list[Heartbeat] = []

    def listener(beat: Heartbeat) -> None:
        beats.append(beat)
        seen.set()
        raise RuntimeError("a listener's failure changes nothing")

    house.rt.listen(listener)
    assert seen.wait(5)
    assert beats[0].paused
    assert beats[0].call == "r/0.0"
    door.open()
    assert endings(going.result()) == [OK]
