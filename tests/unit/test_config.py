"""Configuration: whose word counts, what junk does, and what a broken file says."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.config import KEYS, Config, ResourceLimits, read_seconds
from endstop.errors import ConfigError


def load(directory: Path, environ: dict[str, str] | None = None, **code: Any) -> Config:
    return Config.load(directory=directory, environ=environ or {}, **code)


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "endstop.config")


def test_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config == Config()
    assert config.timeouts.tools.sequential_call is None
    assert config.timeouts.tools.concurrent_batch is None
    assert config.timeouts.hooks == 15.0
    assert (config.grace_s, config.timeouts.kill_s, config.timeouts.commit_s) == (5.0, 2.0, 30.0)
    assert (config.slots.coroutine, config.slots.thread, config.slots.process) == (None, 16, 4)
    assert config.heartbeat_s == 30.0
    assert config.journal is None


FILE = """
grace_s = 3
journal = "runs.db"

[timeouts]
hooks = "off"
[timeouts.tools]
sequential_call = 60
concurrent_batch = "off"

[resource_waits]
file = 2.0
browser = 0

[slots]
thread = 8
"""


def test_a_file_is_found_upward_and_read(tmp_path: Path) -> None:
    (tmp_path / "endstop.toml").write_text(FILE)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    config = load(deep)
    assert config.source == str(tmp_path / "endstop.toml")
    assert config.grace_s == 3.0
    assert config.timeouts.hooks is None
    assert config.timeouts.tools.sequential_call == 60.0
    assert config.timeouts.tools.concurrent_batch == "off"
    assert config.resource_limits == ResourceLimits({"file": 2.0, "browser": 0})
    assert config.resource_limits.wait_s("browser") is None
    assert config.slots.thread == 8
    assert config.journal == str(tmp_path / "runs.db"), "seen from the file, not from here"


def test_endstop_toml_wins_over_pyproject_and_the_nearest_over_both(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.endstop]\ngrace_s = 1\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load(inner).grace_s == 1.0, "a pyproject without our table is not ours"
    (tmp_path / "endstop.toml").write_text("grace_s = 2\n")
    assert load(inner).grace_s == 2.0
    (inner / "pyproject.toml").write_text("[tool.endstop]\ngrace_s = 4\n")
    assert load(inner).grace_s == 4.0


def test_code_wins_over_file_and_file_over_environment(tmp_path: Path) -> None:
    environ = {
        "ENDSTOP_GRACE_S": "9",
        "ENDSTOP_KILL_S": "9",
        "ENDSTOP_START_S": "9",
        "ENDSTOP_TIMEOUTS_TOOLS_SEQUENTIAL_CALL": "9",
        "ENDSTOP_RESOURCE_WAITS_FILE": "9",
        "ENDSTOP_EFFECT_KEY": "not a setting",
    }
    (tmp_path / "endstop.toml").write_text("grace_s = 2\nkill_s = 2\n")
    config = load(tmp_path, environ, grace_s=1)
    assert config.grace_s == 1.0
    assert config.timeouts.kill_s == 2.0
    assert config.timeouts.start_s == 9.0
    assert config.timeouts.tools.sequential_call == 9.0
    assert config.resource_limits.wait_s("file") == 9.0


def test_code_may_be_nested_or_dotted(tmp_path: Path) -> None:
    nested = load(tmp_path, timeouts={"tools": {"sequential_call": 5}}, slots={"thread": 2})
    dotted = load(tmp_path, **{"timeouts.tools.sequential_call": 5, "slots.thread": 2})
    assert nested == dotted
    assert nested.timeouts.tools.sequential_call == 5.0


@pytest.mark.parametrize("junk", ["true", "nan", '"soon"', "[1]", '""'])
def test_junk_falls_through_to_the_next_source_with_a_warning(
    tmp_path: Path, junk: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endstop.toml"
    path.write_text(f"[timeouts.tools]\nsequential_call = {junk}\n")
    config = load(tmp_path, {"ENDSTOP_TIMEOUTS_TOOLS_SEQUENTIAL_CALL": "7"})
    assert config.timeouts.tools.sequential_call == 7.0
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert "timeouts.tools.sequential_call" in record.getMessage()


def test_junk_everywhere_leaves_the_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "endstop.toml").write_text('grace_s = "off"\nslots.thread = 1.5\n')
    environ = {"ENDSTOP_GRACE_S": "-1", "ENDSTOP_HEARTBEAT_S": "often"}
    config = load(tmp_path, environ, grace_s=True)
    assert config.grace_s == 5.0, "a bound cannot be off: law 6 bounded-stop"
    assert config.slots.thread == 16
    assert config.heartbeat_s == 30.0
    texts = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("code: grace_s") for text in texts)
    assert any(text.startswith("the environment: grace_s") for text in texts)
    assert len(texts) == 5


def test_off_values(tmp_path: Path) -> None:
    (tmp_path / "endstop.toml").write_text(
        "heartbeat_s = 0\nstart_s = -1\nslots.process = 'off'\ntimeouts.hooks = 0\n"
    )
    config = load(tmp_path)
    assert config.heartbeat_s is None
    assert config.timeouts.start_s is None
    assert config.slots.process is None
    assert config.timeouts.hooks is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grcae_s = 1", "`grcae_s` is no configuration key; did you mean `grace_s`?"),
        ("[tools]\nsequential_call = 1", "did you mean `timeouts.tools.sequential_call`?"),
        ("timeouts = 3", "it is a table, write for example `timeouts.tools.sequential_call`"),
        ("resource_waits = 3", "it is a table, write for example `resource_waits.file`"),
        ("zzz = 3", "known are"),
    ],
)
def test_an_unknown_key_in_a_file_is_warned_about_with_the_nearest(
    tmp_path: Path, text: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "endstop.toml").write_text(text)
    assert load(tmp_path) == Config(source=str(tmp_path / "endstop.toml"))
    (record,) = caplog.records
    assert says in record.getMessage()


def test_an_unknown_key_in_code_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean `grace_s`"):
        load(tmp_path, grase_s=1)


@pytest.mark.parametrize("name", ["endstop.toml", "pyproject.toml"])
def test_a_broken_file_names_file_line_and_mend(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("[tool.endstop]\ngrace_s = 1\nkill_s = = 2\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(path) in str(caught.value)
    assert "line 3" in str(caught.value)
    assert "mend" in str(caught.value)
    path.write_bytes(b"grace_s = 1\n# caf\xe9\n")
    with pytest.raises(ConfigError, match="line 2: not UTF-8"):
        load(tmp_path)


def test_an_unreadable_file_names_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "endstop.toml"
    path.write_text("grace_s = 1\n")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match="Permission denied; make it readable") as caught:
        load(tmp_path)
    assert str(path) in str(caught.value)


def test_a_file_that_breaks_later_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "endstop.toml"
    path.write_text("grace_s = 1\n")
    config = load(tmp_path)
    path.write_text("= broken")
    assert config.grace_s == 1.0


def test_a_table_that_is_no_table_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nendstop = 3\n")
    assert load(tmp_path) == Config()
    assert "expected a table" in caplog.text


@given(
    value=st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.integers(), max_size=2),
    key=st.sampled_from([*KEYS, "resource_waits.file"]),
)
def test_no_value_of_any_key_breaks_loading(value: Any, key: str) -> None:
    config = Config.load(directory="/", environ={}, **{key: value})
    assert isinstance(config, Config)
    assert 0 <= config.grace_s <= threading.TIMEOUT_MAX


@given(value=st.floats(allow_nan=False) | st.integers() | st.integers(-(10**400), 10**400))
def test_a_number_is_a_limit_or_off(value: float) -> None:
    seconds = read_seconds(value)
    if value <= 0:
        assert seconds == "off"
    else:
        assert seconds == min(value, threading.TIMEOUT_MAX)


def test_reading_the_configuration_loads_nothing_heavy() -> None:
    script = "import sys, endstop.config; print({'pydantic', 'griffe', 'typer'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
