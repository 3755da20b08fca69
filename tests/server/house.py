"""Starts `endstop serve` and speaks to it, politely or not."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

import endstop
from tests.support import ROOT
from tests.wire.harness import Server

AGENT = Path(__file__).with_name("agent.py")
ALICE = "alice-0123456789abcdef"
BOB = "bob-0123456789abcdef"
LIMIT_S = 20.0


class Served(Server):
    """One `endstop serve` on free ports; its requests are Alice's unless they say otherwise."""

    def __init__(self, folder: Path, *options: str, agent: Path = AGENT, **env: str) -> None:
        command = [sys.executable, "-m", "endstop", "serve", str(agent), "--json"]
        if "--port" not in options:
            command += ["--port", "0"]
        log = folder / f"serve-{uuid.uuid4().hex[:6]}.log"
        # The package under test, which is a copy where a bug is planted.
        ours = f"{ROOT}:{Path(endstop.__file__).parents[1]}"
        told = {"TICKS": str(folder), "NO_COLOR": "1", "PYTHONPATH": ours, **env}
        super().__init__([*command, *options], told, log)
        self.folder = folder
        host, _, port = self.url.removeprefix("http://").rstrip("/").rpartition(":")
        self.address = (host, int(port))
        self.http = httpx.Client(base_url=self.url, timeout=LIMIT_S)

    def rpc(
        self, method: str, params: dict[str, Any] | None = None, *, token: str | None = ALICE
    ) -> dict[str, Any]:
        """A JSON-RPC request and its answer."""
        answer = self.post(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}, token=token
        )
        found = answer.json()
        assert isinstance(found, dict)
        return found

    def post(self, content: Any, *, token: str | None = ALICE, **headers: str) -> httpx.Response:
        """A JSON body to the root."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.http.post("/", content=body, headers=head(token, **headers))

    def send(self, text: str, *, at_once: bool = False, **more: Any) -> dict[str, Any]:
        """A message; returns the task."""
        token = more.pop("token", ALICE)
        params = {"message": message(text, **more), "configuration": {"returnImmediately": at_once}}
        answer = self.rpc("SendMessage", params, token=token)
        assert "result" in answer, answer
        task = answer["result"]["task"]
        assert isinstance(task, dict)
        return task

    def state(self, task: str, *, token: str = ALICE) -> str:
        """The state of a task, in short."""
        answer = self.rpc("GetTask", {"id": task}, token=token)
        assert "result" in answer, answer
        return str(answer["result"]["status"]["state"]).removeprefix("TASK_STATE_")

    def ticks(self, name: str) -> int:
        """How often a body has ticked."""
        file = self.folder / name
        return file.stat().st_size if file.is_file() else 0

    def raw(self, data: bytes = b"") -> socket.socket:
        """A connection of one's own."""
        sock = socket.create_connection(self.address, timeout=LIMIT_S)
        sock.sendall(data)
        return sock

    def end(self, *arguments: Any) -> None:
        self.http.close()
        super().end(*arguments)

    def words(self) -> str:
        """What it wrote to its log."""
        return self.log.read_text(encoding="utf-8")


def head(token: str | None, **more: str) -> dict[str, str]:
    """The headers of a request."""
    headers = {"content-type": "application/json", "a2a-version": "1.0"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return headers | {name.replace("_", "-"): value for name, value in more.items()}


def message(text: str, **more: Any) -> dict[str, Any]:
    """A message of the user's."""
    return {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **more}


def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait for what tells nobody here that it happened."""
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.01)


def resident_mb(pid: int) -> float:
    """How much memory a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def open_files(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
