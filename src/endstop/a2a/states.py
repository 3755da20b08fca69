"""The states of a task, and the names that make a run one. Values only."""

from __future__ import annotations

from a2a.types.a2a_pb2 import TaskState

# The protocol's enums look a name up in Python code each time, and these are asked for with every
# event.
UNSPECIFIED = TaskState.TASK_STATE_UNSPECIFIED
SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED
INTERRUPTED = frozenset({INPUT_REQUIRED, AUTH_REQUIRED})
TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, REJECTED})

EXECUTE = "a2a_execute"
"""The tool whose body is the agent's executor: one call for every message that it works on."""

SEQ, CALLS = "endstop/seq", "endstop/calls"
"""Keys of metadata: the number of the last event that is in, and what became of each call."""

OWNER = "owner"
"""The label that makes a run a task: whose it is."""

NOTHING, STATUS_SHOWN, ARTIFACT_SHOWN = 0, 1, 2
"""What an event shows to whoever watches the task."""
