"""`endstop exec --mcp` and `endstop tools --mcp`; and nothing of MCP without them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import endstop, environment, start
from tests.mcp.desk import RAW, SOUND, alive, family, marks, received, wait_for


def reply(tmp_path: Path, *calls: tuple[str, dict[str, Any]]) -> Path:
    """A reply with these calls, in a file."""
    blocks = [
        {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(calls)
    ]
    path = tmp_path / "reply.json"
    path.write_text(json.dumps({"type": "message", "role": "assistant", "content": blocks}))
    return path


def raw(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """The command of the raw server, and the environment that it wants."""
    env = {"MARKS": str(tmp_path / "marks"), "LOG": str(tmp_path / "log")}
    return f"{sys.executable} -S {RAW}", env


PASSED = ("--mcp-env", "MARKS", "--mcp-env", "LOG")


def test_exec_runs_the_tools_of_servers(tmp_path: Path) -> None:
    command, env = raw(tmp_path)
    calls = reply(tmp_path, ("echo", {"a": 1}), ("crash", {}), ("echo", {"b": 2}))
    done = endstop("exec", calls, "--mcp", command, *PASSED, "--json", "--parallel", 1, **env)
    document = json.loads(done.stdout)
    assert [one["outcome"] for one in document["calls"]] == ["succeeded", "failed", "succeeded"]
    assert document["calls"][0]["value"] == '{"a": 1}'
    assert "exit status 9" in document["calls"][1]["error"]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr.replace("Traceback: the reason", "")


@pytest.mark.serial
def test_ctrl_c_stops_the_server_and_its_whole_tree(tmp_path: Path) -> None:
    command, env = raw(tmp_path)
    calls = reply(tmp_path, ("family", {"hang": True}))
    running = start("exec", calls, "--mcp", command, *PASSED, "--json", **env)
    wait_for(lambda: len(family(tmp_path)) == 3, "the tree is there")
    running.send_signal(signal.SIGINT)
    printed, _ = running.communicate(timeout=30)
    (call,) = json.loads(printed)["calls"]
    assert running.returncode == 130
    assert (call["outcome"], call["effect"]) == ("cancelled", "unknown")
    assert call["stopped_by"] == "asked", "it was killed, and that is proved"
    assert not any(alive(pid) for pid in family(tmp_path).values()), "law 11 whole-tree"
    assert len(received(tmp_path, "notifications/cancelled")) == 1


def test_servers_of_one_command_and_names_that_are_taken(tmp_path: Path) -> None:
    command, env = raw(tmp_path)
    three = ("--mcp", command) * 3
    done = endstop("tools", *three, *PASSED, "--json", **env)
    names = [tool["name"] for tool in json.loads(done.stdout)]
    python = Path(sys.executable).name.replace(".", "_")
    assert "echo" in names
    assert f"{python}_echo" in names
    assert f"{python}2_echo" in names
    assert len(names) == len(set(names))


def test_tools_shows_contracts_of_a_server(tmp_path: Path) -> None:
    done = endstop("tools", "--mcp", f"{sys.executable} {SOUND}", MARKS=str(tmp_path / "marks"))
    assert done.returncode == 0, done.stderr
    assert "effect: read-only" in done.stdout
    assert "effect: idempotent" in done.stdout
    assert "(shared)" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mcp", "no-such-server-anywhere"], "could not be started: no such file"),
        (["--mcp", "sh -c 'echo oops >&2; exit 3'"], "exit status 3; its last words: oops"),
        (["--mcp", "sh 'x"], "--mcp 1: the command cannot be read: no closing quotation"),
        (["--mcp", " "], "--mcp 1: it is empty"),
        (["--mcp", "http://127.0.0.1:9/mcp"], "could not be reached"),
        (["--mcp", "sh", "--mcp-env", "NOT_SET_AT_ALL"], "no such variable"),
        ([], "name them with --tools FILE.py or --mcp COMMAND"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    done = endstop("exec", reply(tmp_path, ("echo", {})), *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.startswith("endstop: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not marks(tmp_path)


def test_tools_wants_something_to_list() -> None:
    done = endstop("tools")
    assert done.returncode == 2
    assert "--mcp" in done.stderr


def modules_of(script: str) -> set[str]:
    # Standard output is the answer's, once the command has run.
    ending = "\nimport sys; print('MODULES', *sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script + ending],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return set(done.stderr.rpartition("MODULES")[2].split())


def test_nothing_of_mcp_is_imported_without_need(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text("from endstop import tool\n\n@tool\ndef f() -> int:\n    return 1\n")
    calls = reply(tmp_path, ("f", {}))
    run = (
        "import sys\n"
        f"sys.argv = ['endstop', 'exec', {str(calls)!r}, '--tools', {str(path)!r}]\n"
        "from endstop.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    )
    for script in ("import endstop, endstop.adapters", run):
        loaded = modules_of(script)
        assert "endstop.run.runtime" in loaded
        heavy = {"mcp", "mcp_types", "anyio", "httpx2", "endstop.adapters.mcp"} & loaded
        assert not heavy, heavy


def test_a_missing_extra_is_named() -> None:
    script = (
        "import sys\nsys.modules['mcp'] = None\nimport endstop\nfrom endstop import *\n"
        "try:\n    endstop.McpServer\nexcept endstop.CallerError as told:\n    print(told)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment()
    )
    assert "install endstop[mcp]" in done.stdout, done.stderr
