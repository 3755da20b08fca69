"""MCP: the tools of an MCP server as tools of ours (`endstop[mcp]`).

Everything that needs the SDK is imported when this package is, and by nothing else in endstop.
"""

from endstop.errors import CallerError

try:
    import mcp as _mcp  # noqa: F401
except ModuleNotFoundError as error:
    raise CallerError(
        "MCP servers need the extra `mcp`: install endstop[mcp] in this environment"
    ) from error

from endstop.adapters.mcp.errors import McpError as McpError
from endstop.adapters.mcp.errors import McpToolError as McpToolError
from endstop.adapters.mcp.link import Terms as McpTerms
from endstop.adapters.mcp.server import McpServer as McpServer

__all__ = ["McpError", "McpServer", "McpTerms", "McpToolError"]
