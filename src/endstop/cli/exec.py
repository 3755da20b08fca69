"""The command line's `exec`: one model reply, its calls run, watched, stopped and answered.

Three threads, so that none can hold up another. The runtime runs on a driver thread. The main
thread shows what is recorded and takes keys. A signal only starts a thread that cancels, so a
terminal that does not scroll, or a tool that blocks its loop, cannot keep Ctrl-C from working
(laws 6 bounded-stop and 18 audience-free). What is printed at the end comes from the results alone.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, Self

from endstop.adapters.reply import Reply
from endstop.cli.ask import Desk
from endstop.cli.board import Board, Row
from endstop.cli.live import View
from endstop.cli.output import leave_terminal
from endstop.core import events as e
from endstop.core.terms import Isolation, Mode, Reason
from endstop.errors import EndstopError, NotFound
from endstop.run.blocking import BlockingRun, BlockingRuntime
from endstop.run.results import BatchResult
from endstop.run.runtime import Runtime
from endstop.work.process import ProcessWorker

EXIT_OK = 0
EXIT_NOT_ALL = 1
EXIT_USAGE = 2
EXIT_JOURNAL = 3
EXIT_CTRL_C = 130
EXIT_HANGUP = 129
EXIT_TERM = 143

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
"""What a human calls the signals that stop a run."""

LAST_EVENTS_S = 0.5
"""How long the view waits for the last events of a batch that is over."""

_EXIT_BY_SIGNAL = {
    signal.SIGINT: EXIT_CTRL_C,
    signal.SIGTERM: EXIT_TERM,
    signal.SIGHUP: EXIT_HANGUP,
}
_REASON = {
    signal.SIGINT: Reason.CANCELLED_BY_USER,
    signal.SIGTERM: Reason.SHUTDOWN,
    signal.SIGHUP: Reason.SHUTDOWN,
}


@dataclass(frozen=True, slots=True)
class Pressed:
    """A signal has come, and the cancel that it means is under way."""

    number: int
    times: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the terminal."""

    name: str


@dataclass(frozen=True, slots=True)
class Over:
    """The batch is over: its results, or what the driver raised."""

    results: BatchResult | None
    error: Exception | None


Message = e.Event | Pressed | Key | Over
# SimpleQueue: its `put` may be called in a signal handler that has interrupted another `put`.
Inbox = queue.SimpleQueue[Message]


