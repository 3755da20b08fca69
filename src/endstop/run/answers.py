"""Answers as a journal has them: what is recorded of the calls of a run, read back.

Only reads. An answer that was recorded is the answer, whoever asks (law 4 one-answer).
"""

from __future__ import annotations

from typing import Any

from endstop.core import events as e
from endstop.core.terms import Earlier
from endstop.run.results import BatchResult, CallResult


def recorded_results(events: Any) -> list[BatchResult]:
    """The answers of the closed batches of a run, in request order (law 4 one-answer)."""
    answers, closed = recorded_answers(events)
    batches: dict[str, list[CallResult]] = {batch: [] for batch in closed}
    for answer in answers:
        batch = answer.call_id.rpartition(".")[0]
        if batch in batches:
            batches[batch].append(answer)
    return in_order({batch: BatchResult(batch, found) for batch, found in batches.items()})


def recorded_answers(events: Any) -> tuple[list[CallResult], list[str]]:
    """The answers of a run's calls that are settled, as they were asked for; its closed batches."""
    accepted: dict[str, e.CallAccepted] = {}
    arguments: dict[str, dict[str, Any] | None] = {}
    endings: dict[str, e.CallSettled] = {}
    closed: list[str] = []
    earlier: dict[str, Earlier | None] = {}
    for event in events:
        match event:
            case e.CallAccepted():
                accepted[event.call], arguments[event.call] = event, event.arguments
            case e.ApprovalAsked() | e.CallQueued() if event.arguments is not None:
                arguments[event.call] = event.arguments
            case e.CallSettled():
                endings[event.call] = event
            case e.CallGranted():
                earlier[event.call] = event.earlier
            case e.BatchClosed():
                closed.append(event.batch)
            case _:
                pass
    answers = [
        CallResult(endings[name], one.model_id, one.tool, arguments[name], earlier.get(name))
        for name, one in accepted.items()
        if name in endings
    ]
    return answers, closed


def in_order(results: dict[str, BatchResult]) -> list[BatchResult]:
    """The answers of batches in the order in which they were asked for."""
    return sorted(results.values(), key=lambda one: int(one.batch_id.rpartition("/")[2]))
