"""One body in a runner: the claim, the run, and how it ended, as one frame.

Nothing that a body raises or returns may leave here but as bounded data (law 19 any-payload):
SystemExit and KeyboardInterrupt end one call, a result that has no JSON form is named by its path.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from endstop.core.inputs import CommitEntered, Input, Note, QuestionBegan, QuestionLeft
from endstop.core.payload import Unserialisable, to_data
from endstop.core.terms import How
from endstop.errors import CallerError, Stopped
from endstop.tools.context import AsyncContext, Context, enter
from endstop.work.ending import output_of, words_of
from endstop.work.runner import Channel, Loaded, describe
from endstop.work.telling import encode
from endstop.work.wire import FrameTooLong


class _Heard:
    """Notes when a body notices that it shall stop: it cooperates, and has its whole grace."""

    on_heard: Callable[[], None]
    _stopping: bool

    @property
    def cancelled(self) -> bool:
        if self._stopping:
            self.on_heard()
        return self._stopping

    def _stopped(self) -> Stopped:
        self.on_heard()
        return super()._stopped()  # type: ignore[misc, no-any-return]


class _Context(_Heard, Context):
    def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        stopped = super().wait_cancelled(timeout_s)
        if stopped:
            self.on_heard()
        return stopped


class _AsyncContext(_Heard, AsyncContext):
    # Its body hears of a stop when its task is cancelled.
    pass


class Body:
    """One call between its claim and its end. `stop` comes from another thread."""

    def __init__(
        self,
        channel: Channel,
        frame: dict[str, Any],
        tool: Loaded,
        context: contextvars.Context,
    ) -> None:
        self.call: str = frame["call"]
        self._channel = channel
        self._tool = tool
        self._context = context
        self._kwargs = dict(tool.kwargs)
        make = _AsyncContext if tool.is_async else _Context
        self.ctx = make(call_id=self.call, effect_key=frame["effect_key"], tell=self._tell)
        self.ctx.on_heard = self._hear
        if tool.context_param is not None:
            self._kwargs[tool.context_param] = self.ctx
        context.run(enter, self.ctx)
        self._active = False
        self._asked = False
        self._heard = False
        self._terminated = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def _tell(self, told: Input) -> bool:
        frame = {**encode(told), "call": self.call}
        if isinstance(told, Note):
            try:
                return bool(self._channel.ask(frame)["yes"])
            except FrameTooLong as error:
                raise CallerError(f"note(): the body {error}") from None
        if isinstance(told, CommitEntered | QuestionBegan | QuestionLeft):
            return bool(self._channel.ask(frame)["yes"])
        self._channel.send(frame)
        return True

    def _hear(self) -> None:
        if not self._heard:
            self._heard = True
            self._channel.send({"t": "heard", "call": self.call})

    def stop(self) -> None:
        """Set the context, and cancel an async body once; the tool's own interrupt comes too."""
        if self._asked:
            return
        self._asked = True
        self.ctx.stop()
        self._cancel_task()
        if self._tool.interrupt is not None:
            try:
                self._tool.interrupt(self.ctx)
            except BaseException as error:
                # Among what the body printed, which is shown if it does not end well.
                sys.stderr.write(f"the interrupt of {self._tool.name!r}: {describe(error)}\n")

    def terminate(self) -> None:
        """SIGTERM arrived on the main thread: raise into a sync body, once.

        Not into one that has noticed the stop: what it does now is its cleaning up.
        """
        if not self._active or self._terminated or self._heard:
            return
        self._terminated = True
        self._asked = True
        self.ctx.stop()
        if self._tool.is_async:
            self._cancel_task()
            return
        raise Stopped(f"call {self.call} was told to end")

    def _cancel_task(self) -> None:
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel_now)

    def _cancel_now(self) -> None:
        # Once: a second cancel would break off the cleaning up that the first one began.
        if self._task is not None and not self._heard:
            self._hear()
            self._task.cancel()

    def run(self) -> dict[str, Any] | None:
        """Claim, run, and say how it ended; None if the claim was refused and nothing ran."""
        claim = {"t": "claim", "call": self.call}
        if not self._channel.ask(claim)["yes"]:
            return None
        end: dict[str, Any] = {"t": "end", "call": self.call, "value": None, "error": None}
        try:
            try:
                self._active = True
                value = self._context.run(self._run)
            finally:
                self._active = False
            end["value"], end["how"] = to_data(value), How.RETURNED
        except Unserialisable as error:
            raised_inside = self._raised_in_body(error)
            end["how"] = How.RAISED if raised_inside else How.UNSERIALISABLE
            end["error"] = describe(error) if raised_inside else str(error)
        except BaseException as error:
            stopped = isinstance(error, Stopped | asyncio.CancelledError) and self._asked
            # Else the value raised while it was read: the body has returned all the same (law 5).
            raised = How.RAISED if self._raised_in_body(error) else How.UNSERIALISABLE
            end["how"] = How.STOPPED if stopped else raised
            end["error"] = words_of(error) if stopped else describe(error)
            end["output"] = output_of(error)
        return end

    def _raised_in_body(self, error: BaseException) -> bool:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is Body._run.__code__:
                return True
            trace = trace.tb_next
        return False

    def _run(self) -> Any:
        function: Callable[..., Any] = self._tool.fn
        if not self._tool.is_async:
            return function(**self._kwargs)
        return self._run_async(function(**self._kwargs))

    def _run_async(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """As asyncio.run does, but without joining threads that the body left in the executor."""
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            self._task = loop.create_task(coroutine)
            self._loop = loop
            if self._asked:
                self._cancel_task()
            try:
                return loop.run_until_complete(self._task)
            finally:
                left = asyncio.all_tasks(loop)
                for task in left:
                    task.cancel()
                if left:
                    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
                loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
