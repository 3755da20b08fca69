"""What every script about a cancel does and looks at."""

from __future__ import annotations

import time
from dataclasses import dataclass

from a2a.types import Task
from google.protobuf.json_format import MessageToJson

from tests.wire.harness import Broken, Caller, Stream, state_of
from tests.wire.ticks import CANCELS_NOW, Ticks, note

ANSWER_S = 4.0
"""Within this a cancel has answered: the ladder of the tests, and a busy machine."""

ECHO_S = 0.1
"""What a body writes at the instant of the answer is not "afterwards"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a cancel answered, and when."""

    state: str | None
    error: str | None
    at: float
    took_s: float
    task: Task | None


async def cancel(
    client: Caller, task: str, ticks: Ticks | None = None, limit_s: float = ANSWER_S
) -> Answer:
    """Cancels; an error is an answer, too."""
    if ticks is not None:
        note(ticks.file, CANCELS_NOW)
    begun = time.monotonic()
    got, error = None, None
    try:
        got = await client.cancel(task, limit_s)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    return Answer(
        state=None if got is None else state_of(got),
        error=error,
        at=time.time(),
        took_s=time.monotonic() - begun,
        task=got,
    )


def reported(task: Task) -> bool:
    """Whether a task says that something of it may still run."""
    return "abandoned" in MessageToJson(task)


async def check(
    broken: Broken,
    client: Caller,
    answer: Answer,
    ticks: Ticks,
    *,
    task: str,
    stream: Stream | None = None,
) -> None:
    """What must be true of a task after its cancel, once the body had the time to spoil it.

    A body that cannot be stopped may write on; but then the task has to say so.
    """
    broken.unless(answer.error is None, "answers", answer.error)
    broken.unless(answer.state == "CANCELED", "canceled", answer.state or answer.error)
    await ticks.quiet()
    stored = await client.get(task)
    more = ticks.after(answer.at + ECHO_S)
    broken.unless(more <= 1 or reported(stored), "stops", f"{more} ticks after the answer")
    broken.unless(state_of(stored) == "CANCELED", "stays", f"stored {state_of(stored)}")
    if stream is not None:
        seen = await stream.end(3.0)
        broken.unless(seen.closed, "stream ends", seen.error or "open")
        broken.unless(seen.endings == ["CANCELED"], "one ending", seen.states)
