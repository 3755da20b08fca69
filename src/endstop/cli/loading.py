"""The command line's tools: finding the tools in a file or module, with errors that one can act on.

Loading runs the user's code, so anything may come out of it; what comes is named with its file and
line and never shown as a traceback of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from endstop.core.text import describe_error
from endstop.errors import CallerError, EndstopError
from endstop.tools.tool import Tool

HOW_TO_DECLARE = (
    "decorate a function with @tool (`from endstop import tool`), or list tools in TOOLS = [...]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One tool and where it was found."""

    tool: Tool
    source: str


def load_tools(sources: Sequence[str]) -> list[Offered]:
    """The tools of files and modules, in the order of their definition.

    Every `Tool` at the top of a module is offered, and what its `TOOLS` lists. Raises `CallerError`
    for a source that cannot be loaded or offers nothing, and for two tools of one name.
    """
    offered: list[Offered] = []
    for number, source in enumerate(dict.fromkeys(sources)):
        found = _tools_of(_module(source, number), source)
        if not found:
            raise CallerError(f"{source} offers no tool; {HOW_TO_DECLARE}")
        offered += [Offered(tool=tool, source=source) for tool in found]
    return unique(offered)


def unique(offered: Iterable[Offered]) -> list[Offered]:
    """Each tool once. Raises `CallerError` for two different tools of one name."""
    by_name: dict[str, Offered] = {}
    for one in offered:
        first = by_name.setdefault(one.tool.name, one)
        if first.tool is not one.tool:
            where = first.source if first.source == one.source else f"{first.source}, {one.source}"
            raise CallerError(
                f"there are two tools named {one.tool.name!r} ({where}); "
                'give one another name with @tool(name="...")'
            )
    return list(by_name.values())


def _tools_of(module: ModuleType, source: str) -> list[Tool]:
    found = [value for value in vars(module).values() if isinstance(value, Tool)]
    listed = getattr(module, "TOOLS", ())
    if not isinstance(listed, list | tuple):
        raise CallerError(
            f"{source}: TOOLS is a {type(listed).__name__}; make it a list or tuple of tools"
        )
    for place, value in enumerate(listed):
        if not isinstance(value, Tool):
            raise CallerError(
                f"{source}: TOOLS[{place}] is a {type(value).__name__}, not a tool; "
                "decorate the function with @tool"
            )
    # A dict keeps the first place of each and forgets nothing: tools compare by identity.
    return list(dict.fromkeys([*found, *listed]))


def load_module(source: str) -> ModuleType:
    """The module of a file, or of a name. Raises `CallerError` for what cannot be loaded."""
    return _module(source, 0)


def _module(source: str, number: int) -> ModuleType:
    path = Path(source)
    if path.is_dir():
        raise CallerError(f"{source} is a directory; name a Python file in it, or a module")
    if source.endswith(".py") or os.sep in source:
        return _from_file(path, number)
    if not all(part.isidentifier() for part in source.split(".")):
        hint = f"; did you mean {source}.py?" if Path(f"{source}.py").is_file() else ""
        raise CallerError(f"{source!r} names neither a Python file nor a module{hint}")
    return _by_name(source)


def _from_file(path: Path, number: int) -> ModuleType:
    if not path.is_file():
        raise CallerError(f"there is no file {path}; name a Python file that declares tools")
    file = str(path.resolve())
    # As for a script, what lies beside the file can be imported, here and in worker processes.
    folder = os.path.dirname(file)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # A name that no import finds, so that worker processes are told the file (tools/address.py).
    label = f"endstop_tools_{number}_{path.stem}"
    spec = importlib.util.spec_from_file_location(label, file)
    if spec is None or spec.loader is None:
        raise CallerError(f"{path} cannot be loaded as Python; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[label]
        raise _refused(str(path), file, error) from error
    return module


def _by_name(name: str) -> ModuleType:
    # `python -m` puts the working directory on the path, an installed command does not.
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CallerError(
                f"there is no module {name!r} here; name a Python file (tools.py), or a module "
                "that can be imported from the working directory"
            ) from error
        raise _refused(name, None, error) from error
    except (Exception, SystemExit) as error:
        raise _refused(name, None, error) from error


def _refused(source: str, file: str | None, error: BaseException) -> CallerError:
    """Why a source does not load: where in the user's code, and what was raised."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = f"{_short(error.filename, source, file)}, line {error.lineno}"
        return CallerError(f"{place}: {error.msg}; mend the line, then try again")
    place = source
    ours = f"{os.sep}endstop{os.sep}"
    for frame in traceback.extract_tb(error.__traceback__):
        inside = "importlib" in frame.filename or frame.filename.startswith("<frozen")
        if inside or ours in frame.filename:
            continue
        place = f"{_short(frame.filename, source, file)}, line {frame.lineno}"
    if isinstance(error, EndstopError):
        return CallerError(f"{place}: {error}")
    hint = "mend it, then try again"
    if isinstance(error, ModuleNotFoundError):
        hint = "install it in this environment, or correct the import"
    elif isinstance(error, ImportError) and "relative import" in str(error):
        hint = "a file that is part of a package is given as a module: --tools package.module"
    elif isinstance(error, SystemExit):
        hint = 'a file of tools must not end the program; guard it with if __name__ == "__main__"'
    return CallerError(f"{place}: loading it raised {describe_error(error)}; {hint}")


def _short(filename: str, source: str, file: str | None) -> str:
    return source if filename == file else filename
