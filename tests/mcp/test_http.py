"""MCP over streamable HTTP: a sound server, and things at a URL that are none."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from endstop import BlockingRuntime, Effect, Outcome, StoppedBy
from endstop.adapters.mcp import McpError
from tests.mcp.desk import (
    SOUND,
    McpServer,
    McpTerms,
    call,
    config,
    marks,
    one,
    stopped,
    wait_for,
)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Sound:
    """The sound server at a port of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SOUND, "http", str(self.port)],
            env={**os.environ, "MARKS": str(self.place / "marks")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: listens(self.port), "the server listens")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sound]:
    server = Sound(tmp_path_factory.mktemp("http"))
    yield server
    server.end()


def test_calls_over_http(sound: Sound) -> None:
    with McpServer.http(sound.url) as server:
        assert one(server, "add", a=1, b=2).value == {"result": 3}
        assert one(server, "fail", words="no luck").outcome is Outcome.FAILED
        with BlockingRuntime(server.tools_now(), config=config()) as runtime:
            results = runtime.execute(
                [call("parallel", expected=3, patience_s=20.0) for _ in range(3)]
            )
        assert [result.value for result in results] == [{"result": 3}] * 3


def test_a_stop_over_http_is_confirmed(sound: Sound) -> None:
    async def scene() -> None:
        async with McpServer.http(sound.url) as server:
            begun = lambda: "slow began" in marks(sound.place)  # noqa: E731
            result, _ = await stopped(server, call("slow", seconds=30), begun)
            assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.UNKNOWN)
            assert result.stopped_by is StoppedBy.ASKED

    asyncio.run(scene())
    wait_for(lambda: "slow cancelled" in marks(sound.place), "its work was cancelled")
    assert "slow ended" not in marks(sound.place)


def test_a_question_over_http_finds_its_call(sound: Sound) -> None:
    with (
        McpServer.http(sound.url) as server,
        BlockingRuntime(server.tools_now(), config=config()) as runtime,
    ):
        # Two at once: over HTTP it can be told which of them asks.
        runtime.answer_with(lambda question: "7" if "width" in question.text else "n")
        results = runtime.execute([call("ask"), call("ask")])
    assert [result.value for result in results] == ["n 7", "n 7"]


def test_a_server_that_goes_and_comes_back(tmp_path: Path) -> None:
    at = Sound(tmp_path)
    try:
        terms = McpTerms(pause_s=0.01, tries=2)
        with McpServer.http(at.url, terms=terms) as server:
            at.end()
            lost = one(server, "put", key="x")
            assert (lost.outcome, lost.effect) == (Outcome.FAILED, Effect.UNKNOWN)
            assert "could not be reached" in (lost.error or "")
            at.start()
            assert one(server, "put", key="x").value == "put x"
            # This time nobody notices: the server refuses the old session, and nothing has run.
            at.end()
            at.start()
            assert one(server, "put", key="y").value == "put y"
        assert marks(tmp_path) == ["put x", "put y"], "law 10 no-blind-retry"
    finally:
        at.end()


class Web(BaseHTTPRequestHandler):
    """A web server that speaks some of MCP, as told by its path."""

    hang = threading.Event()
    began = threading.Event()
    cancelled = threading.Event()

    def log_message(self, *_: Any) -> None:
        return

    def say(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.say(405, b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        mode = self.path.strip("/")
        if mode == "locked" and self.headers.get("authorization") != "Bearer open-sesame-1":
            return self.say(401, b"who are you?", "text/plain")
        if mode == "page":
            return self.say(200, b"<html>hello</html>", "text/html")
        if mode == "moved":
            self.send_response(302)
            self.send_header("location", "https://elsewhere.example/mcp?token=secret")
            self.end_headers()
            return None
        return self.answer(mode, message)

    def answer(self, mode: str, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if number is None:
            if method == "notifications/cancelled":
                self.cancelled.set()
            if mode == "hangs":
                self.hang.wait(20)
            return self.say(202, b"")
        any_object = {"type": "object"}
        result: dict[str, Any] = {"content": [{"type": "text", "text": "fine"}]}
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}}
            result["serverInfo"] = {"name": "web", "version": "1"}
        elif method == "tools/list":
            names = ("fine", "huge", "never", "breaks", "error", "leaves")
            result = {"tools": [{"name": name, "inputSchema": any_object} for name in names]}
        elif message["params"]["name"] == "never":
            self.began.set()
            self.hang.wait(20)
        elif message["params"]["name"] == "leaves":
            self.began.set()
            self.cancelled.wait(20)
            self.connection.close()
            return None
        elif message["params"]["name"] == "breaks":
            self.connection.close()
            return None
        elif message["params"]["name"] == "error":
            return self.say(500, b"Traceback: secret things")
        elif message["params"]["name"] == "huge":
            result = {"content": [{"type": "text", "text": "x" * (9 << 20)}]}
        body = {"jsonrpc": "2.0", "id": number, "result": result}
        return self.say(200, json.dumps(body).encode())


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    server.daemon_threads = True
    # Readers that have gone are what some of these tests are about.
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Web.hang.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("locked", "HTTP status 401; it wants an authorization"),
        ("page", "text/html"),
        ("moved", "elsewhere"),
    ],
)
def test_what_is_no_server_is_told(web: str, path: str, words: str) -> None:
    with pytest.raises(McpError, match=words) as caught:
        McpServer.http(f"{web}/{path}", headers={"authorization": "Bearer wrong-key-1"}).__enter__()
    assert "wrong-key-1" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_headers_go_with_every_request(web: str) -> None:
    headers = {"authorization": "Bearer open-sesame-1"}
    with McpServer.http(f"{web}/locked", headers=headers) as server:
        assert one(server, "fine").value == "fine"


def test_one_broken_request_does_not_touch_the_others(
    web: str, caplog: pytest.LogCaptureFixture
) -> None:
    with McpServer.http(f"{web}/sound") as server:
        with BlockingRuntime(server.tools_now(), config=config()) as runtime:
            names = ["breaks", "fine", "huge", "error", "fine"]
            results = dict(enumerate(runtime.execute([call(name) for name in names])))
        assert results[0].outcome is Outcome.FAILED
        assert "longer than" in (results[2].error or "")
        assert "HTTP status 500" in (results[3].error or "")
        assert "secret things" not in (results[3].error or "")
        assert [results[n].value for n in (1, 4)] == ["fine", "fine"], "law 14 isolated-siblings"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_silent_server_is_abandoned_and_a_hung_notice_holds_up_nothing(web: str) -> None:
    async def scene() -> None:
        async with McpServer.http(f"{web}/hangs") as server:
            result, _ = await stopped(server, call("never"), Web.began.is_set)
            assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.UNKNOWN)
            assert result.stopped_by is StoppedBy.ABANDONED, "law 5 honest-effect"
            assert Web.cancelled.is_set(), "the notice was sent"
            again = await asyncio.to_thread(one, server, "fine")
            assert again.value == "fine"

    asyncio.run(scene())


def test_a_lost_connection_proves_nothing(web: str) -> None:
    Web.began.clear()
    Web.cancelled.clear()

    async def scene() -> None:
        async with McpServer.http(f"{web}/leaves") as server:
            result, _ = await stopped(server, call("leaves"), Web.began.is_set)
            assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.UNKNOWN)
            assert result.stopped_by is StoppedBy.ABANDONED, "law 5 honest-effect"

    asyncio.run(scene())
