"""One body in a runner: the claim, the run, and how it ended, as one frame.

Nothing that a body raises or returns may leave here but as bounded data (law 19 any-payload):
SystemExit and KeyboardInterrupt end one call, a result that has no JSON form is named by its path.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from endstop.core.inputs import CommitEntered, Input
from endstop.core.payload import Unserialisable, to_data
from endstop.core.terms import How
from endstop.core.text import describe_error
from endstop.errors import Stopped
from endstop.tools.context import AsyncContext, Context, enter
from endstop.work.runner import Channel, Loaded, describe
from endstop.work.telling import encode


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
        make = AsyncContext if tool.is_async else Context
        self.ctx = make(call_id=self.call, effect_key=frame["effect_key"], tell=self._tell)
        if tool.context_param is not None:
            self._kwargs[tool.context_param] = self.ctx
        context.run(enter, self.ctx)
        self._active = False
        self._terminated = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def _tell(self, told: Input) -> bool:
        frame = {**encode(told), "call": self.call}
        if isinstance(told, CommitEntered):
            return bool(self._channel.ask(frame)["yes"])
        self._channel.send(frame)
        return True

    def stop(self) -> None:
        """Set the context, and cancel an async body once; the tool's own interrupt comes too."""
        already, _ = self.ctx.cancelled, self.ctx.stop()
        if already:
            return
        self._cancel_task()
        if self._tool.interrupt is not None:
            try:
                self._tool.interrupt(self.ctx)
            except BaseException as error:
                print(f"the interrupt of {self._tool.name!r} failed: {describe(error)}")  # noqa: T201

    def terminate(self) -> None:
        """SIGTERM arrived on the main thread: raise into a sync body, once."""
        if not self._active or self._terminated:
            return
        self._terminated = True
        self.ctx.stop()
        if self._tool.is_async:
            self._cancel_task()
            return
        raise Stopped(f"call {self.call} was told to end")

    def _cancel_task(self) -> None:
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

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
            stopped = isinstance(error, Stopped | asyncio.CancelledError) and self.ctx.cancelled
            end["how"] = How.STOPPED if stopped else How.RAISED
            end["error"] = describe_error(error) if stopped else describe(error)
            end["output"] = self._output_of(error)
        return end

    def _raised_in_body(self, error: BaseException) -> bool:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is Body._run.__code__:
                return True
            trace = trace.tb_next
        return False

    def _output_of(self, error: BaseException) -> Any:
        try:
            return to_data(getattr(error, "output", None), where="output")
        except BaseException:
            return None

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
            if self.ctx.cancelled:
                self._task.cancel()
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
