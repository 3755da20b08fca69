"""Following one task of a remote agent: its stream where there is one, else by asking.

Theory of operation. One asyncio task, the follower, is the only one that talks to the agent about
the task, but for a cancel and the last look at the answer. It sends the message, reads what comes,
and goes on by itself after a lost connection: it looks at the task, then subscribes again. What it
knows is a `Status`; whoever asks for that waits here for news, for a bounded time. An agent that
needs input or authorisation gets it from a human through the call's own `ask`, whose answer goes
back as a message to the task.

A connection that is lost is no failure of the task before `lost_s` have passed; an answer without
sense is one after a few in a row. A stop is passed on until the agent has taken it: whether the
task is over, only the agent's word tells (law 5 honest-effect). Nothing here decides how a call
ends. Needs the SDK of the protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from a2a.types import (
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
)

from endstop.agents.agent import Failure, Patience, Status
from endstop.agents.errors import AgentError
from endstop.agents.remote_asking import Asker, message_to
from endstop.agents.remote_view import View
from endstop.agents.remote_wire import FINAL, Kind, Wire, WireError
from endstop.core.text import describe_error
from endstop.tools.context import AsyncContext

log = logging.getLogger("endstop.agents")

ONCE = "endstop/once"
"""In a message's metadata: one task of it, however often it comes. Others than ours ignore it."""
HOLD_S = 5.0
"""How long a question for the status waits for news, at most."""
IDLE_S = 60.0
"""How long a stream may be silent before the task is looked at."""
TOLD_EVERY_S = 0.2
"""How often progress is told, at most: a peer may say as much as it likes, our journal may not."""
STOPS_MAX = 5
"""How often a cancel is sent to an agent that refuses it; to one out of reach, on and on."""
_LOST = frozenset({Kind.UNSENT, Kind.UNREACHABLE, Kind.SILENT})
_UNKNOWN = frozenset({Kind.UNREACHABLE, Kind.SILENT, Kind.GARBAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How an agent is followed: see `RemoteAgent`."""

    name: str
    patience: Patience
    lost_s: float
    idle_s: float = IDLE_S
    streaming: bool | None = None


class Following:
    """One task of a remote agent, as far as it is known; belongs to one loop."""

    def __init__(self, wire: Wire, terms: Terms, ctx: AsyncContext | None) -> None:
        self.view = View(terms.name)
        self.loop = asyncio.get_running_loop()
        self._wire = wire
        self._terms = terms
        self._ctx = ctx
        probe_s = terms.patience.probe_s
        self._asker = Asker(terms.name, self.view, wire, ctx, probe_s, self._send)
        self._problem: WireError | None = None
        self._raised = 0
        self._lost_at: float | None = None
        self._nonsense = 0
        self._told_at = 0.0
        self._stopping = False
        self._refusals = 0
        self._passing_on = asyncio.Lock()
        self._news = asyncio.Event()
        self._taken: asyncio.Future[dict[str, Any]] = self.loop.create_future()
        self._follower: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    # --- what the conversation asks ---------------------------------------------------------------

    async def submit(self, prompt: str, message_id: str, *, once: bool = False) -> dict[str, Any]:
        """Send the prompt and return the reference; `once` says that its id has no other prompt.

        Raises AgentError.
        """
        message = message_to(self.view, prompt, message_id)
        if once:
            message.metadata.update({ONCE: True})
        self._begin(message)
        try:
            return await asyncio.shield(self._taken)
        finally:
            if not self._taken.done():
                self.close()

    def resume(self, task_id: str, context_id: str) -> None:
        """Follow a task that was submitted before."""
        self.view.task_id, self.view.context_id = task_id, context_id
        self._taken.cancel()
        self._begin(None)

    async def status(self) -> Status | Failure:
        """What is known of the task, after news of its end or some seconds without.

        Raises WireError where nothing is known any more.
        """
        # A problem is told at once, but not over and over again.
        told = self._problem is not None and self._raised < self._terms.patience.probes
        if not self.view.over and not told:
            if self._problem is not None:
                self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(HOLD_S, self._terms.patience.probe_s / 2)):
                    await self._news.wait()
        if self.view.over:
            return self.view.failure or self.view.status
        if self._problem is not None:
            self._raised += 1
            raise self._problem
        return self.view.status

    async def cancel(self) -> None:
        """Ask the agent to cancel the task; asked again where it did not take it.

        Raises WireError where the agent did not take it.
        """
        self._stopping = True
        try:
            await self._pass_on_stop(self._terms.patience.cancel_s)
        except WireError:
            # The follower tries again, now and not when its stream ends.
            if self._reading is not None:
                self._reading.cancel()
            raise

    def close(self) -> None:
        """Follow no more; the task is left as it is. Never waits."""
        if self._follower is not None:
            self._follower.cancel()

    @property
    def closed(self) -> bool:
        """Whether nobody follows the task any more."""
        return self._follower is None or self._follower.done()

    # --- the follower -----------------------------------------------------------------------------

    def _begin(self, first: Message | None) -> None:
        assert self._follower is None, "one follower for one task"
        self._follower = self.loop.create_task(self._follow(first))

    async def _follow(self, message: Message | None) -> None:
        """Until the task is over; never raises but for a cancel."""
        view, patience = self.view, self._terms.patience
        pause_s = patience.every_s
        try:
            if message is not None and not await self._send_first(message):
                return
            while not view.over:
                view.moved = False
                await self._round()
                if view.moved:
                    pause_s = patience.every_s
                elif not view.over:
                    await asyncio.sleep(pause_s)
                    pause_s = min(max(2 * pause_s, 0.05), patience.most_every_s)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear it
            words = f"its task could not be followed: {describe_error(error)}"
            self._give_up(WireError(Kind.GARBAGE, words))
            if not self._taken.done():
                self._taken.set_exception(AgentError(words))
        finally:
            self._news.set()
            if not self._taken.done():
                self._taken.cancel()

    async def _send_first(self, message: Message) -> bool:
        """Send the prompt; true once the agent has taken it."""
        until = self.loop.time() + self._terms.patience.submit_s
        pause_s = 0.05
        while True:
            try:
                await self._send(message)
                if self._taken.done():
                    return True
                error = WireError(Kind.GARBAGE, "it answered neither with a task nor a message")
            except WireError as failed:
                if self._taken.done():
                    # The task is there: what was lost is only the connection.
                    self._note_trouble(failed)
                    return True
                error = failed
            late = self.loop.time() + pause_s > until
            # Where nothing was sent, another try cannot make a second task (law 10 no-blind-retry).
            if error.kind is not Kind.UNSENT or self._is_stopped or late:
                if error.kind in _UNKNOWN and self._is_stopped:
                    # It may be at work, and cannot be named: this is no proof that it stopped.
                    await asyncio.sleep(self._terms.patience.linger_s)
                self._taken.set_exception(self._unsubmitted(error))
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    @property
    def _is_stopped(self) -> bool:
        """Whether a stop is due, told to this follower or to one before it."""
        return self._stopping or (self._ctx is not None and self._ctx.cancelled)

    def _unsubmitted(self, error: WireError) -> AgentError:
        unknown = "; whether it took the task is not known" if error.kind in _UNKNOWN else ""
        return AgentError(f"{error}{unknown}")

    async def _round(self) -> None:
        """Look at the task, then do what its state asks for: pass on a stop, ask, or read on."""
        view, probe_s = self.view, self._terms.patience.probe_s
        owed = False
        try:
            if self._is_stopped:
                try:
                    await self._pass_on_stop(probe_s)
                except WireError:
                    owed = True
            view.apply_task(await self._wire.get(view.task_id, probe_s))
            self._all_is_well()
            if view.over or owed:
                # A stop that is owed comes before a stream that may say nothing for long (law 7
                # every-wait-listens): the line may have come back just after it was tried.
                return
            if view.asks and not self._is_stopped:
                self._stopping = not await self._asker.ask()
            elif not await self._asker.send_again() and await self._streams():
                await self._subscribe(probe_s)
        except WireError as error:
            self._note_trouble(error)
        except Exception as error:  # noqa: BLE001 - a stop that is due must not go down with it
            words = f"its task could not be followed: {describe_error(error)}"
            self._note_trouble(WireError(Kind.GARBAGE, words))

    async def _subscribe(self, first_s: float) -> None:
        """Read on where there is a stream; where there is none just now, there is the next look."""
        idle_s = self._terms.idle_s
        try:
            await self._read(
                self._wire.subscribe(self.view.task_id, first_s=first_s, idle_s=idle_s)
            )
        except WireError as error:
            # Such as a task that came to rest, or to an end, in this moment.
            if error.kind not in (Kind.UNSUPPORTED, Kind.REFUSED):
                raise

    async def _streams(self) -> bool:
        if self._terms.streaming is not None:
            return self._terms.streaming
        card = await self._wire.card(self._terms.patience.submit_s)
        return card.capabilities.streaming

    async def _send(self, message: Message) -> None:
        """Send a message and read what comes of it."""
        request = SendMessageRequest(
            message=message, configuration=SendMessageConfiguration(return_immediately=True)
        )
        stream = await self._streams()
        first_s, idle_s = self._terms.patience.submit_s, self._terms.idle_s
        await self._read(self._wire.send(request, stream=stream, first_s=first_s, idle_s=idle_s))

    async def _read(self, answers: AsyncGenerator[StreamResponse]) -> None:
        """Take in what comes until there is no more, or the task waits for somebody.

        In a task of its own, so that a stop need not wait for a stream that says nothing.
        """
        reading = self._reading = self.loop.create_task(self._take_in(answers))
        try:
            await asyncio.wait({reading})
        finally:
            self._reading = None
            reading.cancel()
        if not reading.cancelled():
            reading.result()

    async def _take_in(self, answers: AsyncGenerator[StreamResponse]) -> None:
        came = False
        try:
            async with aclosing(answers):
                async for one in answers:
                    came = True
                    if self._took_last(one):
                        return
        except WireError as error:
            if not came or error.kind not in FINAL:
                raise
            # A last frame that says why the stream ends: the task goes on.
            raise WireError(Kind.UNREACHABLE, str(error)) from error

    def _took_last(self, one: StreamResponse) -> bool:
        """Take in one event; true where no further one is waited for."""
        before = self.view.shown
        self.view.apply(one)
        self._all_is_well()
        reference = self.view.reference
        if reference is not None and not self._taken.done():
            self._taken.set_result(reference)
        if self.view.over:
            self._news.set()
        elif self.view.shown != before and not self.view.asks:
            self._tell_progress(self.view.shown[3])
        return self.view.over or self.view.asks

    def _tell_progress(self, words: str) -> None:
        """What the agent says of its work; not more often than anybody could read."""
        now = self.loop.time()
        if words and self._ctx is not None and now >= self._told_at + TOLD_EVERY_S:
            self._told_at = now
            self._ctx.progress(words)

    def _all_is_well(self) -> None:
        self._lost_at, self._nonsense, self._raised, self._problem = None, 0, 0, None
        if self.view.over:
            self._news.set()
        else:
            self._news.clear()

    def _note_trouble(self, error: WireError) -> None:
        """A failed round: forgiven for a while where it may pass."""
        log.debug("agent %s, task %s: %s", self._terms.name, self.view.task_id, error)
        now = self.loop.time()
        if error.kind in FINAL:
            self._give_up(error)
        elif error.kind in _LOST:
            if self._lost_at is None:
                self._lost_at = now
            if now - self._lost_at >= self._terms.lost_s:
                self._give_up(error)
        else:
            self._nonsense += 1
            if self._nonsense >= self._terms.patience.probes:
                self._give_up(error)

    def _give_up(self, error: WireError) -> None:
        """Nothing is known any more; the follower goes on all the same, for a stop may follow."""
        self._problem = error
        self._news.set()

    # --- stopping ---------------------------------------------------------------------------------

    async def _pass_on_stop(self, limit_s: float) -> None:
        # One at a time: what one of two has brought, the other need not bring again.
        async with self._passing_on:
            if not self.view.over and self.view.task_id and self._refusals < STOPS_MAX:
                await self._pass_on(limit_s)

    async def _pass_on(self, limit_s: float) -> None:
        view = self.view
        try:
            view.apply_task(await self._wire.cancel(view.task_id, limit_s))
            # Taken: asking again would say nothing new.
            self._refusals = STOPS_MAX
        except WireError as error:
            if error.kind not in _LOST:
                self._refusals += 1
            if error.kind is not Kind.NOT_CANCELABLE:
                raise
            # It is over already, or the agent will not stop it: its state tells which.
            view.apply_task(await self._wire.get(view.task_id, limit_s))
        if view.over:
            self._news.set()
