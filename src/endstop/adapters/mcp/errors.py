"""What can go wrong with an MCP server, in words for users and models.

Nothing here may name a path or a secret of ours, nor more of what a server said than is bounded.
"""

from __future__ import annotations

from typing import Any

from endstop.core.text import safe_text
from endstop.errors import EndstopError, WorkerError

UNREACHABLE = -32097
"""The code of our own JSON-RPC errors for requests that got no answer."""

WORDS_CHARS = 280
"""How much of a server's words goes into a message; the whole of a tool's goes beside it."""


class McpError(WorkerError):
    """An MCP server could not be started, reached or understood; the message says which and why."""


class McpLost(McpError):
    """The connection to a call was lost, and nothing says that its work has ended."""


class McpToolError(EndstopError):
    """The server says that the tool has failed; the message is what it said.

    `output` is all of it, where that is more than the message holds.
    """

    def __init__(self, said: Any) -> None:
        text = said if isinstance(said, str) else ""
        short = isinstance(said, str) and len(said) <= WORDS_CHARS
        super().__init__(safe_text(text, WORDS_CHARS) or "it failed and did not say why")
        if not short and said:
            self.output = said


def quoted(text: object, limit: int = WORDS_CHARS) -> str:
    """What a server said, on one line, bounded and safe to show."""
    return " ".join(safe_text(str(text), limit).split())
