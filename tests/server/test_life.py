"""Up and down: what cannot be served, signals, a restart, two servers on one journal."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from a2a.types.a2a_pb2 import AgentCard

from endstop.a2a import EndstopRequestHandler
from endstop.cli.loading import load_module
from endstop.cli.serving import Found, find
from endstop.errors import CallerError, JournalError
from endstop.server.serve import Serving
from tests.server.agent import Agent
from tests.server.house import AGENT, Served, head, message, until
from tests.support import ROOT

OVER = {"COMPLETED", "CANCELED", "FAILED", "REJECTED"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Starts servers; ends them after the test."""
    made: list[Served] = []

    def begin(*options: str, **env: str) -> Served:
        made.append(Served(tmp_path, "--grace", "0.3", *options, **env))
        return made[-1]

    yield begin
    for one in made:
        one.end(signal.SIGKILL)


def endstop(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "endstop", "serve", *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(*arguments: str, **env: str) -> str:
    """What the command says when it cannot serve: one line, no traceback."""
    done = endstop(*arguments, **env)
    assert done.returncode == 2, done
    assert done.stderr.startswith("endstop: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_what_cannot_be_served_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}: Address already in use" in refused(str(AGENT), "--port", port)
        assert "gRPC cannot listen on" in refused(str(AGENT), "--port", "0", "--grpc-port", port)
    assert "there is no file" in refused(str(tmp_path / "none.py"), "--port", "0")


def found_in(tmp_path: Path, text: str) -> Found:
    """What is found in a file."""
    file = tmp_path / "file.py"
    file.write_text(f"from tests.server.agent import Agent\n{text}\n", encoding="utf-8")
    return find(load_module(str(file)), "file.py", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("del Agent", "declares no agent; name it `agent`"),
        ("agent = 7", "the agent is a int; make it an AgentExecutor"),
        ("a, b = Agent(), Agent()", "declares 2 agents; name the one to serve `agent`"),
        ("agent, agent_card = Agent(), {}", "agent_card is a dict; make it an AgentCard"),
        ("class agent(Agent):\n    def __init__(self, x): ...", r"agent\(\) raised TypeError"),
        ("import nonsense_that_is_not_there", "line 2: loading it raised ModuleNotFoundError"),
    ],
)
def test_a_file_that_declares_no_agent_is_explained(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        found_in(tmp_path, text)


def test_an_agent_is_found_and_has_a_card(tmp_path: Path) -> None:
    found = found_in(tmp_path, "class Weather(Agent):\n    '''Tells the\n    weather.'''")
    assert (found.card.name, found.card.description) == ("Weather", "Tells the weather.")
    assert found.card.capabilities.streaming
    assert found.card.skills
    found = found_in(
        tmp_path,
        "from endstop.server import card_for\n"
        "executor = Agent()\n"
        "agent_card = card_for('Named', 'It has a card.')\n"
        "extended_agent_card = card_for('Named', 'More of it.')",
    )
    assert found.card.name == "Named"
    assert found.card.capabilities.extended_agent_card
    assert found.extended is not None


def test_nobody_else_is_let_in_without_a_token() -> None:
    words = refused(str(AGENT), "--port", "0", "--host", "0.0.0.0")
    assert "without a token anybody there could use" in words
    assert "can be guessed" in refused(str(AGENT), "--port", "0", "--token", "short")
    same = "a-token-0123456789"
    words = refused(str(AGENT), "--port", "0", ENDSTOP_TOKEN=f"a={same} b={same}")
    assert "another owner's" in words
    assert same not in words


@pytest.mark.serial
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_law_16_a_signal_ends_streams_honestly_and_leaves_nothing_working(
    start: Any, tmp_path: Path, number: signal.Signals
) -> None:
    journal = str(tmp_path / "tasks.db")
    first = start("--journal", journal)
    parked = first.send("ask", token=None)
    assert parked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    frames: list[dict[str, Any]] = []
    watched: list[dict[str, Any]] = []
    readers = [
        threading.Thread(
            target=read_stream,
            args=(first, "SendStreamingMessage", {"message": message("work long")}, frames),
        ),
        threading.Thread(
            target=read_stream, args=(first, "SubscribeToTask", {"id": parked["id"]}, watched)
        ),
    ]
    for reader in readers:
        reader.start()
    until(lambda: first.ticks("long") > 2 and watched)
    before = time.monotonic()
    first.process.send_signal(number)
    assert first.process.wait(20) == 0
    assert time.monotonic() - before < 5
    for reader in readers:
        reader.join(20)
    stopped = first.ticks("long")
    # The last frame says what became of the task, and why.
    status = frames[-1]["result"]["statusUpdate"]["status"]
    assert status["state"] == "TASK_STATE_FAILED", frames[-1]
    text = status["message"]["parts"][0]["text"]
    assert "shut down" in text
    # Whoever watched what goes on later is told that, and not left alone.
    assert "went down" in watched[-1]["error"]["message"], watched
    assert "Traceback" not in first.words()
    assert first.words().rstrip().endswith("endstop: stopped")
    again = start("--journal", journal)
    assert again.ticks("long") == stopped
    (task,) = [t for t in tasks_of(again) if t["id"] != parked["id"]]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"][0]["text"] == text
    # What waited for its user still does, and goes on.
    assert again.state(parked["id"], token=None) == "INPUT_REQUIRED"
    more = again.send("echo this", token=None, taskId=parked["id"])
    assert more["status"]["state"] == "TASK_STATE_COMPLETED"


def read_stream(
    served: Served, method: str, params: dict[str, Any], frames: list[dict[str, Any]]
) -> None:
    """Read a stream to its end."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with served.http.stream("POST", "/", json=body, headers=head(None)) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                frames += [json.loads(line[6:])]


def tasks_of(served: Served) -> list[dict[str, Any]]:
    """All tasks."""
    found = served.rpc("ListTasks", token=None)["result"]["tasks"]
    assert isinstance(found, list)
    return found


@pytest.mark.serial
def test_law_6_bounded_stop_a_second_signal_does_not_wait(start: Any) -> None:
    server = start("--grace", "8")
    server.send("stubborn wedge", at_once=True, token=None)
    until(lambda: server.ticks("wedge") > 2)
    server.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(1)
    with pytest.raises(httpx.ConnectError):
        server.rpc("ListTasks", token=None)
    before = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert time.monotonic() - before < 5


@pytest.mark.serial
def test_law_16_after_a_kill_no_task_stays_working_and_cancel_works(
    start: Any, tmp_path: Path
) -> None:
    journal = str(tmp_path / "tasks.db")
    first = start("--journal", journal)
    working = first.send("work silent", at_once=True, token=None)["id"]
    parked = first.send("ask", token=None)["id"]
    done = first.send("echo done", token=None)["id"]
    until(lambda: first.ticks("silent") > 2)
    first.process.kill()
    first.process.wait(10)
    again = start("--journal", journal)
    until(lambda: again.state(working, token=None) in OVER)
    assert again.state(working, token=None) == "FAILED"
    assert again.state(done, token=None) == "COMPLETED"
    assert again.state(parked, token=None) == "INPUT_REQUIRED"
    cancelled = again.rpc("CancelTask", {"id": parked}, token=None)["result"]
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    assert again.state(parked, token=None) == "CANCELED"


@pytest.mark.serial
def test_law_2_right_target_the_other_server_stops_a_silent_tool(
    start: Any, tmp_path: Path
) -> None:
    journal = str(tmp_path / "tasks.db")
    here, there = start("--journal", journal), start("--journal", journal)
    task = here.send("work shared", at_once=True, token=None)["id"]
    until(lambda: here.ticks("shared") > 2)
    assert there.state(task, token=None) == "WORKING"
    before = time.monotonic()
    answer = there.rpc("CancelTask", {"id": task}, token=None)["result"]
    took_s = time.monotonic() - before
    assert answer["status"]["state"] == "TASK_STATE_CANCELED"
    stopped = here.ticks("shared")
    assert took_s < 1.0, took_s
    time.sleep(0.3)
    assert here.ticks("shared") == stopped
    for one in (here, there):
        assert one.state(task, token=None) == "CANCELED"


@pytest.mark.serial
def test_law_6_bounded_stop_a_body_that_blocks_freezes_no_one_else(start: Any) -> None:
    server = start()
    blocked = server.send("block loop", at_once=True, token=None)["id"]
    until(lambda: server.ticks("loop") > 2)
    before = time.monotonic()
    assert server.send("echo quick", token=None)["status"]["state"] == "TASK_STATE_COMPLETED"
    assert server.state(blocked, token=None) == "WORKING"
    cancelled = server.rpc("CancelTask", {"id": blocked}, token=None)["result"]
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    assert time.monotonic() - before < 1.9, "it waited for the body that blocks"


def test_without_a_token_it_answers_to_its_own_name_only(start: Any) -> None:
    server = start()
    port = server.address[1]
    asked = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", f"[::1]:{port}"):
        assert server.post(asked, token=None, host=host).status_code == 200, host
    for host in (f"evil.example:{port}", "127.0.0.1.evil.example", "evil.example"):
        answer = server.post(asked, token=None, host=host)
        assert answer.status_code == 421, host
        assert "result" not in answer.text
        card = server.http.get("/.well-known/agent-card.json", headers={"host": host})
        assert card.status_code == 421, host


def test_it_says_what_it_serves_and_where(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "endstop", "serve", str(AGENT), "--port", "0", "--name", "Tester"],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "TICKS": str(tmp_path),
            "ENDSTOP_TOKEN": "alice=0123456789abcdef0123",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while "Ctrl-C" not in said:
        said += process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said += process.stdout.read()
    process.stdout.close()
    assert process.wait(20) == 0
    assert said.startswith("endstop serves Tester")
    assert "JSON-RPC" in said
    assert "needed, from alice" in said
    assert "0123456789abcdef0123" not in said
    assert "tasks are gone when this ends" in said


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run some Python."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("missing", ["a2a", "uvicorn"])
def test_a_missing_extra_is_said_in_words(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom endstop.cli.main import main; main()"
    done = python(code, "serve", str(AGENT), "--port", "0")
    assert done.returncode == 2
    assert done.stderr == f"endstop: serving an agent needs {missing}: install endstop[server]\n"


def test_nothing_of_the_server_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, endstop, endstop.a2a, endstop.server, endstop.cli.main\n"
        "print(sorted({'a2a', 'starlette', 'uvicorn', 'grpc', 'uvloop', 'httpx'} "
        "& set(sys.modules)))"
    )
    done = python(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_handler_that_cannot_let_go_keeps_no_client() -> None:
    """The error is raised, and nothing listens any more."""

    class Stubborn(EndstopRequestHandler):
        async def aclose(self) -> None:
            await super().aclose()
            raise JournalError("the disk is full")

    async def play() -> None:
        card = AgentCard(name="agent", description="d", version="1")
        server = Serving(Stubborn(Agent(), agent_card=card), card)
        await server.start()
        at = urlsplit(server.url)
        with pytest.raises(JournalError, match="the disk is full"):
            await server.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(at.hostname, at.port)

    asyncio.run(play())
