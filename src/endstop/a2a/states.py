"""The states of a task, and the names that make a run one. Values only."""

from __future__ import annotations

from a2a.types.a2a_pb2 import TaskState

SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED
INTERRUPTED = frozenset({INPUT_REQUIRED, AUTH_REQUIRED})
TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)

EXECUTE = "a2a_execute"
"""The tool whose body is the agent's executor: one call for every message that it works on."""

SEQ, CALLS = "endstop/seq", "endstop/calls"
"""Keys of metadata: the number of the last event that is in, and what became of each call."""

OWNER = "owner"
"""The label that makes a run a task: whose it is."""

NOTHING, STATUS_SHOWN, ARTIFACT_SHOWN = 0, 1, 2
"""What an event shows to whoever watches the task."""
