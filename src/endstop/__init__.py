"""endstop runs the tool calls of an AI agent so that stop means stop.

Every call ends with one honest answer. This module holds the public names and nothing else.
"""

__version__ = "0.1.0"
