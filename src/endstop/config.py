"""The configuration: how long things may take, how many may run, where the journal lies.

Beside the core; standard library only. A configuration is read once, here, and is then a frozen
value: no call reads a file or the environment, so a file that breaks later breaks no running call.
Precedence: code, then file, then environment, then the default; a value that cannot be used is
named in a warning and the next source is asked.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from endstop.errors import ConfigError

log = logging.getLogger("endstop.config")

Off = Literal["off"]
Seconds = float | Off | None
"""A limit as it is written down: seconds, "off" for no limit, None where nothing is said."""

TOOL_TIMEOUT_S = 420.0
"""The running time of a call where nobody says otherwise (design: default 420 s)."""

SECONDS_MAX = threading.TIMEOUT_MAX
"""Longer than any wait; the longest that a lock on this platform can be told to wait."""

WAITS_S = {"file": 30.0, "terminal": 300.0, "browser": 300.0, "mcp": 300.0, "tool": 60.0}
"""How long a call may wait for a resource, by kind."""

OTHER_WAIT_S = 30.0
"""The same for kinds that are not listed."""

ENV_PREFIX = "ENDSTOP_"
WAITS_KEY = "resource_waits"


def read_seconds(value: object) -> float | Off:
    """Read a limit: a number of seconds as number or text; 0, less, or "off" means no limit.

    What is longer than `SECONDS_MAX` becomes that. Raises ValueError, with words for what was
    expected, for anything else: booleans, NaN and other junk are nobody's intention.
    """
    if isinstance(value, str) and value.strip().lower() == "off":
        return "off"
    seconds = _number(value)
    return "off" if seconds <= 0 else min(seconds, SECONDS_MAX)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('expected a number of seconds or "off"')
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if isinstance(value, int) and value > 0 else -math.inf
    except ValueError:
        raise ValueError('expected a number of seconds or "off"') from None
    if math.isnan(number):
        raise ValueError('expected a number of seconds or "off", not NaN')
    return number


def _limit(value: object) -> float | None:
    seconds = read_seconds(value)
    return None if seconds == "off" else seconds


def _bound(value: object) -> float:
    """Seconds that may be 0 but never endless: the stop ladder must end (law 6 bounded-stop)."""
    if isinstance(value, str) and value.strip().lower() == "off":
        raise ValueError("expected a number of seconds; this bound cannot be off")
    number = _number(value)
    if number < 0 or math.isinf(number):
        raise ValueError("expected a number of seconds, 0 or more; this bound cannot be endless")
    return min(number, SECONDS_MAX)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected a whole number")
    try:
        return int(value)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.strip().lower() == "off":
        return None
    number = _whole(value)
    return None if number <= 0 else number


def _size(value: object) -> int:
    number = _whole(value)
    if number <= 0:
        raise ValueError("expected a whole number above 0; sizes are always limited")
    return number


def _path(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ValueError("expected a path")
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError("expected a path that is not empty")
    return os.path.expanduser(text)


class ResourceLimits:
    """How long a call may wait for a resource, by the kind that its name begins with.

    `ResourceLimits({"file": 2.0})` changes one kind and keeps the others; 0 or less, or "off",
    means no limit. A value that cannot be used leaves that kind's default and warns.
    """

    __slots__ = ("_waits",)

    def __init__(self, changes: Mapping[str, object] | None = None) -> None:
        waits: dict[str, float | None] = dict(WAITS_S)
        for kind, value in (changes or {}).items():
            try:
                waits[kind] = _limit(value)
            except ValueError as problem:
                log.warning("%s.%s = %r is not used: %s", WAITS_KEY, kind, value, problem)
        self._waits = waits

    def wait_s(self, kind: str) -> float | None:
        """The limit for resources of this kind in seconds; None for no limit."""
        return self._waits.get(kind, OTHER_WAIT_S)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceLimits) and self._waits == other._waits

    def __hash__(self) -> int:
        return hash(frozenset(self._waits.items()))

    def __repr__(self) -> str:
        return f"ResourceLimits({self._waits!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimeouts:
    """Running time of one call, by how it is run; `tools.contract.resolve` applies the rules.

    `sequential_call` inherits `concurrent_batch` where it is None, "off" included.
    """

    sequential_call: Seconds = None
    concurrent_batch: Seconds = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Every time that is not a resource wait, in seconds; None means no limit.

    `hooks` bounds one hook (then it fails closed), `approvals` a wait for approval, `grace_s` the
    time between asking a body to stop and the next rung, `kill_s` that between the kill and giving
    up on its proof, `commit_s` a stop held off by a commit block, `start_s` a granted call's claim.
    """

    tools: ToolTimeouts = field(default_factory=ToolTimeouts)
    hooks: float | None = 15.0
    approvals: float | None = None
    grace_s: float = 5.0
    kill_s: float = 2.0
    commit_s: float = 30.0
    start_s: float | None = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """How many bodies of one kind of worker may run at once; None means no limit.

    Coroutines cost next to nothing. 16 threads are enough to wait for many slow peers, and few
    enough that as many wedged ones are seen as `saturated` before they hurt (law 9 on-the-books).
    A process costs memory and start-up time: 4. A remote peer has limits of its own.
    """

    coroutine: int | None = None
    thread: int | None = 16
    process: int | None = 4
    remote: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """How much is kept of what a body writes (law 19 any-payload): its head and its tail.

    `output_bytes` counts for each of the streams of a process. Arguments, results and messages have
    fixed bounds, which `core/payload.py` names.
    """

    output_bytes: int = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be configured; a frozen value. `Config()` is the defaults.

    `heartbeat_s` is the least time between two signs of life of one call (None: none are sent);
    `journal` the path of the journal, None for memory only; `source` the file it was read from.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    resource_limits: ResourceLimits = field(default_factory=ResourceLimits)
    slots: SlotLimits = field(default_factory=SlotLimits)
    sizes: SizeLimits = field(default_factory=SizeLimits)
    heartbeat_s: float | None = 30.0
    journal: str | None = None
    source: str | None = None

    @property
    def grace_s(self) -> float:
        """Seconds between asking a body to stop and the next rung of the ladder."""
        return self.timeouts.grace_s

    @classmethod
    def load(
        cls,
        *,
        directory: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **code: Any,
    ) -> Self:
        """Read the configuration: `code` wins over the file, the file over the environment.

        `code` is nested or dotted: `Config.load(grace_s=1, timeouts={"tools": {"sequential_call":
        60}})`. The file is the nearest `endstop.toml`, or `pyproject.toml` with a `[tool.endstop]`
        table, from `directory` (default: the working directory) upward; in one directory
        `endstop.toml` wins. Variables are `ENDSTOP_` and the key with `_` for `.`, in capitals.

        Raises ConfigError for an unknown key in `code` and for a file that cannot be read.
        """
        given = dict(_flatten(code))
        for key in given:
            if not _known(key):
                raise ConfigError(f"`{key}` is no configuration key{_nearest(key)}")
        path, table = _find_file(Path(directory or os.getcwd()))
        written = dict(_flatten(table))
        for key in written:
            if not _known(key):
                log.warning("%s: `%s` is no configuration key%s", path, key, _nearest(key))
        sources = (
            ("code", given),
            (str(path), written),
            ("the environment", _from_environment(os.environ if environ is None else environ)),
        )
        chosen: dict[str, Any] = {}
        for key in {key: None for _, values in sources for key in values if _known(key)}:
            for source, values in sources:
                if values.get(key) is None:
                    continue
                try:
                    chosen[key] = _reader(key)(values[key])
                except ValueError as problem:
                    log.warning("%s: %s = %r is not used: %s", source, key, values[key], problem)
                    continue
                if key == "journal" and values is written and path is not None:
                    chosen[key] = str(path.parent / chosen[key])
                break
        return cls._of(chosen, None if path is None else str(path))

    @classmethod
    def _of(cls, chosen: Mapping[str, Any], source: str | None) -> Self:
        def part(prefix: str) -> dict[str, Any]:
            inside = {k[len(prefix) :]: v for k, v in chosen.items() if k.startswith(prefix)}
            return {k: v for k, v in inside.items() if "." not in k}

        ladder = {k: chosen[k] for k in LADDER if k in chosen}
        top = {k: chosen[k] for k in ("heartbeat_s", "journal") if k in chosen}
        return cls(
            timeouts=Timeouts(
                tools=ToolTimeouts(**part("timeouts.tools.")), **part("timeouts."), **ladder
            ),
            resource_limits=ResourceLimits(
                {k: "off" if v is None else v for k, v in part(f"{WAITS_KEY}.").items()}
            ),
            slots=SlotLimits(**part("slots.")),
            sizes=SizeLimits(**part("sizes.")),
            source=source,
            **top,
        )


