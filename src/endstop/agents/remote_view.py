"""What is known of one task of a remote agent, from what it sends. Waits for nothing.

The first ending stays; what comes after it changes nothing (law 3 one-ending). Needs the SDK.
"""

from __future__ import annotations

from typing import Any

from a2a.types import Message, StreamResponse, Task, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict

from endstop.agents.agent import Failure, Status
from endstop.agents.remote_answer import plain_message, text_of
from endstop.agents.remote_wire import Kind, WireError

ID_CHARS = 500

Shown = tuple[int, str, int, str]
"""A status as it is shown: its state, the id of its message, its time, and its words."""

_STATES = {
    TaskState.TASK_STATE_SUBMITTED: Status.SUBMITTED,
    TaskState.TASK_STATE_WORKING: Status.RUNNING,
    TaskState.TASK_STATE_INPUT_REQUIRED: Status.RUNNING,
    TaskState.TASK_STATE_AUTH_REQUIRED: Status.RUNNING,
    TaskState.TASK_STATE_COMPLETED: Status.SUCCEEDED,
    TaskState.TASK_STATE_FAILED: Status.FAILED,
    TaskState.TASK_STATE_CANCELED: Status.CANCELLED,
    TaskState.TASK_STATE_REJECTED: Status.FAILED,
}
_ASKING = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
_OVER = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


class View:
    """One task, or the message that was answered instead of one."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.task_id = ""
        self.context_id = ""
        self.status = Status.SUBMITTED
        self.failure: Failure | None = None
        self.shown: Shown = (TaskState.TASK_STATE_SUBMITTED, "", 0, "")
        self.reply: dict[str, Any] | None = None
        # Whether something new came since this was set to false.
        self.moved = False
        # The status that was answered last: an agent may show it once more before it goes on.
        self.answered: Shown | None = None
        # Whether what it asks is a secret, and the name of its question, where it says so.
        self.secret = False
        self.named: str | None = None

    @property
    def over(self) -> bool:
        """Whether the task is known to have ended."""
        return self.status in _OVER

    @property
    def asks(self) -> bool:
        """Whether the agent waits for somebody, who has not answered yet."""
        return self.shown[0] in _ASKING and self.shown != self.answered

    @property
    def reference(self) -> dict[str, Any] | None:
        """What the task is found by, as plain JSON; None where the agent has not answered yet."""
        if self.reply is not None:
            return {"message": self.reply}
        if not self.task_id:
            return None
        return {"task": self.task_id, "context": self.context_id}

    @property
    def question(self) -> str:
        """What the agent wants to know, for a human."""
        state, _, _, words = self.shown
        if state == TaskState.TASK_STATE_AUTH_REQUIRED:
            what = f"Agent {self._agent} needs to be authorised before it can go on."
            return f"{what} {words or 'It did not say for what.'}"
        return words or f"Agent {self._agent} asks for input and does not say for what."

    def apply(self, response: StreamResponse) -> None:
        """Take in one event of a stream, or one answer. Raises WireError for what has no sense."""
        match response.WhichOneof("payload"):
            case "task":
                self.apply_task(response.task)
            case "message":
                self._apply_message(response.message)
            case "status_update":
                self._apply_status(response.status_update.status)
            case "artifact_update":
                self.moved = True
            case _:
                raise WireError(Kind.GARBAGE, "it sent an event with nothing in it")

    def apply_task(self, task: Task) -> None:
        """Take in the task as it stands."""
        if not self.task_id:
            if not 0 < len(task.id) <= ID_CHARS:
                raise WireError(Kind.GARBAGE, f"it named its task {task.id!r:.80}")
            self.task_id = task.id
        self.context_id = self.context_id or task.context_id[:ID_CHARS]
        self._apply_status(task.status)

    def end(self, status: Status, failure: Failure | None = None) -> None:
        """The task's one ending, as far as this side is concerned."""
        assert not self.over, "the first ending stays (law 3 one-ending)"
        assert status in _OVER, "an ending is final"
        self.status, self.failure = status, failure

    def _apply_message(self, message: Message) -> None:
        """The whole answer, without a task; or a word beside one, which the status will follow."""
        self.moved = True
        if not self.task_id and not self.over:
            self.reply = plain_message(message)
            self.end(Status.SUCCEEDED)

    def _apply_status(self, status: TaskStatus) -> None:
        known = _STATES.get(status.state)
        if known is None:
            raise WireError(Kind.GARBAGE, f"it says that its task is in state {status.state}")
        if self.over:
            return
        words = text_of(status.message) if status.HasField("message") else ""
        at_ns = status.timestamp.seconds * 1_000_000_000 + status.timestamp.nanos
        shown = (status.state, status.message.message_id, at_ns, words)
        self.moved = self.moved or shown != self.shown
        self.shown = shown
        self.secret, self.named = _asked(status) if status.state in _ASKING else (False, None)
        if known is Status.FAILED:
            rejected = status.state == TaskState.TASK_STATE_REJECTED
            what = "rejected the task" if rejected else "failed"
            told = f": {words}" if words else " and did not say why"
            self.end(known, Failure(f"agent {self._agent} {what}{told}"))
        elif known in _OVER:
            self.end(known)
        else:
            self.status = known


def _asked(status: TaskStatus) -> tuple[bool, str | None]:
    """Whether a question that a status carries as data is a secret, and the name of the only one.

    As a server of ours says it, and whoever says it in the same words.
    """
    found: list[dict[str, Any]] = []
    others = False
    for part in status.message.parts:
        data = MessageToDict(part.data) if part.WhichOneof("content") == "data" else None
        if isinstance(data, dict):
            questions = data.get("questions")
            if isinstance(questions, list):
                found += [one for one in questions if isinstance(one, dict)]
            others = others or bool(data.get("approvals"))
    name = found[0].get("question") if len(found) == 1 and not others else None
    secret = any(one.get("secret") is True for one in found)
    return secret, name if isinstance(name, str) and 0 < len(name) <= ID_CHARS else None
