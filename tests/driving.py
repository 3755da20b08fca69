"""Driving the real runtimes from a plain test: one way to say it for async and blocking alike.

A `House` is one runtime. The async one lives on a loop in a thread of its own, so a test reads the
same for both, and every cancel here comes from another thread. Calls are parked on a `Door`, phases
are waited for with a `Watch`: nothing here sleeps to synchronise.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from endstop import (
    BatchResult,
    BlockingRuntime,
    CallResult,
    CancelReport,
    Config,
    Runtime,
    ToolCall,
)
from endstop.core.events import RunOpened
from endstop.core.state import State
from endstop.testing.laws import check_state, check_story

LIMIT_S = 20.0
"""Longer than anything here may take; a test that waits so long has found a hang."""

PLANTED_S = 0.5
"""The same while a bug is planted: what hangs because of it need not hang for long."""

_patience = {"s": LIMIT_S}
_left_behind: list[object] = []
KINDS = ("async", "blocking")
Kind = TypeVar("Kind")
Value = TypeVar("Value")


def patient(limit_s: float) -> float:
    """How long to wait for something, at most."""
    return min(limit_s, _patience["s"])


def quick(**changed: Any) -> Config:
    """A configuration with a short ladder, whatever lies around the checkout."""
    terms = {"grace_s": 0.2, "kill_s": 1.0} | changed
    return Config.load(directory="/", environ={}, **terms)


def call(tool: str, model_id: str = "m", /, **arguments: Any) -> ToolCall:
    """A tool call as a model asks for it."""
    return ToolCall(model_id=model_id, tool=tool, arguments=arguments)


class Door:
    """Where a body waits until the test opens; also wakes coroutines on whatever loop."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Let everybody through, from now on."""
        with self._lock:
            self._open.set()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    @property
    def is_open(self) -> bool:
        """Whether it was opened."""
        return self._open.is_set()

    def wait(self, limit_s: float = LIMIT_S) -> None:
        """Wait in a plain function; deaf to every stop, as a wedged tool is."""
        assert self._open.wait(limit_s), "the door was not opened"

    async def pass_through(self) -> None:
        """Wait in a coroutine; a cancel of its task is felt."""
        event = asyncio.Event()
        with self._lock:
            if self._open.is_set():
                return
            self._waiters.append((asyncio.get_running_loop(), event))
        await event.wait()


class Watch:
    """An observer that remembers, and lets a test wait for what it sees."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._seen = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._seen:
            self.events.append(event)
            self._seen.notify_all()

    def told(self, kind: type[Kind], index: int | str | None = None) -> list[Kind]:
        """What was told of one kind, for the call with this index or id."""
        return [one for one in list(self.events) if self._fits(one, kind, index)]

    def wait(
        self,
        kind: type[Kind],
        index: int | str | None = None,
        *,
        count: int = 1,
        limit_s: float = LIMIT_S,
    ) -> Kind:
        """Wait until `count` such events were told; returns the last of them."""
        with self._seen:
            enough = patient(limit_s)
            self._seen.wait_for(lambda: len(self.told(kind, index)) >= count, enough)
        found = self.told(kind, index)
        assert len(found) >= count, f"{kind.__name__} of {index} was not told {count} times"
        return found[count - 1]

    @staticmethod
    def _fits(event: object, kind: type, index: int | str | None) -> bool:
        if not isinstance(event, kind):
            return False
        if index is None:
            return True
        name = str(getattr(event, "call", ""))
        return name == index if isinstance(index, str) else name.endswith(f".{index}")


class Going:
    """A batch that is under way."""

    def __init__(self, house: House, future: Future[BatchResult]) -> None:
        self._house = house
        self.future = future

    @property
    def over(self) -> bool:
        """Whether it has returned."""
        return self.future.done()

    def result(self, limit_s: float = LIMIT_S) -> BatchResult:
        """Its answers; a batch that does not end in time fails the test."""
        try:
            return self.future.result(patient(limit_s))
        except TimeoutError:
            raise AssertionError(
                f"the batch did not end within {limit_s} s; open: {self._house.rt.calls()}"
            ) from None


class Guest:
    """A run in a house."""

    def __init__(self, house: House, run: Any) -> None:
        self.house = house
        self.run = run
        self.id: str = run.id

    def begin(self, calls: Iterable[ToolCall], **terms: Any) -> Going:
        """Start a batch; returns at once."""
        return self.house._begin(self.run, list(calls), terms)

    def execute(self, calls: Iterable[ToolCall], **terms: Any) -> BatchResult:
        """Run a batch to its end."""
        return self.begin(calls, **terms).result()

    def cancel(self, **how: Any) -> Stop:
        """Cancel the run from the test's own thread."""
        return self.house.cancel(self.id, **how)

    def close(self) -> None:
        """Close the run."""
        self.house.on_its_thread(self.run.close)


class Stop:
    """A cancel that was accepted."""

    def __init__(self, house: House, cancellation: Any) -> None:
        self._house = house
        self._cancellation = cancellation
        self.accepted: bool = cancellation.accepted

    def wait(self) -> CancelReport:
        """What ended and how."""
        if self._house.kind == "blocking":
            report: CancelReport = self._cancellation.wait(patient(LIMIT_S))
            return report

        async def report_of() -> CancelReport:
            found: CancelReport = await self._cancellation
            return found

        return self._house.await_there(report_of())


