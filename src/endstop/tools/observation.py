"""Tools: the wording. Every word about a settled call that the model reads is made in this file.

Law 5 honest-effect rules it. A sentence says only what the ending says: a body that began is never
called "not started", one that did not begin never "timed out", and nothing is ever called undone.
"It had no effect" is said exactly where the ending's effect is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from endstop.core.events import CallSettled
from endstop.core.payload import Unserialisable, dumps, safe_text
from endstop.core.terms import Earlier, Effect, Flag, Outcome, Reason, StoppedBy

ERROR_CHARS = 4_000
OUTPUT_CHARS = 8_000
SURVIVORS_MAX = 10

CANCELLED_UNSTARTED = "Tool call cancelled by interrupt."
"""A call that the user cancelled before it began: exactly this, and nothing else."""

NOT_STARTED = "Tool call not started"
WHY_NOT_STARTED = {
    Reason.PARENT_CANCELLED: "the call or run that it belongs to was cancelled",
    Reason.SIBLING_FAILED: "another call of the same batch failed",
    Reason.SUPERSEDED: "a newer request took its place",
    Reason.SHUTDOWN: "the program is shutting down",
    Reason.UNKNOWN_TOOL: "there is no tool of this name",
    Reason.INVALID_ARGUMENTS: "its arguments are invalid",
    Reason.DENIED_BY_POLICY: "a policy denied it",
    Reason.DENIED_BY_HUMAN: "a human denied it",
    Reason.APPROVAL_EXPIRED: "nobody answered the request for its approval in time",
    Reason.OVER_BUDGET: "it would exceed the budget",
    Reason.RESOURCE_TIMEOUT: "a resource that it needs did not become free in time",
    Reason.EARLIER_ATTEMPT_ALIVE: "an earlier attempt of the same call is still running",
    Reason.SATURATED: "all workers are taken by earlier calls that could not be stopped",
    Reason.HOOK_FAILED: "a check that must pass first has failed",
    Reason.START_FAILED: "its worker could not be started",
    Reason.BATCH_DEADLINE: "the time of its batch ran out before its turn came",
}

_SAY_IT_THEMSELVES = frozenset({Reason.UNKNOWN_TOOL, Reason.INVALID_ARGUMENTS})
"""Reasons whose message is a whole account: only where it is missing is the short one given."""

STARTED_CANCELLED = "Tool call was started and then cancelled"
WHY_CANCELLED = {
    Reason.CANCELLED_BY_USER: " by interrupt",
    Reason.PARENT_CANCELLED: " because the call or run that it belongs to was cancelled",
    Reason.SIBLING_FAILED: " because another call of the same batch failed",
    Reason.SUPERSEDED: " because a newer request took its place",
    Reason.SHUTDOWN: " because the program is shutting down",
}
RAN = ", after running for {ran} s."

TIMED_OUT = {
    Reason.DEADLINE: "Tool call timed out after {ran} s of running.",
    Reason.IDLE: "Tool call timed out: it gave no sign of progress for too long. It ran for "
    "{ran} s.",
    Reason.BATCH_DEADLINE: "Tool call timed out with its batch, after {ran} s of running.",
}
TIMED_OUT_OTHERWISE = "Tool call timed out after {ran} s of running."

HOW_STOPPED = {
    StoppedBy.ASKED: "It stopped when it was asked to.",
    StoppedBy.KILLED: "Its worker was killed.",
    StoppedBy.ABANDONED: "It could not be stopped and may still be running.",
}

FAILED = "Tool call failed: {error}"
FAILED_SILENTLY = "Tool call failed without saying why."
NO_RESULT = "Tool call ran to its end, but its result could not be passed on: {error}"

LOST = {
    Reason.WORKER_LOST: "Tool call lost: its worker ended unexpectedly while the call ran.",
    Reason.DRIVER_LOST: "Tool call lost: the program that drove it was gone before its end was "
    "recorded.",
}
LOST_OTHERWISE = "Tool call lost: its end was never recorded."

EFFECT = {
    Effect.NONE: "It had no effect.",
    Effect.DONE: "Its effect has happened; do not repeat the call for its effect.",
    Effect.UNKNOWN: "Whether it had an effect is unknown; check before repeating the call.",
}
EFFECT_STILL_OPEN = (
    "It may have had an effect, or may yet have one; check before repeating the call."
)

ANSWERED = "A human answered in place of the tool, which was not started."

NOT_AGAIN = {
    Outcome.CANCELLED: "Tool call was cancelled before it was run again",
    Outcome.TIMED_OUT: "The time of its batch ran out before the tool call was run again",
}
EARLIER = "Note: the same call was issued before as {call}; it ended {outcome}, and {known}. Check."
KNOWN = {
    Effect.NONE: "it had no effect",
    Effect.DONE: "its effect has happened",
    Effect.UNKNOWN: "whether it had an effect is unknown",
}
AGAIN = "Note: this was attempt {number}; earlier attempts failed or were lost."

NOTES = {
    Flag.CANCEL_REQUESTED: "Note: a stop was requested while this ran, but it ended by itself "
    "before it was stopped.",
    Flag.OVERRAN: "Note: this ran past its time limit, and ended by itself before it was stopped.",
}
ON_THE_WAY_OUT = "While stopping it said: {error}"
OUTPUT = "Output so far:\n{output}"
SURVIVORS = "Processes that it started and that could not be stopped: {names}."

_OUR_OWN = frozenset({"CancelledError", "Stopped"})
"""Errors that the stop itself makes: they say nothing that the sentence has not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the model reads of a settled call: exactly one per call (law 4 one-answer)."""

    call_id: str
    model_id: str
    tool: str
    outcome: Outcome
    reason: Reason
    effect: Effect
    text: str
    is_error: bool


def observe(
    settled: CallSettled,
    *,
    call: str,
    model_id: str,
    tool: str,
    earlier: Earlier | None = None,
) -> Observation:
    """Put an ending into words for the model. Total: every ending has an observation.

    `earlier` is the same call issued before, of which it is not known what it did (law 10).
    """
    text = wording(settled)
    if earlier is not None:
        outcome = str(earlier.outcome).replace("_", " ")
        known = KNOWN[earlier.effect]
        text += f"\n\n{EARLIER.format(call=earlier.call, outcome=outcome, known=known)}"
    return Observation(
        call_id=call,
        model_id=model_id,
        tool=tool,
        outcome=settled.outcome,
        reason=settled.reason,
        effect=settled.effect,
        text=text,
        is_error=settled.outcome is not Outcome.SUCCEEDED,
    )


def wording(settled: CallSettled) -> str:
    """The words for one ending."""
    match settled.outcome:
        case Outcome.SUCCEEDED:
            return _succeeded(settled)
        case Outcome.REJECTED:
            return _unstarted(settled)
        case Outcome.CANCELLED | Outcome.TIMED_OUT if settled.stopped_by is None:
            return _not_again(settled)
        case Outcome.CANCELLED:
            why = WHY_CANCELLED.get(settled.reason, "")
            return _ended(settled, STARTED_CANCELLED + why + RAN.format(ran=_ran(settled)))
        case Outcome.TIMED_OUT:
            sentence = TIMED_OUT.get(settled.reason, TIMED_OUT_OTHERWISE)
            return _ended(settled, sentence.format(ran=_ran(settled)))
        case Outcome.FAILED:
            return _failed(settled)
        case Outcome.LOST:
            return _ended(settled, LOST.get(settled.reason, LOST_OTHERWISE))


def _succeeded(settled: CallSettled) -> str:
    value = settled.value
    text = value if isinstance(value, str) else _json(value)
    if settled.reason is Reason.ANSWERED_BY_HUMAN:
        return f"{ANSWERED}\n{text}"
    return "\n\n".join(part for part in (text, *_notes(settled)) if part)


def _unstarted(settled: CallSettled) -> str:
    if settled.reason is Reason.CANCELLED_BY_USER:
        return CANCELLED_UNSTARTED
    why = WHY_NOT_STARTED.get(settled.reason)
    said = safe_text(settled.error or "", ERROR_CHARS).strip()
    if said and settled.reason in _SAY_IT_THEMSELVES:
        why = None
    first = f"{NOT_STARTED}: {why}." if why else f"{NOT_STARTED}."
    return f"{first}\n{said}" if said else first


def _not_again(settled: CallSettled) -> str:
    """Nothing was running when it ended; but an attempt may have run before (law 5)."""
    if not settled.retried and settled.effect is Effect.NONE:
        return _unstarted(settled)
    why = WHY_CANCELLED.get(settled.reason, "")
    return _ended(settled, f"{NOT_AGAIN[settled.outcome]}{why}.")


def _failed(settled: CallSettled) -> str:
    error = safe_text(settled.error or "", ERROR_CHARS).strip()
    if settled.reason is Reason.RESULT_UNSERIALISABLE:
        first = NO_RESULT.format(error=error or "no reason was given.")
    else:
        first = FAILED.format(error=error) if error else FAILED_SILENTLY
    # The error is the body's own text and may end as it likes: what is ours gets its own line.
    return "\n".join([first, EFFECT[settled.effect], *_output(settled), *_notes(settled)])


def _ended(settled: CallSettled, first: str) -> str:
    """A body that our stop, or the loss of its worker, ended."""
    sentences = [first]
    if settled.stopped_by is not None:
        sentences.append(HOW_STOPPED[settled.stopped_by])
    still_open = settled.alive or settled.stopped_by is StoppedBy.ABANDONED
    if still_open and settled.effect is Effect.UNKNOWN:
        sentences.append(EFFECT_STILL_OPEN)
    else:
        sentences.append(EFFECT[settled.effect])
    lines = [" ".join(sentences)]
    error = safe_text(settled.error or "", ERROR_CHARS).strip()
    if error and error.partition(":")[0] not in _OUR_OWN:
        lines.append(ON_THE_WAY_OUT.format(error=error))
    return "\n".join([*lines, *_output(settled), *_notes(settled)])


def _notes(settled: CallSettled) -> list[str]:
    notes = [NOTES[flag] for flag in settled.flags]
    if settled.retried and settled.stopped_by is None and settled.outcome is not Outcome.LOST:
        notes.append(AGAIN.format(number=settled.retried + 1))
    if settled.survivors:
        names = [safe_text(name, 200) for name in settled.survivors[:SURVIVORS_MAX]]
        if len(settled.survivors) > SURVIVORS_MAX:
            names.append(f"and {len(settled.survivors) - SURVIVORS_MAX} more")
        notes.append(SURVIVORS.format(names=", ".join(names)))
    return notes


def _output(settled: CallSettled) -> list[str]:
    output = settled.output
    if isinstance(output, dict) and all(isinstance(part, str) for part in output.values()):
        # A process has several streams: each under its name, the silent ones left out.
        output = "\n".join(f"[{name}]\n{part}" for name, part in output.items() if part)
    if output is None or output == "":
        return []
    text = output if isinstance(output, str) else _json(output)
    return [OUTPUT.format(output=safe_text(text, OUTPUT_CHARS))]


def _ran(settled: CallSettled) -> str:
    return f"{settled.ran_s:.1f}" if settled.ran_s >= 10 else f"{settled.ran_s:.2g}"


def _json(value: object) -> str:
    try:
        return dumps(value)
    except Unserialisable as problem:
        # What is settled went through the boundary; this is for values made elsewhere.
        return f"(a result that cannot be shown: {problem})"
