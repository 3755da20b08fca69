"""A driver does what is asked of it through the journal, quickly, and nothing else."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncContext, BlockingRuntime, Config, Context, Runtime, ToolCall, tool
from endstop.config import Timeouts
from endstop.core import events as e
from endstop.core.terms import Effect, Outcome, Reason
from endstop.errors import StaleWriter
from endstop.store.protocol import Recorded
from endstop.store.sqlite import SqliteJournal

WAIT_S = 30.0
QUICK_S = 0.1
"""What an owner that lives may take to hear of a request."""

_never = threading.Event()


@tool(resources=[])
def waits(ctx: Context) -> str:
    """Wait until it is asked to stop."""
    ctx.sleep(3600)
    return "never"


@tool(resources=[])
async def blocks_its_loop(ctx: AsyncContext, seconds: float) -> str:
    """Block the loop, as no coroutine may."""
    time.sleep(seconds)
    return "woke"


@tool(approval="always", resources=[])
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


TOOLS = [waits, blocks_its_loop, pay]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def runtime(path: Path) -> Iterator[BlockingRuntime]:
    with BlockingRuntime(TOOLS, journal=str(path)) as made:
        yield made


@pytest.fixture
def outside(runtime: BlockingRuntime, path: Path) -> Iterator[SqliteJournal]:
    """Another owner of the same file, as another process is."""
    journal = SqliteJournal(path)
    yield journal
    journal.close()


class Batch:
    """A batch that runs on a thread of its own."""

    def __init__(self, runtime: BlockingRuntime, run_id: str, *calls: ToolCall) -> None:
        self.run = runtime.run(run_id)
        self.results: Any = None
        self.error: Exception | None = None
        self._seen: set[tuple[type, str]] = set()
        self._changed = threading.Condition()
        self._end = runtime.observe(self._see)
        self._thread = threading.Thread(target=self._execute, args=(calls,))
        self._thread.start()

    def _execute(self, calls: tuple[ToolCall, ...]) -> None:
        try:
            self.results = self.run.execute(calls)
        except Exception as error:
            self.error = error

    def _see(self, event: Any) -> None:
        with self._changed:
            self._seen.add((type(event), getattr(event, "call", event.run)))
            self._changed.notify_all()

    def until(self, event: type, name: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: (event, name) in self._seen, WAIT_S)

    def over(self) -> Any:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.results


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(model_id=name, tool=name, arguments=arguments)


def ask(journal: SqliteJournal, target: str, kind: str, **body: Any) -> dict[str, Any]:
    """Ask the driver for something and wait for what it says."""
    asked = journal.inbox().post(target.partition("/")[0], target, kind, body, "ann")
    assert asked is not None
    answer = journal.inbox().wait(asked, WAIT_S)
    assert answer is not None
    return answer


def cancel(journal: SqliteJournal, target: str) -> dict[str, Any]:
    return ask(journal, target, "cancel", reason="cancelled_by_user", mode="interrupt")


def test_a_cancel_from_outside_stops_one_call_and_no_other(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    """BH13: a cancel carries the identity of its target."""
    batch = Batch(runtime, "r", call("waits"), call("waits"))
    batch.until(e.CallStarted, "r/0.0")
    batch.until(e.CallStarted, "r/0.1")
    said = cancel(outside, "r/0.1")
    assert said == {"what": "cancelled", "accepted": True, "open": ["r/0.1"], "over": []}
    batch.until(e.CallSettled, "r/0.1")
    assert [view.call_id for view in runtime.calls()] == ["r/0.0"]
    again = cancel(outside, "r/0.1")
    assert again == {"what": "cancelled", "accepted": False, "open": [], "over": ["r/0.1"]}
    assert cancel(outside, "r")["open"] == ["r/0.0"]
    assert [result.outcome for result in batch.over()] == [Outcome.CANCELLED] * 2


def test_a_cancel_before_any_call_is_there_reaches_every_later_one(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    """BH12: the id is known before there is any work."""
    run = runtime.run("r")
    recorded(outside, e.RunOpened, "r")
    assert cancel(outside, "r")["accepted"]
    (result,) = run.execute([call("waits")])
    assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.NONE)


def recorded(journal: SqliteJournal, event: type[Any], name: str) -> Any:
    """An event of a call or run, once it can be read; nobody waits for some of them but tests."""
    run = name.partition("/")[0]
    end = time.monotonic() + WAIT_S
    while True:
        for one in journal.read(run):
            if isinstance(one.event, event) and getattr(one.event, "call", run) == name:
                return one.event
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_unknown_or_foreign_is_said(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    runtime.run("r")
    runtime.run("s")
    recorded(outside, e.RunOpened, "s")
    assert cancel(outside, "r/0.7")["what"] == "not_found"
    posted = outside.inbox().post("r", "s", "cancel", {}, "")
    assert posted is not None
    refused = outside.inbox().wait(posted, WAIT_S)
    assert refused == {"what": "refused", "why": "'s' is nothing of run 'r'"}
    assert ask(outside, "r", "cancel", reason="boredom", mode="interrupt")["what"] == "refused"
    assert ask(outside, "r", "dance")["why"] == "this version of endstop knows no request 'dance'"
    assert not runtime.engine.state.runs["s"].cancelled


def asked_digest(journal: SqliteJournal, call_id: str) -> str:
    digest: str = recorded(journal, e.ApprovalAsked, call_id).digest
    return digest


def test_answers_in_another_order_reach_exactly_their_calls(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    """BH41."""
    batch = Batch(runtime, "r", *(call("pay", amount=n) for n in (1, 2, 3, 4)))
    digests = [asked_digest(outside, f"r/0.{index}") for index in range(4)]

    def answer(index: int, verdict: str, **body: Any) -> str:
        body = {"verdict": verdict, "digest": digests[index], **body}
        what: str = ask(outside, f"r/0.{index}", "answer", **body)["what"]
        return what

    assert answer(1, "approve") == "answered"
    assert answer(0, "reject", text="not this one") == "answered"
    assert answer(1, "reject", text="too late") == "too_late"
    assert answer(3, "edit", arguments={"amount": "much"}) == "refused"
    assert answer(3, "edit", arguments={"amount": 5}) == "answered"
    assert answer(2, "respond", text="paid by hand") == "answered"
    values = [(result.outcome, result.value) for result in batch.over()]
    assert values[1:] == [
        (Outcome.SUCCEEDED, "paid 2"),
        (Outcome.SUCCEEDED, "paid by hand"),
        (Outcome.SUCCEEDED, "paid 5"),
    ]
    assert values[0][0] is Outcome.REJECTED
    assert "not this one" in batch.results[0].text


def test_an_answer_to_something_else_than_was_asked_is_refused(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    """Law 13 one-approval: bound to a digest of what the human has seen."""
    batch = Batch(runtime, "r", call("pay", amount=1))
    digest = asked_digest(outside, "r/0.0")
    refused = ask(outside, "r/0.0", "answer", verdict="approve", digest="of something else")
    assert refused["what"] == "refused"
    cancel(outside, "r/0.0")
    late = ask(outside, "r/0.0", "answer", verdict="approve", digest=digest)
    assert late["what"] == "too_late", "void after cancel"
    (result,) = batch.over()
    assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.NONE)


def test_a_rule_that_is_made_from_outside_holds_for_later_calls(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    """Law 13 one-approval: the rule is bound to what the human has seen, like the yes."""
    batch = Batch(runtime, "r", call("pay", amount=1))
    said = {"verdict": "approve", "digest": asked_digest(outside, "r/0.0")}
    for junk in ("all", {"same": "amount", "for_s": None}, {"same": None, "for_s": "1"}):
        assert ask(outside, "r/0.0", "answer", **said, remember=junk)["what"] == "refused"
    remember = {"same": ["amount"], "for_s": 600}
    assert ask(outside, "r/0.0", "answer", **said, remember=remember)["what"] == "answered"
    batch.over()
    (again,) = batch.run.execute([call("pay", amount=1)])
    assert again.value == "paid 1"
    (rule,) = runtime.rules()
    assert (rule.rule_id, rule.same, rule.by) == ("r/0.0", {"amount": 1}, "ann")
    assert rule.expires_in_s is not None, "a rule with an end has none"
    assert 0 < rule.expires_in_s <= 600


@pytest.mark.serial
def test_an_owner_that_lives_hears_of_a_cancel_at_once(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    took = []
    for number in range(20):
        batch = Batch(runtime, f"r{number}", call("waits"))
        batch.until(e.CallStarted, f"r{number}/0.0")
        began = time.perf_counter()
        cancel(outside, f"r{number}")
        took.append(time.perf_counter() - began)
        batch.over()
    assert statistics.median(took) < QUICK_S, took


def test_a_lost_ring_is_made_up_for(
    runtime: BlockingRuntime, outside: SqliteJournal, path: Path
) -> None:
    batch = Batch(runtime, "r", call("waits"))
    batch.until(e.CallStarted, "r/0.0")
    # The bells are swept away by somebody who tidies the folder.
    for bell in path.parent.glob("*.bell"):
        bell.unlink()
    assert cancel(outside, "r")["accepted"]
    batch.over()


def test_a_run_that_was_taken_away_stops_at_once(
    runtime: BlockingRuntime, outside: SqliteJournal
) -> None:
    """Law 16: the loser appends nothing more, and stops its workers without being told again."""
    batch = Batch(runtime, "r", call("waits"))
    recorded(outside, e.CallStarted, "r/0.0")

    def end(_: list[Recorded]) -> list[e.Event]:
        return [
            e.CallSettled(
                run="r",
                call="r/0.0",
                outcome=Outcome.LOST,
                reason=Reason.DRIVER_LOST,
                effect=Effect.UNKNOWN,
            ),
            e.BatchClosed(run="r", batch="r/0"),
            e.RunEnded(run="r", outcome=Outcome.CANCELLED, reason=Reason.CANCELLED_BY_USER),
        ]

    taken = outside.take_over("r", end, force=True)
    with pytest.raises(StaleWriter):
        batch.over()
    assert [one.event for one in outside.read("r")][-3:] == taken
    assert runtime.calls() == [], "its worker was stopped"


def test_a_driver_whose_loop_is_blocked_still_stops(path: Path) -> None:
    """Law 6 bounded-stop, from outside of a program that blocks its own loop."""
    config = Config(timeouts=Timeouts(grace_s=0.2))
    started = threading.Event()

    def see(event: object) -> None:
        if isinstance(event, e.CallStarted):
            started.set()

    async def drive() -> None:
        runtime = Runtime(TOOLS, journal=str(path), config=config, observers=[see])
        async with runtime, runtime.run("r") as run:
            await run.execute([call("blocks_its_loop", seconds=3.0)])

    thread = threading.Thread(target=lambda: asyncio.run(drive()))
    thread.start()
    assert started.wait(WAIT_S)
    journal = SqliteJournal(path)
    began = time.monotonic()
    assert cancel(journal, "r")["accepted"]
    while not any(isinstance(one.event, e.CallSettled) for one in journal.read("r")):
        assert time.monotonic() - began < 2.5, "it was the end of the block that settled it"
        time.sleep(0.01)
    thread.join(WAIT_S)
    journal.close()


def test_a_memory_journal_has_no_errands() -> None:
    before = threading.active_count()
    with BlockingRuntime(TOOLS) as made:
        made.run("r")
        assert not [t for t in threading.enumerate() if t.name == "endstop-errands"]
    assert threading.active_count() <= before


def test_nothing_is_left_after_close(path: Path) -> None:
    with BlockingRuntime(TOOLS, journal=str(path)) as made:
        assert not [t for t in threading.enumerate() if t.name == "endstop-errands"]
        made.run("r")
        assert [t for t in threading.enumerate() if t.name == "endstop-errands"]
    assert not [t for t in threading.enumerate() if t.name == "endstop-errands"]
    assert not list(path.parent.glob("*.bell"))
