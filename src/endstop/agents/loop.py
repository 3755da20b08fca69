"""Agents: the loop: model, tools, model, until the model is done, a limit is reached, or a stop.

Theory of operation
-------------------
Whatever happens in the conversation is an event of the run before the loop acts on it: what a user
says and what the model replies are notes, calls are calls. The loop reads them back (`transcript`)
and does the next step; it keeps nothing beside them that a successor would miss. So a loop that is
killed at any point is continued by another that reads the same journal (law 16 survives-restart).

A cancel of the run, by whomever, from any thread or process, closes the model's stream at once, and
the engine lets nothing start: a reply that is there all the same is dropped, its calls are never
handed in, and no further reply is asked for (law 1 one-door). The loop decides no ending of a call.

What a user says "now" while calls run drains their batch: what has not begun is answered as
superseded, what runs may finish. It never cancels the run.

The seam for whoever drives runs of their own
---------------------------------------------
`Loop(runtime, run, agent)` works on a run that is there and reads what is recorded of it, so it
takes up a resumed run as well as a fresh one. `say` and `steer` may be called from any thread,
before and while it is driven. `drive()` works until the conversation rests, a limit is reached, the
model fails or the run is over, and can be called again after the next `say`. It never closes the
run unless called with `close=True`. `on_event` is shown `Began`, `Spoke`, `Replied` and `Voided` as
they happen, on the loop's thread; what it raises is logged and changes nothing (law 18).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from endstop.adapters.reply import read_reply
from endstop.agents import limits, notes
from endstop.agents.asking import AGAIN_S, OF_A_MOMENT, Asking
from endstop.agents.endings import (
    Began,
    LoopResult,
    OnEvent,
    Replied,
    Spoke,
    Voided,
    result_of,
    showing,
)
from endstop.agents.models.protocol import Ask, Delta, ModelError, ModelReply
from endstop.agents.news import News
from endstop.agents.transcript import Step, Transcript
from endstop.core import inputs as i
from endstop.core.budget import Budget
from endstop.core.inputs import Note
from endstop.core.noting import make_note
from endstop.core.terms import Mode, Outcome, Reason, Refusal, ToolCall
from endstop.errors import CallerError, JournalError, NotFound, StaleWriter
from endstop.run.base import BatchTerms
from endstop.run.handles import Run
from endstop.run.runtime import Runtime

if TYPE_CHECKING:
    from endstop.agents.model_agent import ModelAgent


class Loop:
    """One conversation of an agent, driven on one run; see the seam above."""

    def __init__(
        self, runtime: Runtime, run: Run, agent: ModelAgent, *, on_event: OnEvent | None = None
    ) -> None:
        if not isinstance(runtime, Runtime):
            raise CallerError(
                "a loop runs on the async Runtime; make one with `async with Runtime()`"
            )
        self.runtime = runtime
        self.run = run
        self.agent = agent
        self.result: LoopResult | None = None
        self.transcript = Transcript(agent.model.format)
        self._engine = runtime.engine
        self._show = showing(on_event)
        self._seq = 0
        self._used_s = 0.0
        self._breaks = 0
        self._cancelled = False
        self._news: News | None = None
        # What was said before this loop is known to whoever watches.
        self._shown = sys.maxsize
        self._sync()
        self._shown = self.transcript.turns
        self._used_s = self.transcript.ran_s

    # -- what a user says

    def say(self, text: str, **more: Any) -> bool:
        """Say something that the model hears once it has nothing else to do; from any thread.

        Recorded when this returns true; false where the run is over. `more` is kept in the note
        and not shown to the model. Raises CallerError for what is no text, or blank.
        """
        return self._user(text, notes.When.AFTER, more)

    def steer(self, text: str, **more: Any) -> bool:
        """Say something that the model hears next; from any thread. See `say`.

        Calls that have not begun are answered as superseded; those that run may finish. It is no
        cancel.
        """
        return self._user(text, notes.When.NOW, more)

    def _user(self, text: str, when: notes.When, more: dict[str, Any]) -> bool:
        return self.run.note(notes.USER, notes.user_note(text, when, more))

    # -- driving

    async def drive(self, *, close: bool = False) -> LoopResult:
        """Work until there is nothing left to do, a limit is reached, or the run is over.

        With `close`, the run is closed with that, and nothing more can be said. If the task that
        awaits this is cancelled, so is the run, and CancelledError is raised when its calls are
        over. Raises StaleWriter where another driver took the run, and RunSuspended where the run
        was let go.
        """
        if self.run.id in self.runtime.driven:
            raise CallerError(f"run {self.run.id!r} is driven already; say() and steer() reach it")
        if self._news is None:
            self._news = News(self.runtime, self.run.id)
        self._news.listen()
        self.runtime.driven[self.run.id] = False
        try:
            while await self._step(close):
                pass
            return await self._end()
        finally:
            self._news.close()
            self.runtime.driven.pop(self.run.id, None)

    async def _step(self, close: bool) -> bool:
        """Do what comes next; false when there is nothing left."""
        self._sync()
        if self._over():
            return False
        if self.transcript.stopped is not None:
            # Recorded by a loop that came no further than this.
            return self._close(Outcome.FAILED, close)
        match self.transcript.step:
            case Step.SUBMIT:
                # A reply that somebody recorded without its calls.
                assert self.transcript.turn is not None, "a reply comes before its calls"
                await self._hand_in(self.transcript.turn.reply.calls, self.transcript.unheard)
            case Step.WAIT:
                await self._batch(self.run.finish())
            case Step.ASK:
                why = self._forbidden()
                if why is not None:
                    return self._give_up(notes.LIMIT, why, close)
                why = limits.broken(self.agent.limits, self.transcript) or await self._ask()
                if why is not None:
                    return self._give_up(notes.FAILURE, why, close)
            case Step.REST:
                return self._close(Outcome.SUCCEEDED, close)
        return True

    def _give_up(self, kind: str, why: limits.Why, close: bool) -> bool:
        self.run.note(kind, notes.end_note(*why))
        self._sync()
        return self._close(Outcome.FAILED, close)

    def _close(self, outcome: Outcome, close: bool) -> bool:
        """Close the run, if that is wanted; true where something was said in this moment."""
        if not close or self._over():
            return False
        # Only what was seen is over: what somebody says just now is recorded before, or refused.
        run = self._engine.state.runs.get(self.run.id)
        # Where the journal is ahead of this driver somebody else writes: the append will tell.
        at_seq = self._seq if run is not None and run.seq >= self._seq else None
        closing = i.CloseRun(run=self.run.id, outcome=outcome, at_seq=at_seq)
        if not self._engine.tell(closing) and not self._over():
            return True
        try:
            self.run.close()
        finally:
            self._sync()
        if self.transcript.closing is None and self.transcript.ended is None:
            raise StaleWriter(f"run {self.run.id!r} was taken over by another driver")
        return False

    def _over(self) -> bool:
        """Whether the run takes nothing more of this loop."""
        run = self._engine.state.runs.get(self.run.id)
        return (
            self._cancelled
            or run is None
            or run.cancelled is not None
            or run.closing
            or run.suspending
            or run.ended
            or run.fenced
        )

    def _sync(self) -> None:
        """Read what is recorded since the last time."""
        for recorded in self._engine.journal.read(self.run.id, self._seq):
            assert recorded.seq == self._seq + 1, "a run has no gap"
            self._seq = recorded.seq
            self.transcript.apply(recorded.event)
        self.transcript.terminate(self.agent.offered)
        turn, number = self.transcript.turn, self.transcript.turns
        if turn is not None and number > self._shown:
            self._shown = number
            said, calls = turn.reply.text, len(turn.reply.calls)
            self._show(Replied(run=self.run.id, turn=number, text=said, calls=calls))

    # -- limits

    def _forbidden(self) -> limits.Why | None:
        return limits.reached(self.agent.limits, self.transcript, self._budget(), self._used_s)

    def _budget(self) -> Budget | None:
        run = self._engine.state.runs.get(self.run.id)
        return None if run is None else run.budget

    def _left_s(self) -> float | None:
        """What is left of the loop's time, and a little where nothing is: it is looked at next."""
        wall_s = self.agent.limits.wall_s
        return None if wall_s is None else max(wall_s - self._used_s, 0.001)

    # -- the model's turn

    async def _ask(self) -> tuple[str, str] | None:
        """Ask the model once; what is wrong and why, where it is not to be asked again."""
        heard = self.transcript.hears()
        ask = Ask(
            messages=self.transcript.asked(heard),
            system=self.agent.instructions,
            tools=self.agent.tools,
            max_tokens=self.agent.max_tokens,
        )
        turn = self.transcript.turns + 1
        self._show(Began(run=self.run.id, turn=turn))
        try:
            reply = await self._reply(ask, turn)
            if reply is None:
                self._void(turn, "the loop was stopped, or is out of time")
                return None
            await self._take(reply, [said.number for said in heard])
        except ModelError as error:
            self._void(turn, str(error))
            return await self._broke(error)
        if self.transcript.turns < turn:
            # The run was over first: nothing of the reply is recorded, and nothing of it runs.
            self._void(turn, "the run is over")
        return None

    async def _reply(self, ask: Ask, turn: int) -> ModelReply | None:
        """The reply; None where the loop had to stop before it was there (law 1 one-door)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        left_s = self._left_s()
        due = None if left_s is None else began + left_s

        def spoke(delta: Delta) -> None:
            said = {"text": delta.text, "thinking": delta.thinking}
            self._show(Spoke(run=self.run.id, turn=turn, **said))

        self.runtime.driven[self.run.id] = True
        try:
            asking = Asking(self.agent.model, ask, spoke, self._over)
            return await asking.until(self._wait, due)
        finally:
            self.runtime.driven[self.run.id] = False
            self._used_s += loop.time() - began

    async def _take(self, reply: ModelReply, heard: list[int]) -> None:
        """Record a reply, in one piece with its calls, and see those to their answers (law 15)."""
        format = self.agent.model.format
        try:
            calls = read_reply(reply.body, format).calls
            body = notes.reply_note(reply, format, heard, self._used_s)
            note = make_note(self.run.id, notes.REPLY, body, spent=reply.usage.cost)
        except CallerError as error:
            words = f"The reply of model {self.agent.model.name!r} cannot be read: {error}"
            raise ModelError("broken_stream", words) from error
        self._breaks = 0
        if calls:
            self._sync()
            unheard = any(said.number not in heard for said in self.transcript.said)
            await self._hand_in(calls, unheard, note)
        else:
            self._engine.tell(note)
            self._sync()

    async def _broke(self, error: ModelError) -> tuple[str, str] | None:
        """A reply did not come: rest and let it be asked again, or say why not."""
        self._breaks += 1
        if error.kind not in OF_A_MOMENT or self._breaks > self.agent.limits.breaks:
            return error.kind, str(error)
        loop = asyncio.get_running_loop()
        due = loop.time() + AGAIN_S[min(self._breaks, len(AGAIN_S)) - 1]
        while not self._over() and loop.time() < due:
            await self._wait(None, due)
        return None

    # -- the calls

    async def _hand_in(
        self, calls: Sequence[ToolCall], unheard: bool, note: Note | None = None
    ) -> None:
        """Hand in the calls of a reply, with its note; none of an ended run (law 1 one-door)."""
        if unheard:
            # Said while the model was replying: none of this was asked for with that in mind.
            superseded = Refusal(reason=Reason.SUPERSEDED, message="")
            refused = dict.fromkeys(range(len(calls)), superseded)
        else:
            most, offered = self.agent.limits, self.agent.offered
            refused = limits.over_the_limit(most, self.transcript, calls, offered)
        terms = BatchTerms(
            parallel=self.agent.parallel,
            timeout_s=self.agent.timeout_s,
            deadline_s=self._left_s(),
            tools=self.agent.offered,
            refused=refused,
        )
        with self.run._uses:
            await self._batch(self.runtime._execute(self.run, calls, terms, note))

    async def _batch(self, work: Coroutine[Any, Any, Any]) -> None:
        """See the calls of a reply to their answers, whatever comes in between."""
        task = asyncio.create_task(work)
        error: BaseException | None = None
        drained = False
        while not task.done():
            await self._wait(task, None)
            if not drained and not task.done():
                try:
                    drained = self._drain()
                except JournalError as problem:
                    # Said when the calls are over: nothing of them goes on unseen.
                    error, drained = problem, True
        error = error or (None if task.cancelled() else task.exception())
        self._sync()
        self._count_time()
        # A run that somebody closed in this instant takes no batch: the end says so.
        if error is not None and not (isinstance(error, CallerError) and self._over()):
            raise error

    def _count_time(self) -> None:
        """Count the time of the batch; it stood still while a human decided (law 8)."""
        turn = self.transcript.turn
        batch = None if turn is None or turn.batch is None else self._engine.state.batch(turn.batch)
        if batch is not None:
            self._used_s += batch.meter.ran_s(self._engine.clock())

    def _drain(self) -> bool:
        """Skip what has not begun, where a user has said something meanwhile."""
        self._sync()
        turn = self.transcript.turn
        if turn is None or turn.batch is None or turn.answered or not self.transcript.unheard:
            return False
        with suppress(NotFound):
            self._engine.tell(
                i.Cancel(target=turn.batch, reason=Reason.SUPERSEDED, mode=Mode.DRAIN)
            )
        return True

    # -- waiting

    async def _wait(self, task: asyncio.Task[Any] | None, due: float | None) -> None:
        """Wait for a task, for news of the run, or for an instant; every wait is here (law 7).

        A native cancel cancels the run, once, and is raised when the run's calls are over.
        """
        assert self._news is not None, "only a loop that is driven waits"
        try:
            await self._news.wait(task, due)
        except asyncio.CancelledError:
            if not self._cancelled:
                self._cancelled = True
                with suppress(NotFound):
                    self._engine.tell(i.Cancel(target=self.run.id))

    async def _end(self) -> LoopResult:
        run = self._engine.state.runs.get(self.run.id)
        if run is not None and (run.cancelled is not None or run.ended):
            with suppress(NotFound):
                over = self._engine.promise(self.run.id)
                self._cancelled = await self.runtime._until(over, lambda: None) or self._cancelled
        self.runtime._check_owned(self.run.id)
        self.run._life.check()
        self._sync()
        self.result = result_of(self.run.id, self.transcript)
        if self._cancelled:
            raise asyncio.CancelledError
        return self.result

    # -- telling

    def _void(self, turn: int, why: str) -> None:
        self._show(Voided(run=self.run.id, turn=turn, why=why))
