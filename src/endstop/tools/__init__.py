"""What a tool is: its schema, its contract, its context, and the words the model reads.

Nothing here starts a body; that is the business of `endstop.work`, behind the gate.
"""

from endstop.tools.context import AsyncContext, Context, current
from endstop.tools.contract import resolve
from endstop.tools.declared import Declared
from endstop.tools.resources import shared
from endstop.tools.tool import Tool, tool, tool_from_schema

__all__ = [
    "AsyncContext",
    "Context",
    "Declared",
    "Tool",
    "current",
    "resolve",
    "shared",
    "tool",
    "tool_from_schema",
]
