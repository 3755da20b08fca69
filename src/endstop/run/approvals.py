"""Approvals: calls that wait for a human before they may start, and the four answers to them.

Answered from code, by a handler that the runtime asks, or by whoever found the question in a
listing. Nothing here decides: an answer is an input like any other, and the core takes the first
one that is for the question as it stands (law 13 one-approval). Silence is never consent: a handler
that raises, hangs or says nothing leaves the call pending.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from endstop.core import inputs as i
from endstop.core.events import ApprovalAnswered, ApprovalAsked, Event
from endstop.core.terms import Money, Phase, Verdict
from endstop.core.text import safe_text
from endstop.errors import CallerError, NotFound
from endstop.run.plans import Plan, digest
from endstop.run.remembering import Remember
from endstop.work.thread import DaemonThreads

if TYPE_CHECKING:
    from endstop.run.engine import Engine
    from endstop.run.plans import Planner

log = logging.getLogger("endstop.run")

MESSAGE_CHARS = 100_000
"""Longest text of a human that is kept; a longer one is cut, and says so."""

APPROVER_THREADS = 8
"""How many plain handlers may think at the same time; the others stand in line."""


@dataclass(frozen=True, slots=True)
class Approve:
    """A handler's yes: the call runs with the arguments that were shown.

    With `remember`, later calls that fit need no other answer.
    """

    remember: Remember | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """A handler's no; `message` is read by the model."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Respond:
    """An answer in place of the tool: `text` is the call's result."""

    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A yes to other arguments; they are validated like the first ones."""

    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that waits for a human, as it stood when this was made.

    `arguments` are a copy of what will run; `digest` binds them to tool and target. `expires_in_s`
    is what was left of the time for an answer, None without a limit. The four methods answer this
    question and no other: they return false when it was answered, or is void, by then.
    """

    call_id: str
    tool: str
    arguments: dict[str, Any]
    digest: str
    prompt: str
    waited_s: float
    expires_in_s: float | None = None
    cost: Money | None = None
    _runtime: Approvals = field(repr=False, compare=False)

    def approve(self, *, by: str = "", remember: Remember | None = None) -> bool:
        """Let it run; see `Runtime.approve`."""
        return self._runtime._answer(self.call_id, Approve(remember), by, self.digest)

    def reject(self, message: str = "", *, by: str = "") -> bool:
        """Refuse it; see `Runtime.reject`."""
        return self._runtime._answer(self.call_id, Reject(message), by, self.digest)

    def respond(self, text: str, *, by: str = "") -> bool:
        """Answer in place of the tool; see `Runtime.respond`."""
        return self._runtime._answer(self.call_id, Respond(text), by, self.digest)

    def edit(self, arguments: dict[str, Any], *, by: str = "") -> bool:
        """Let it run with other arguments; see `Runtime.edit`."""
        return self._runtime._answer(self.call_id, Edit(arguments), by, self.digest)


Answer = Approve | Reject | Respond | Edit

_VERDICTS: dict[type[Answer], Verdict] = {
    Approve: Verdict.APPROVE,
    Reject: Verdict.REJECT,
    Respond: Verdict.RESPOND,
    Edit: Verdict.EDIT,
}


def _message(answer: Answer) -> str:
    match answer:
        case Reject(message=text) | Respond(text=text):
            return str(text)
        case _:
            return ""


Handler = Callable[[Pending], Any]
"""Returns one of the four answers, None to leave the call pending, or an awaitable of these."""


