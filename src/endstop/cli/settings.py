"""The command line's `config`: the configuration that holds here, and the file it came from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from endstop.cli import look
from endstop.cli.output import hear_warnings
from endstop.config import KEYS, WAITS_KEY, WAITS_S, Config


def show(*, as_json: bool) -> None:
    """Print it."""
    hear_warnings()
    config = Config.load()
    values = _values(config)
    if as_json:
        print(look.document({"source": config.source, "values": values}))
        return
    defaults = _values(Config())
    print(f"file: {config.source or 'none (endstop.toml, or [tool.endstop] in pyproject.toml)'}")
    for key, value in values.items():
        mark = "" if value == defaults[key] else f"   (default: {_shown(defaults[key])})"
        print(f"{key} = {_shown(value)}{mark}")


def _values(config: Config) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    whole = {
        "timeouts": asdict(config.timeouts),
        "slots": asdict(config.slots),
        "sizes": asdict(config.sizes),
        "heartbeat_s": config.heartbeat_s,
        "journal": config.journal,
    }
    for key in KEYS:
        value: Any = whole
        # The rungs of the ladder stand at the top of a file and lie beside the other times.
        path = key if key.partition(".")[0] in whole else f"timeouts.{key}"
        for part in path.split("."):
            value = value[part]
        flat[key] = value
    for kind in WAITS_S:
        flat[f"{WAITS_KEY}.{kind}"] = config.resource_limits.wait_s(kind)
    return flat


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
