"""Tools: the context, which is what a body sees of the runtime.

Built by a worker for each body. It tells and asks; it decides nothing: whether a body may pass its
commit point is the core's answer. Nothing here may block without listening to a stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from endstop.config import SECONDS_MAX
from endstop.core.inputs import (
    CommitEntered,
    CommitLeft,
    HumanBegan,
    HumanEnded,
    Input,
    Progressed,
    Spent,
)
from endstop.core.noting import make_note
from endstop.core.payload import safe_text
from endstop.errors import CallerError, Stopped, Unanswered
from endstop.tools import asking
from endstop.tools.money import money

PROGRESS_CHARS = 2_000
WHY_CHARS = 500

_current: ContextVar[BodyContext] = ContextVar("endstop_context")


class BodyContext:
    """What `Context` and `AsyncContext` share. `tell` returns whether the core took an input."""

    __slots__ = ("_event", "_stopping", "_tell", "call_id", "effect_key")

    # One guard for all: it is held to make an Event or to list sleepers, never to wait. Re-entrant,
    # because a signal handler may ask for a stop on the very thread that holds it.
    _making = threading.RLock()

    def __init__(self, *, call_id: str, effect_key: str, tell: Callable[[Input], bool]) -> None:
        self.call_id = call_id
        self.effect_key = effect_key
        self._tell = tell
        self._stopping = False
        self._event: threading.Event | None = None

    @property
    def cancelled(self) -> bool:
        """Whether this body was asked to stop; never goes back to false (law 2 right-target)."""
        return self._stopping

    def check(self) -> None:
        """Raise `Stopped` if this body was asked to stop; otherwise return at once."""
        if self._stopping:
            raise self._stopped()

    def stop(self) -> None:
        """Ask the body to stop. For workers; from any thread, as often as one likes."""
        if self._stopping:
            # Also keeps a signal handler from waiting for the very stop that it interrupted.
            return
        self._stopping = True
        with self._making:
            event = self._event
        if event is not None:
            event.set()
        if asking._open:
            asking.wake_all(self)

    def answered(self, question: str, text: str) -> None:
        """Give the body the answer to a question of its. For workers; from any thread."""
        asking.answered(self, question, text)

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Report progress: a bounded message, and how much of the whole is done, from 0 to 1.

        Extends the idle limit, never the deadline (law 8 machine-time).
        """
        text = safe_text(str(message), PROGRESS_CHARS)
        if fraction is not None:
            share = float(fraction)
            # NaN compares false with everything and would go through min and max.
            fraction = min(max(share, 0.0), 1.0) if share == share else None
        self._tell(Progressed(call=self.call_id, message=text, fraction=fraction))

    def spend(self, amount: str, currency: str) -> None:
        """Report money spent, exactly: `ctx.spend("0.04", "USD")` (law 20 paid-once).

        Raises CallerError for what is no amount.
        """
        try:
            spent = money(amount, currency)
        except ValueError as problem:
            raise CallerError(f"spend(): {problem}") from None
        self._tell(Spent(call=self.call_id, money=spent))

    def note(self, kind: str, body: Mapping[str, object]) -> bool:
        """Keep a note in the run's history, in the name of this call; `kind` says what it is.

        False, and nothing is kept, once the call has its ending (law 3 one-ending). Raises
        CallerError for a kind that is no short text and a body that is no JSON object.
        """
        run = self.call_id.partition("/")[0]
        return self._tell(make_note(run, kind, body, self.call_id))

    def human(self, why: str = "") -> HumanWait:
        """A wait for a human: `with ctx.human("sudo password"):`, or `async with`.

        The deadline stands still inside (law 8 machine-time). The wait itself must listen to a
        stop, as every wait.
        """
        return HumanWait(self, safe_text(str(why), WHY_CHARS))

    def commit(self) -> CommitPoint:
        """The commit point: `with ctx.commit():`, or `async with`, around the one effect.

        Entering asks the gate once more and raises `Stopped` if the body must not go on; inside, a
        stop waits, within a bound (law 5 honest-effect). Leaving by an exception says that the
        effect was not done.
        """
        return CommitPoint(self)

    def _stop_event(self) -> threading.Event:
        with self._making:
            if self._event is None:
                self._event = threading.Event()
        if self._stopping:
            self._event.set()
        return self._event

    def _answer_of(self, question: asking.Question) -> str:
        if question.answer is not None:
            return question.answer
        if self._stopping:
            raise self._stopped()
        raise Unanswered("nobody answered the question in time")

    def _stopped(self) -> Stopped:
        return Stopped(f"call {self.call_id} was asked to stop")