class House:
    """One runtime of either kind, and everything that it told."""

    def __init__(self, kind: str, tools: Iterable[Any] = (), **options: Any) -> None:
        assert kind in KINDS
        self.kind = kind
        self.watch = Watch()
        self.lawful = True
        self._closed = False
        options.setdefault("config", quick())
        options["observers"] = (self.watch, *options.get("observers", ()))
        self.rt: Any
        if kind == "blocking":
            self.rt = BlockingRuntime(tools, **options)
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.rt = Runtime(tools, **options)

        async def enter() -> None:
            await self.rt.__aenter__()

        self.await_there(enter())

    @property
    def state(self) -> State:
        """What the runtime knows."""
        state: State = self.rt.engine.state
        return state

    def await_there(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the async runtime's loop and wait for it."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patient(LIMIT_S))
        except TimeoutError:
            raise AssertionError("the loop did not come to it in time") from None

    def on_its_thread(self, function: Callable[[], Value]) -> Value:
        """Call a function where the runtime lives."""
        if self.kind == "blocking":
            return function()

        async def there() -> Value:
            return function()

        return self.await_there(there())

    def run(self, run_id: str | None = None, **terms: Any) -> Guest:
        """Open a run."""
        return Guest(self, self.on_its_thread(lambda: self.rt.run(run_id, **terms)))

    def _begin(self, run: Any, calls: list[ToolCall], terms: dict[str, Any]) -> Going:
        if self.kind == "async":
            future = asyncio.run_coroutine_threadsafe(run.execute(calls, **terms), self._loop)
            return Going(self, future)
        future = Future()

        def work() -> None:
            try:
                future.set_result(run.execute(calls, **terms))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return Going(self, future)

    def begin(self, *calls: ToolCall, **terms: Any) -> Going:
        """Start a batch in a run of its own."""
        return self._begin(self.rt, list(calls), terms)

    def execute(self, *calls: ToolCall, **terms: Any) -> BatchResult:
        """Run a batch in a run of its own to its end."""
        return self.begin(*calls, **terms).result()

    def cancel(self, target: str, **how: Any) -> Stop:
        """Cancel a run, batch or call from the test's own thread."""
        return Stop(self, self.rt.cancel(target, **how))

    def close(self) -> None:
        """Close the runtime, and check that what it did was lawful and that nothing leaked."""
        if self._closed:
            return
        self._closed = True
        if self.kind == "blocking":
            self.rt.close()
        else:
            self.await_there(self.rt.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            left = [] if self._thread.is_alive() else asyncio.all_tasks(self._loop)
            if not left and not self._thread.is_alive():
                self._loop.close()
            elif not self.lawful:
                # What hangs because of a planted bug is kept, so that nobody collects it half done.
                _left_behind.append((self._loop, left))
        if self.lawful:
            self.check()

    def check(self) -> None:
        """The laws hold for the state and for the story; no lock and no slot is left behind."""
        with self.rt.engine.lock:
            # A run's count of starts goes on when ended children or batches are forgotten.
            wrong = [x for x in check_state(self.state) if "starts, there were" not in x]
            wrong = [x for x in wrong if "per tool, there were" not in x]
            if any(one.parent_call for one in self.watch.told(RunOpened)):
                # And so does what they spent.
                wrong = [x for x in wrong if " spent, its calls " not in x]
            alive = [one.id for one in self.state.calls.values() if one.alive]
            resources = len(self.state.resources)
            taken = {kind: slots.taken for kind, slots in self.state.slots.items()}
        assert not wrong, wrong
        # Whoever ended the last call may still be showing it on a thread of its own.
        give_up = time.monotonic() + 5.0
        while (story := check_story(list(self.watch.events))) and time.monotonic() < give_up:
            time.sleep(0.005)
        assert not story, story
        if not alive:
            assert resources == 0, "law 12: a resource is still held"
            assert not any(taken.values()), f"law 12: a slot is still taken: {taken}"


class Street:
    """Opens houses and closes them after the test."""

    def __init__(self) -> None:
        self._houses: list[House] = []
        self._doors: list[Door] = []

    def open(self, kind: str, tools: Iterable[Any] = (), **options: Any) -> House:
        """A runtime of this kind; closed and checked when the test is over."""
        house = House(kind, tools, **options)
        self._houses.append(house)
        return house

    def door(self) -> Door:
        """A door that is opened when the test is over, at the latest."""
        door = Door()
        self._doors.append(door)
        return door

    def close(self) -> None:
        """Open every door, close every house."""
        for door in self._doors:
            door.open()
        houses, self._houses = self._houses, []
        for house in houses:
            house.close()


def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait for what tells nobody that it happened, such as the end of a thread."""
    give_up = time.monotonic() + patient(limit_s)
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.002)


def fails(scenario: Callable[..., None], *arguments: Any, **named: Any) -> None:
    """Assert that a scenario fails: on a planted bug it must."""
    try:
        scenario(*arguments, **named)
    except AssertionError:
        return
    raise AssertionError(f"{scenario.__name__} passed although the bug was planted")


def fails_when(
    plant: Callable[[pytest.MonkeyPatch], None], scenario: Callable[..., None], *arguments: Any
) -> None:
    """Assert that a scenario fails while a bug is planted.

    Its houses are closed when the bug is gone, and are not checked: what happened in them broke
    laws on purpose.
    """
    street = _Unlawful()
    try:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            patch.setitem(_patience, "s", PLANTED_S)
            fails(scenario, street, *arguments)
    finally:
        street.close()


class _Unlawful(Street):
    def open(self, kind: str, tools: Iterable[Any] = (), **options: Any) -> House:
        house = super().open(kind, tools, **options)
        house.lawful = False
        return house


def endings(results: Iterable[CallResult]) -> list[tuple[str, str, str]]:
    """Outcome, reason and effect of each, for comparing."""
    return [(str(r.outcome), str(r.reason), str(r.effect)) for r in results]


UNSTARTED = ("cancelled", "cancelled_by_user", "none")
"""The ending of a call that the user cancelled before its body began."""

OK = ("succeeded", "ok", "done")