LADDER = ("grace_s", "kill_s", "commit_s", "start_s")
"""Keys that stand at the top of a file, though the values live beside the other times."""

KEYS: dict[str, Callable[[object], Any]] = {
    "timeouts.tools.sequential_call": read_seconds,
    "timeouts.tools.concurrent_batch": read_seconds,
    "timeouts.hooks": _limit,
    "timeouts.approvals": _limit,
    "grace_s": _bound,
    "kill_s": _bound,
    "commit_s": _bound,
    "start_s": _limit,
    "slots.coroutine": _count,
    "slots.thread": _count,
    "slots.process": _count,
    "slots.remote": _count,
    "sizes.output_bytes": _size,
    "heartbeat_s": _limit,
    "journal": _path,
}
"""Every key and how its value is read; `resource_waits.<kind>` is the one family beside them."""


def _known(key: str) -> bool:
    return key in KEYS or (key.startswith(f"{WAITS_KEY}.") and key.count(".") == 1)


def _reader(key: str) -> Callable[[object], Any]:
    return KEYS.get(key, _limit)


def _nearest(key: str) -> str:
    inside = [known for known in (*KEYS, f"{WAITS_KEY}.file") if known.startswith(f"{key}.")]
    if inside:
        return f"; it is a table, write for example `{inside[0]}`"
    # Only a mistake needs it, and every program pays for an import at the top.
    import difflib

    close = difflib.get_close_matches(key, [*KEYS, f"{WAITS_KEY}.file"], n=1, cutoff=0.6)
    if not close:
        last = key.rpartition(".")[2]
        close = [known for known in KEYS if known.rpartition(".")[2] == last]
    return f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(KEYS)}"


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key in KEYS:
        value = environ.get(ENV_PREFIX + key.replace(".", "_").upper())
        if value is not None and value.strip():
            found[key] = value
    waits = f"{ENV_PREFIX}{WAITS_KEY.upper()}_"
    for name, value in environ.items():
        if name.startswith(waits) and len(name) > len(waits) and value.strip():
            found[f"{WAITS_KEY}.{name[len(waits) :].lower()}"] = value
    return found


def _find_file(start: Path) -> tuple[Path | None, dict[str, Any]]:
    here = start.absolute()
    for directory in (here, *here.parents):
        own = directory / "endstop.toml"
        if own.is_file():
            return own, _read_toml(own)
        project = directory / "pyproject.toml"
        if project.is_file():
            tools = _read_toml(project).get("tool")
            table = tools.get("endstop") if isinstance(tools, dict) else None
            if isinstance(table, dict):
                return project, table
            if table is not None:
                log.warning("%s: tool.endstop = %r is not used: expected a table", project, table)
    return None, {}


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = path.read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise ConfigError(
            f"{path} cannot be read: {why}; make it readable, or move it away"
        ) from problem
    except UnicodeDecodeError as problem:
        line = problem.object[: problem.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}, line {line}: not UTF-8 (byte 0x{problem.object[problem.start]:02x}); "
            "save the file as UTF-8"
        ) from problem
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}; mend that line") from problem