class Context(BodyContext):
    """The context of a plain function, in a thread or a process."""

    __slots__ = ()

    def sleep(self, seconds: float) -> None:
        """Wait; when asked to stop, wake at once and raise `Stopped` (law 7 every-wait-listens)."""
        if self.wait_cancelled(seconds):
            raise self._stopped()

    def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """Wait until asked to stop, at most `timeout_s`; returns whether it was."""
        if self._stopping:
            return True
        return self._stop_event().wait(_wait_s(timeout_s))

    def ask(
        self,
        text: str,
        *,
        choices: Sequence[str] = (),
        secret: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """Ask a human and wait for the answer; the deadline stands still (law 8 machine-time).

        With `choices`, the answer is one of them. A `secret` answer is recorded nowhere. A stop
        withdraws the question and raises `Stopped` (law 7 every-wait-listens). Raises Unanswered
        after `timeout_s` seconds; None waits for as long as it takes.
        """
        limit_s = _wait_s(timeout_s)
        wake, wait = self._waiter()
        question = asking.ask(self, text, choices, secret, wake)
        try:
            if not wait(limit_s) and not question.withdraw():
                wait(asking.LAST_WORD_S)
        finally:
            question.close()
        return self._answer_of(question)

    def _waiter(self) -> tuple[Callable[[], None], Callable[[float | None], bool]]:
        """How to wake this body, from any thread, and how it waits; true once it was woken."""
        woken = threading.Event()
        return woken.set, woken.wait


class AsyncContext(BodyContext):
    """The context of an async function."""

    __slots__ = ("_sleepers",)

    def __init__(self, *, call_id: str, effect_key: str, tell: Callable[[Input], bool]) -> None:
        # Written out: one of these is made for every call.
        self.call_id = call_id
        self.effect_key = effect_key
        self._tell = tell
        self._stopping = False
        self._event: threading.Event | None = None
        self._sleepers: set[asyncio.Future[None]] | None = None

    def stop(self) -> None:
        """Ask the body to stop and wake whoever sleeps here, on its own loop."""
        if self._stopping:
            return
        super().stop()
        with self._making:
            sleepers = tuple(self._sleepers or ())
        for sleeper in sleepers:
            try:
                sleeper.get_loop().call_soon_threadsafe(_wake, sleeper)
            except RuntimeError:
                # Its loop is closed: nobody sleeps there any more.
                continue

    async def sleep(self, seconds: float) -> None:
        """Wait; when asked to stop, wake at once and raise `Stopped` (law 7 every-wait-listens)."""
        if await self.wait_cancelled(seconds):
            raise self._stopped()

    async def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """Wait until asked to stop, at most `timeout_s`; returns whether it was."""
        sleeper = asyncio.get_running_loop().create_future()
        with self._making:
            if self._sleepers is None:
                self._sleepers = set()
            self._sleepers.add(sleeper)
        try:
            # Looked at after registering: a stop in between would otherwise wake nobody.
            if not self._stopping:
                await asyncio.wait({sleeper}, timeout=_wait_s(timeout_s))
        finally:
            with self._making:
                self._sleepers.discard(sleeper)
            sleeper.cancel()
        return self._stopping

    async def ask(
        self,
        text: str,
        *,
        choices: Sequence[str] = (),
        secret: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """Ask a human and wait for the answer; see `Context.ask`."""
        limit_s, loop = _wait_s(timeout_s), asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(_wake, woken)
            except RuntimeError:
                # Its loop is closed: nobody waits there any more.
                return

        question = asking.ask(self, text, choices, secret, wake)
        try:
            await asyncio.wait({woken}, timeout=limit_s)
            if not woken.done() and not question.withdraw():
                await asyncio.wait({woken}, timeout=asking.LAST_WORD_S)
        finally:
            woken.cancel()
            question.close()
        return self._answer_of(question)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _wait_s(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if not seconds >= 0:
        raise CallerError(f"a wait takes 0 seconds or more, not {seconds!r:.40}")
    return min(seconds, SECONDS_MAX)


class _Block:
    """A block for `with` and `async with` alike; entering and leaving never wait."""

    __slots__ = ("_context",)

    def __init__(self, context: BodyContext) -> None:
        self._context = context

    def _enter(self) -> None:
        raise NotImplementedError

    def _leave(self, *, raised: bool) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(raised=kind is not None)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(raised=kind is not None)


class HumanWait(_Block):
    """The block of `ctx.human()`."""

    __slots__ = ("_why",)

    def __init__(self, context: BodyContext, why: str) -> None:
        super().__init__(context)
        self._why = why

    def _enter(self) -> None:
        self._context._tell(HumanBegan(call=self._context.call_id, why=self._why))

    def _leave(self, *, raised: bool) -> None:
        self._context._tell(HumanEnded(call=self._context.call_id))


class CommitPoint(_Block):
    """The block of `ctx.commit()`."""

    __slots__ = ()

    def _enter(self) -> None:
        context = self._context
        # The core is asked even when the flag is up: only its answer counts (law 1 one-door).
        if not context._tell(CommitEntered(call=context.call_id)):
            raise context._stopped()

    def _leave(self, *, raised: bool) -> None:
        context = self._context
        context._tell(CommitLeft(call=context.call_id, done=not raised))


def current() -> BodyContext:
    """The context of the body that runs here, for helpers deep inside it.

    Raises CallerError outside a body.
    """
    try:
        return _current.get()
    except LookupError:
        raise CallerError(
            "no tool body runs here: current() works inside a body and in what it calls; "
            "a thread that the body started itself needs contextvars.copy_context()"
        ) from None


def enter(context: BodyContext) -> None:
    """Make this the context of the body that runs here. For workers, inside the body's own
    `contextvars.Context`, so that nothing needs to be undone."""
    _current.set(context)
