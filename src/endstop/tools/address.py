"""Tools: the address by which another process finds a tool's function.

Addresses are text: "package.module:qualname" or "/abs/file.py:qualname". Nothing here imports
what it addresses.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any


class NoAddress(ValueError):
    """A function cannot be found from another process; the message says why, and the mend."""


def address_of(fn: Callable[..., Any], tool: object = None) -> str:
    """Where to find a function, or the `tool` made of it where that has another name there.

    Raises NoAddress for what has no place in a module.
    """
    if isinstance(fn, functools.partial):
        raise NoAddress("it is a functools.partial; write a function in a module instead")
    qualname: str | None = getattr(fn, "__qualname__", None)
    module: str | None = getattr(fn, "__module__", None)
    if not qualname or not module:
        raise NoAddress("it has no name in a module; write a function in a module instead")
    if "<lambda>" in qualname:
        raise NoAddress('it is a lambda; write it as a "def" at the top of a module')
    if "<locals>" in qualname:
        raise NoAddress(
            "it is defined inside another function; move it to the top of a module and pass what "
            "it closes over as arguments"
        )
    if getattr(fn, "__self__", None) is not None:
        raise NoAddress("it is bound to an object; write a function at the top of a module")
    return f"{_place(module)}:{_name_in(module, qualname, tool)}"


def _name_in(module: str, qualname: str, tool: object) -> str:
    """The name of `tool` in its module: `edit_file = tool(edit)` is not found as `edit`."""
    if tool is None:
        return qualname
    names: dict[str, Any] = vars(sys.modules[module]) if module in sys.modules else {}
    if names.get(qualname) is tool:
        return qualname
    return next((name for name, value in names.items() if value is tool), qualname)


def _place(module: str) -> str:
    loaded = sys.modules.get(module)
    file: str | None = getattr(loaded, "__file__", None)
    spec = getattr(loaded, "__spec__", None)
    if module == "__main__":
        # `python -m package.module` keeps its true name in the spec.
        if spec is not None and getattr(spec, "name", None) not in (None, "__main__"):
            return str(spec.name)
        if not file or not os.path.isfile(file):
            raise NoAddress(
                "it is defined at a prompt or on standard input; put it into a file that can be "
                "imported"
            )
        return os.path.abspath(file)
    if "." in module or file is None or _importable(module, file):
        return module
    return os.path.abspath(file)


def _importable(module: str, file: str) -> bool:
    """Whether a top-level module would be found by its name: not if it was loaded from a file."""
    try:
        spec = PathFinder.find_spec(module)
    except (ImportError, ValueError):
        return False
    origin = getattr(spec, "origin", None)
    return origin is not None and os.path.realpath(origin) == os.path.realpath(file)
