"""The errors that endstop raises to its callers.

The type says who broke the contract: `CallerError` is the caller's to mend, `WorkerError` comes
from the place where a body runs, `JournalError` from the store. Nothing here may import the rest
of the package.
"""

from __future__ import annotations


class EndstopError(Exception):
    """Base of every error that endstop raises on purpose."""


class CallerError(EndstopError):
    """The caller asked for something that cannot be done; the message says what to change."""


class NotFound(CallerError):
    """The target of a cancel or a question is not known here (law 2 right-target)."""


class ContractError(CallerError):
    """A tool's declaration contradicts itself; raised where the tool is declared."""


class InvalidArguments(CallerError):
    """Arguments do not fit a tool; the message is written for the model that sent them."""


class ConfigError(CallerError):
    """A configuration file cannot be read; the message names the file, the place and the mend."""


class RuntimeClosed(CallerError):
    """The runtime has been closed and takes no new work."""


class RunSuspended(CallerError):
    """The run was let go for somebody to take it up; what had not begun is pending (law 16)."""


class Stopped(EndstopError):
    """Raised inside a body by `ctx.check()`, `ctx.sleep()` and `ctx.commit()` once it must stop."""


class Unanswered(EndstopError):
    """Raised inside a body by `ctx.ask(..., timeout_s=...)` when nobody answered in time."""


class WorkerError(EndstopError):
    """The place where bodies run failed: it could not start, load a tool, or be reached."""


class JournalError(EndstopError):
    """The journal cannot be opened, read or written; the message names the file."""


class StaleWriter(JournalError):
    """An append was refused: another driver wrote to this run first (law 3 one-ending)."""


class IllegalMove(EndstopError):
    """An event was applied to a call whose phase does not allow it: a bug in endstop itself."""