class Approvals:
    """The part of a runtime that lists and answers what waits for a human."""

    engine: Engine
    planner: Planner
    _asker: Asker | None = None
    _loop_of_handlers: Callable[[], asyncio.AbstractEventLoop]

    def pending(self) -> list[Pending]:
        """The calls that wait for a human's answer, oldest question first."""
        with self.engine.lock:
            now = self.engine.clock()
            return [self._pending(asked, now) for asked in self.engine.state.approvals.values()]

    def approve(self, call_id: str, *, by: str = "", remember: Remember | None = None) -> bool:
        """Let a call that waits for approval go on; false if it does not wait any more.

        An answer is used once and is void after a cancel (law 13 one-approval). `by` is recorded.
        With `remember`, later calls that fit need no other answer; see `Remember`. Raises NotFound
        for a call that is not here.
        """
        return self._answer(call_id, Approve(remember), by)

    def reject(self, call_id: str, message: str = "", *, by: str = "") -> bool:
        """Refuse a call that waits for approval, with words for the model; false if too late."""
        return self._answer(call_id, Reject(message), by)

    def respond(self, call_id: str, text: str, *, by: str = "") -> bool:
        """Answer in place of the tool: `text` is the call's result; false if too late."""
        return self._answer(call_id, Respond(text), by)

    def edit(self, call_id: str, arguments: dict[str, Any], *, by: str = "") -> bool:
        """Let a call go on with other arguments, validated again; false if too late.

        Raises CallerError where they do not fit the tool; the question stays open.
        """
        return self._answer(call_id, Edit(arguments), by)

    # -- inside

    def _pending(self, asked: ApprovalAsked, now: float) -> Pending:
        call = self.engine.state.calls[asked.call]
        return Pending(
            call_id=call.id,
            tool=call.tool,
            arguments=copy.deepcopy(asked.arguments),
            digest=asked.digest,
            prompt=asked.prompt,
            waited_s=now - call.phase_at,
            expires_in_s=None if call.due is None else max(0.0, call.due - now),
            cost=asked.cost,
            _runtime=self,
        )

    def _answer(self, call_id: str, answer: Answer, by: str, seen: str | None = None) -> bool:
        """Give one answer to the core; `seen` is the digest of what the answer is meant for."""
        call = self.engine.state.calls.get(call_id)
        if call is None:
            raise NotFound(f"no call {call_id!r} is here")
        asked = call.approval
        if asked is None or (seen is not None and seen != asked):
            return False
        edited = self._edited(call_id, answer.arguments) if isinstance(answer, Edit) else None
        terms = None
        if isinstance(answer, Approve) and answer.remember is not None:
            terms = answer.remember.terms(call.arguments or {})
        said = i.Answered(
            call=call_id,
            digest=asked,
            verdict=_VERDICTS[type(answer)],
            message=safe_text(_message(answer), MESSAGE_CHARS),
            by=by,
            arguments=edited.arguments if edited else None,
            claims=edited.claims if edited else (),
            cost=edited.cost if edited else None,
            remember=terms,
            final=digest(edited.tool_name, edited.arguments, edited.claims) if edited else "",
        )

        def landed(_: list[Event]) -> None:
            if edited is not None:
                self.engine.plans[call_id] = edited

        return self.engine.tell(said, landed)

    def _edited(self, call_id: str, arguments: dict[str, Any]) -> Plan:
        plan = self.engine.plans.get(call_id)
        if plan is None:
            raise NotFound(f"no call {call_id!r} is here")
        edited = plan.copy()
        problem = self.planner.rebind(edited, arguments)
        if problem is not None:
            raise CallerError(problem.message)
        return edited

    def _ask_with(
        self, handler: Handler | None, loop: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        """Put what needs approval to `handler` from now on. Raises CallerError for what is none."""
        self._loop_of_handlers = loop
        if handler is None:
            return
        if not callable(handler):
            raise CallerError(f"approve must be callable, {handler!r} is not")
        self._asker = Asker(self, handler, loop)
        self.engine.on_question = self._asker.told

    def _ask_again(self, run_id: str) -> None:
        """Put to the handler what was pending in a run that was taken up again."""
        if self._asker is None:
            return
        with self.engine.lock:
            questions = list(self.engine.state.approvals.values())
        for asked in questions:
            if asked.run == run_id:
                self._asker.told(asked)


class _Going:
    """A handler that thinks about a call; its own answer must not break it off."""

    __slots__ = ("answered", "call")

    def __init__(self, call: str) -> None:
        self.call = call
        self.answered = False


_going: ContextVar[_Going | None] = ContextVar("endstop_approving", default=None)


class Asker:
    """Puts questions to the handler: a coroutine on the loop, a plain function on a thread."""

    def __init__(
        self,
        runtime: Approvals,
        handler: Handler,
        loop: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self._runtime = runtime
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - asks whether calling it is async
        )
        self._loop = loop
        self._threads = DaemonThreads(APPROVER_THREADS, "endstop-approve")

    def told(self, event: Event) -> None:
        """A question was asked or answered."""
        if isinstance(event, ApprovalAsked):
            pending = self._find(event)
            if pending is None:
                return
            if self._is_async:
                self._begin(pending, self._handler)
            else:
                self._threads.queue(lambda: self._on_thread(event))
        elif isinstance(event, ApprovalAnswered):
            plan, going = self._runtime.engine.plans.get(event.call), _going.get()
            task = None
            if plan is not None:
                task, plan.hook_task = plan.hook_task, None
            if going is not None and going.call == event.call:
                going.answered = True
            elif task is not None:
                task.cancel()

    def close(self) -> None:
        """Let idle threads end; a handler that hangs is not waited for (law 6 bounded-stop)."""
        self._threads.close()

    def _find(self, asked: ApprovalAsked) -> Pending | None:
        """The question, if it is still open."""
        engine = self._runtime.engine
        with engine.lock:
            if engine.state.approvals.get(asked.call) is not asked:
                return None
            return self._runtime._pending(asked, engine.clock())

    def _on_thread(self, asked: ApprovalAsked) -> None:
        # Asked for again: it may have stood in line for a long time.
        pending = self._find(asked)
        if pending is None:
            return
        try:
            answer = self._handler(pending)
        except BaseException as error:
            self._failed(pending, error)
            return
        if inspect.isawaitable(answer):
            self._begin(pending, lambda _: answer)
        else:
            self._take(pending, answer)

    def _begin(self, pending: Pending, handler: Callable[[Pending], Awaitable[Any]]) -> None:
        going = _Going(pending.call_id)

        async def ask() -> None:
            _going.set(going)
            try:
                answer = await handler(pending)
            except (Exception, SystemExit) as error:
                # SystemExit too: it would take the whole event loop down (law 19).
                self._failed(pending, error)
            else:
                self._take(pending, answer)

        engine = self._runtime.engine
        asking = ask()
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._loop())
        except RuntimeError:
            asking.close()
            log.debug("the event loop is closed: nobody is asked there any more")
            return
        with engine.lock:
            plan = engine.plans.get(pending.call_id)
            call = engine.state.calls.get(pending.call_id)
            waits = call is not None and call.phase is Phase.AWAITING_APPROVAL
            if plan is not None and waits:
                plan.hook_task = future
        if not waits and not going.answered:
            future.cancel()

    def _take(self, pending: Pending, answer: Any) -> None:
        try:
            if isinstance(answer, Approve | Reject | Respond | Edit):
                self._runtime._answer(pending.call_id, answer, "handler", pending.digest)
                return
        except NotFound:
            return
        except CallerError as problem:
            log.error("the approval handler's edit of %s: %s", pending.call_id, problem)
            return
        call = self._runtime.engine.state.calls.get(pending.call_id)
        waits = call is not None and call.approval == pending.digest
        if answer is not None and waits:
            log.error(
                "the approval handler answered %r for %s, which stays pending; return Approve(), "
                "Reject(), Respond() or Edit()",
                answer,
                pending.call_id,
            )

    def _failed(self, pending: Pending, error: BaseException) -> None:
        words = "the approval handler failed; call %s stays pending"
        log.error(words, pending.call_id, exc_info=error)