class Signals:
    """Turns SIGINT, SIGTERM and SIGHUP into stops while it is entered; a second one kills.

    The handler only starts a thread: it may interrupt the main thread anywhere, also where that
    holds a lock which a cancel needs. Once all is over, the impatient second press must not tear
    the answer that is being written; the third ends the program.
    """

    def __init__(self, stop: Callable[[Reason, Mode], object], inbox: Inbox) -> None:
        self.first: int | None = None
        self.over = False
        self._times = 0
        self._stop = stop
        self._inbox = inbox
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _REASON:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # Started by nohup: it is to outlive its terminal.
            self._before[number] = signal.signal(number, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        self._times += 1
        if number == signal.SIGHUP:
            leave_terminal()
        if self.over:
            if self._times > 2:
                raise KeyboardInterrupt
            return
        if self.first is None:
            self.first = number
        mode = Mode.INTERRUPT if self._times == 1 else Mode.KILL
        reason = _REASON[signal.Signals(number)]
        # First, so that it is read before the end that it brings about.
        self._inbox.put(Pressed(number, self._times))
        threading.Thread(
            target=self._stop, args=(reason, mode), name="endstop-interrupt", daemon=True
        ).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run on the command line came out."""

    results: BatchResult | None
    error: Exception | None
    signal: int | None

    @property
    def exit_code(self) -> int:
        """See `endstop exec --help`."""
        if self.results is None:
            return EXIT_JOURNAL
        if self.signal is not None:
            return _EXIT_BY_SIGNAL[signal.Signals(self.signal)]
        return EXIT_OK if all(result.ok for result in self.results) else EXIT_NOT_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the batch is run; see `Runtime.execute`."""

    parallel: int | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    approve_all: bool = False


class Driven(Protocol):
    """A run of either driver, as far as a session needs it."""

    @property
    def id(self) -> str: ...
    def cancel(self, reason: Reason, mode: Mode) -> object: ...
    def close(self) -> None: ...


class Session:
    """One run on one runtime, with whoever watches."""

    run: Driven

    def __init__(self, runtime: Runtime | BlockingRuntime, terms: Terms) -> None:
        self.runtime = runtime
        self.terms = terms
        self.board = Board()
        self.inbox: Inbox = queue.SimpleQueue()
        self.began = time.monotonic()
        runtime.observe(self.inbox.put)
        self.run = self.open()

    def open(self) -> Driven:
        """The run that this is about."""
        raise NotImplementedError

    def work(self) -> BatchResult:
        """Wait for the answers of all its calls; on a thread of its own."""
        raise NotImplementedError

    def signals(self) -> Signals:
        """What turns signals into stops of this run."""
        return Signals(self._stop, self.inbox)

    def execute(self, signals: Signals, view: View, desk: Desk | None) -> Outcome:
        """Run all calls to their end, whatever comes in between."""
        threading.Thread(target=self._drive, name="endstop-driver", daemon=True).start()
        view.start()
        try:
            over = self._watch(view, desk)
        finally:
            signals.over = True
            if desk is not None:
                desk.close()
            view.close()
        return Outcome(results=over.results, error=over.error, signal=signals.first)

    def _drive(self) -> None:
        try:
            results = self.work()
            # There is no second reply: the run ends with its batch, and not when all is printed.
            self.run.close()
        except Exception as error:  # noqa: BLE001 - told by the main thread, which waits for it
            self.inbox.put(Over(None, error))
        else:
            self.inbox.put(Over(results, None))

    def _stop(self, reason: Reason, mode: Mode) -> None:
        try:
            self.run.cancel(reason, mode)
        except NotFound:
            # The run was over and forgotten before the signal came.
            return

    def _watch(self, view: View, desk: Desk | None) -> Over:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                self.board.look(self.runtime.calls())
                view.refresh(time.monotonic())
                due = time.monotonic() + view.refresh_s
            try:
                message = self.inbox.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                continue
            match message:
                case Over():
                    self._show_rest(view)
                    return message
                case Pressed():
                    view.say(self._said_of_stop(message))
                    view.refresh(time.monotonic())
                case Key(name=name):
                    if desk is not None:
                        desk.key(name)
                    due = 0.0
                case _:
                    self._show(message, view, desk)

    def _show(self, event: e.Event, view: View, desk: Desk | None) -> None:
        now = time.monotonic()
        row = self.board.apply(event, now)
        if row is None:
            return
        if isinstance(event, e.ApprovalAsked):
            if self.terms.approve_all:
                # Somebody else may have answered, and the run may be over and forgotten.
                with suppress(NotFound):
                    self.runtime.approve(event.call, by="--yes")
            elif desk is None:
                view.say(f"call #{row.number} {row.tool!r} needs approval: {self._how(event)}")
        if isinstance(event, e.QuestionAsked) and desk is None:
            self._unheard(event, row, view)
        view.changed(row, now)
        if desk is not None:
            desk.changed(row, approvals=not self.terms.approve_all)

    def _unheard(self, event: e.QuestionAsked, row: Row, view: View) -> None:
        """A body asks where there is no terminal. What nobody can answer would never end."""
        asks = f"call #{row.number} {row.tool!r} asks a human"
        if hasattr(self.runtime.engine.journal, "inbox"):
            view.say(f"{asks}: endstop respond {event.question} in another terminal")
            return
        view.say(f"{asks}, and there is no terminal to ask on: it is stopped; run it in one")
        with suppress(NotFound):
            self.runtime.cancel(event.call)

    def _how(self, asked: e.ApprovalAsked) -> str:
        """How a call can be approved where there is no terminal to ask on."""
        if not hasattr(self.runtime.engine.journal, "inbox"):
            return "there is no terminal to ask on; run it in one, or approve every call with --yes"
        if asked.expires_s is not None and asked.expires_s <= 0:
            return (
                "there is no terminal to ask on; run it in one, give --approval-timeout to answer "
                "from another one, or approve every call with --yes"
            )
        return f"see endstop approvals, and endstop approve {asked.call}"

    def _show_rest(self, view: View) -> None:
        """The last events may still be coming: observers are told on the thread that recorded."""
        while self.board.open:
            try:
                message = self.inbox.get(timeout=LAST_EVENTS_S)
            except queue.Empty:
                return
            match message:
                case Over() | Key() | Pressed():
                    continue
                case _:
                    self._show(message, view, None)

    def _said_of_stop(self, pressed: Pressed) -> str:
        name = NAMES[signal.Signals(pressed.number)]
        if pressed.times > 1:
            return f"{name} again: killing what still runs, without grace"
        left = len(self.board.open)
        calls = "1 call" if left == 1 else f"{left} calls" if left else "the run"
        return f"{name}: stopping {calls}; {name} again kills now"

    def close(self) -> None:
        """Let go of everything; waits, bounded, until the worker processes are gone."""
        worker = self.runtime.engine.workers.get(Isolation.PROCESS)
        self.let_go()
        if isinstance(worker, ProcessWorker):
            worker.join(self.runtime.config.timeouts.kill_s + 1.0)

    def let_go(self) -> None:
        """Close the runtime, in its own way."""
        assert isinstance(self.runtime, BlockingRuntime), "other drivers close in another way"
        self.runtime.close()


class Answering(Session):
    """A session that runs the calls of one reply."""

    run: BlockingRun

    def __init__(self, runtime: BlockingRuntime, reply: Reply, terms: Terms) -> None:
        self.reply = reply
        self._blocking = runtime
        super().__init__(runtime, terms)

    def open(self) -> BlockingRun:
        """See `Session.open`."""
        return self._blocking.run()

    def work(self) -> BatchResult:
        """See `Session.work`."""
        return self.run.execute(
            self.reply.calls,
            parallel=self.terms.parallel,
            timeout_s=self.terms.timeout_s,
            deadline_s=self.terms.deadline_s,
        )


def describe_failure(error: Exception | None) -> str:
    """Why a run gave no results, in the one style of errors."""
    if isinstance(error, EndstopError):
        return str(error)
    return f"the run failed unexpectedly: {error!r}; this is a bug, please report it"
