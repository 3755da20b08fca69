"""What delegation raises. A failure is an `Exception`; a cancel is not, and is never one of these.

A cancelled handle raises `HandleCancelled`, which goes past every `except Exception`: a dispatcher
that turns failures into observations can never turn a cancel into one (law 17 children-settle).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from endstop.errors import CallerError, EndstopError, WorkerError

if TYPE_CHECKING:
    from endstop.agents.handle import Proof
    from endstop.run.results import CallResult


class AgentError(WorkerError):
    """A sub-agent failed, could not be reached or broke the protocol; the message says which."""


class DelegationFailed(EndstopError):
    """A delegated call did not succeed; `answer` is its one honest answer."""

    def __init__(self, handle_id: str, agent: str, answer: CallResult) -> None:
        super().__init__(f"{handle_id} ({agent}): {answer.outcome}: {answer.text}")
        self.handle_id = handle_id
        self.agent = agent
        self.answer = answer


class HandleCancelled(asyncio.CancelledError):
    """A handle was awaited whose call was cancelled; `proof` says what is known of the peer."""

    def __init__(self, handle_id: str, agent: str, answer: CallResult, proof: Proof | None) -> None:
        super().__init__(f"{handle_id} ({agent}) was cancelled: {answer.reason}")
        self.handle_id = handle_id
        self.agent = agent
        self.answer = answer
        self.proof = proof


class DroppedHandles(CallerError):
    """A turn was closed with handles that nobody awaited; they are named, stopped and closed."""

    def __init__(self, owner: str, handles: Sequence[tuple[str, str, bool]]) -> None:
        self.owner = owner
        self.handle_ids = tuple(handle_id for handle_id, _, _ in handles)
        named = ", ".join(
            f"{name} ({agent}{'' if sent else ', never sent'})" for name, agent, sent in handles
        )
        super().__init__(
            f"{owner} was closed with {len(handles)} delegated "
            f"{'call' if len(handles) == 1 else 'calls'} that nobody awaited: {named}; "
            "await every handle, or cancel it, or delegate with detached=True"
        )
