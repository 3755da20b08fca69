"""The command line's story: recorded events in words, for people who read a journal.

A sentence says only what its event says (law 5 honest-effect).
"""

from __future__ import annotations

from endstop.adapters.reply import read_reply
from endstop.cli import look
from endstop.core import events as e
from endstop.core.terms import Money, Reason, StoppedBy
from endstop.errors import CallerError


def told(event: e.Event) -> str:
    """One event in words; call and tool are told beside it."""
    match event:
        case e.RunOpened() | e.RunCancelled() | e.RunClosing() | e.RunEnded():
            return _of_run(event)
        case e.RunSuspending() | e.RunInterrupted():
            return _of_run(event)
        case e.RuleMade() | e.RuleRevoked() | e.Noted():
            return _of_run(event)
        case e.BatchOpened() | e.BatchCancelled() | e.BatchClosed():
            return _of_batch(event)
        case e.CallSettled():
            return _settled(event)
        case e.LateEnd():
            left = f"; survivors: {', '.join(event.survivors)}" if event.survivors else ""
            return f"its worker ended late ({event.how}); the outcome stands{left}"
        case _:
            return _on_the_way(event)


def _of_run(event: e.RunEvent) -> str:
    match event:
        case e.RunOpened(parent_call=None):
            return "run opened"
        case e.RunOpened():
            return f"run opened for call {event.parent_call}"
        case e.RunCancelled():
            return f"stop of the run asked: {_why(event.reason)}, mode {event.mode}"
        case e.RunClosing():
            declared = f"; the run is declared {event.outcome}" if event.outcome else ""
            return f"no further batch will come{declared}"
        case e.Noted():
            return _noted(event)
        case e.RunSuspending():
            return "is let go: what runs is stopped, what has not begun stays as it is"
        case e.RunInterrupted(clean=True):
            return "let go with nothing running: it can be resumed"
        case e.RunInterrupted():
            return "found without a driver: what may have begun is settled as lost"
        case e.RuleMade():
            same = look.arguments(event.same, 100)
            with_same = f" with {same}" if same else ""
            until = f", for {event.for_s:g} s" if event.for_s is not None else ""
            return f"remembered: {look.words(event.tool)}{with_same} needs no other approval{until}"
        case e.RuleRevoked():
            return f"what was remembered of {event.rule} holds no more"
        case e.RunEnded():
            return f"run ended: {event.outcome} ({_why(event.reason)})"
        case _:
            return type(event).__name__


def _noted(event: e.Noted) -> str:
    """A note; those of an agent's conversation as what they say."""
    body = event.body
    match event.kind:
        case "user" if isinstance(body.get("text"), str):
            return f"the user says: {look.words(body['text'], 200)}"
        case "reply" if isinstance(body.get("body"), dict):
            return _replied(event)
        case "limit" | "failure" if isinstance(body.get("why"), str):
            return f"the agent ends: {look.words(body['why'], 200)}"
        case _:
            return f"noted {look.words(event.kind)}: {look.arguments(body, 100)}"


def _replied(event: e.Noted) -> str:
    body, paid = event.body, ""
    if event.spent is not None:
        paid = f", for {look.amount(event.spent)}"
    try:
        reply = read_reply(body["body"], body.get("format"))
    except CallerError:
        return f"the model replies{paid}: {look.arguments(body, 100)}"
    calls = look.plural(len(reply.calls), "call")
    said = f": {look.words(reply.text, 200)}" if reply.text else ""
    return f"the model replies with {calls if reply.calls else 'no call'}{paid}{said}"


def _of_batch(event: e.BatchOpened | e.BatchCancelled | e.BatchClosed) -> str:
    match event:
        case e.BatchOpened():
            terms = [look.plural(event.size, "call")]
            if event.parallel is not None:
                terms.append(f"at most {event.parallel} at once")
            if event.deadline_s is not None:
                terms.append(f"deadline {event.deadline_s:g} s")
            return f"batch {event.batch} opened: {', '.join(terms)}"
        case e.BatchCancelled():
            return f"stop of batch {event.batch} asked: {_why(event.reason)}, mode {event.mode}"
        case e.BatchClosed():
            return f"batch {event.batch} closed: every call has its answer"


def _on_the_way(event: e.Event) -> str:
    match event:
        case e.CallAccepted():
            shown = look.arguments(event.arguments, 100)
            return f"accepted{f': {shown}' if shown else ''}{_costs(event.cost)}"
        case e.ApprovalAsked():
            return "asked for approval"
        case e.ApprovalAnswered():
            by = f" by {look.words(event.by)}" if event.by else ""
            by += f", as remembered of {event.rule}" if event.rule else ""
            said = f": {look.words(event.message, 200)}" if event.message else ""
            return f"approval answered: {event.verdict}{by}{said}"
        case e.CallQueued():
            return "queued"
        case e.CallGranted():
            return "granted by the gate"
        case e.CallStarted():
            return "started"
        case e.CallPaused():
            return f"waits for a human{f': {look.words(event.why)}' if event.why else ''}"
        case e.CallResumed():
            return "the wait for a human is over"
        case e.QuestionAsked():
            return f"asks a human: {look.words(event.text, 200)}"
        case e.QuestionAnswered():
            by = f" by {look.words(event.by)}" if event.by else ""
            said = "in secret" if event.text is None else look.words(event.text, 200)
            return f"was answered{by}: {said}"
        case e.QuestionWithdrawn():
            return "waits for the answer no more"
        case e.CommitBegan():
            return "passed its commit point"
        case e.CommitEnded():
            return "committed" if event.done else "its commit block failed"
        case e.CallSpent():
            return f"spent {look.amount(event.money)}{' (reported late)' if event.late else ''}"
        case e.CallParked():
            return "waits for its children"
        case e.CallUnparked():
            return "goes on after its children"
        case e.StopRequested():
            return f"must stop: {_why(event.reason)}"
        case e.AskSent():
            return f"asked to stop, {event.grace_s:g} s grace"
        case e.KillSent():
            return "kill sent"
        case _:
            return type(event).__name__


def _settled(event: e.CallSettled) -> str:
    parts = [f"{event.outcome} ({_why(event.reason)}), effect {event.effect}"]
    if event.stopped_by is StoppedBy.ABANDONED:
        parts.append("could not be stopped and may still be running")
    elif event.stopped_by is not None:
        parts.append(f"stopped by being {event.stopped_by}")
    parts += [str(flag).replace("_", " ") for flag in event.flags]
    if event.survivors:
        parts.append(f"survivors: {look.words(', '.join(event.survivors), 200)}")
    if event.error:
        parts.append(look.words(event.error, 160))
    return "; ".join(parts)


def _why(reason: Reason) -> str:
    return str(reason).replace("_", " ")


def _costs(cost: Money | None) -> str:
    return f", costs {look.amount(cost)}" if cost is not None else ""
