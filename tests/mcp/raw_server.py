"""An MCP server written by hand, standard library only: for what a sound server never does.

`python raw_server.py [MODE]`. Every line that it receives goes into the file that LOG names; what
its tools do, into the one that MARKS names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
_lock = threading.Lock()
waiting: dict[Any, threading.Event] = {}

FAMILY = """
import os, signal, sys, time
kind = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if kind == "daemon":
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
with open(sys.argv[2], "a") as file:
    file.write(f"{kind} {os.getpid()}\\n")
time.sleep(600)
"""


def mark(word: str) -> None:
    with open(os.environ["MARKS"], "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


def write(data: bytes) -> None:
    with _lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(number: Any, words: str) -> None:
    send({"id": number, "result": {"content": [{"type": "text", "text": words}]}})


def spawn_family() -> None:
    """Children of every kind; those that hold the pipes hold ours."""
    marks = os.environ["MARKS"]
    open(marks, "a", encoding="utf-8").close()
    for kind in ("child", "session", "daemon"):
        subprocess.Popen(
            [sys.executable, "-S", "-c", FAMILY, kind, marks],
            start_new_session=kind == "session",
        )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with open(marks, encoding="utf-8") as file:
            if len(file.read().split("\n")) > 3:
                return
        time.sleep(0.01)


NAMES = [
    "silent",
    "late",
    "refuse",
    "flood",
    "junk",
    "huge",
    "endless",
    "needs_input",
    "big",
    "twice",
    "surrogate",
    "garbled",
    "shapeless",
    "family",
    "crash",
    "sample",
    "close_output",
    "echo",
    "slow_echo",
    "environment",
]


CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def listed() -> list[Any]:
    any_object = {"type": "object"}
    tools: list[Any] = [{"name": name, "inputSchema": any_object} for name in NAMES]
    if MODE == "hints":
        key = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
        hints: dict[str, dict[str, bool]] = {
            "add": {"readOnlyHint": True},
            "put": {"idempotentHint": True, "destructiveHint": False},
            "wipe": {"destructiveHint": True, "idempotentHint": True},
            "plain": {},
        }
        tools += [
            {"name": name, "inputSchema": key, "annotations": hint} for name, hint in hints.items()
        ]
    if MODE == "odd_tools":
        tools = [
            {"name": "fine", "inputSchema": any_object},
            {"name": "no_schema"},
            {"name": 7, "inputSchema": any_object},
            "not even an object",
            {"name": "a b", "inputSchema": any_object},
            {"name": "a/b", "inputSchema": any_object},
            {"name": "ü" * 3, "inputSchema": any_object},
            {"name": "x" * 200, "inputSchema": any_object},
            {"name": "x" * 201, "inputSchema": any_object},
            {"name": "bad_properties", "inputSchema": {"type": "object", "properties": 5}},
            {"name": "loop", "inputSchema": {"type": "object", "$ref": "#"}},
        ]
    return tools


def call(number: Any, params: dict[str, Any]) -> None:
    name = params["name"]
    arguments = params.get("arguments") or {}
    stopped = waiting[number] = threading.Event()
    match name:
        case "silent":
            mark("silent began")
        case "late":
            mark("late began")
            stopped.wait(60)
            time.sleep(0.1)
            text(number, "done all the same")
        case "refuse":
            mark("refuse began")
            stopped.wait(60)
            send({"id": number, "error": {"code": -32000, "message": "cancelled as you wish"}})
        case "flood":
            token = params["_meta"]["progressToken"]
            odd = {"method": "notifications/progress", "params": {"progress": "much"}}
            notice = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
            for step in range(5_000):
                send(notice)
                send(odd)
                progress = {"progressToken": token, "progress": step, "total": 5_000}
                send({"method": "notifications/progress", "params": progress})
            text(number, "flooded")
        case "junk":
            write(b"this is no JSON\n\n\xff\xfe\x00binary\n[1, 2]\n{}\n" + b"[" * 50_000 + b"\n")
            text(number, "after the junk")
        case "huge":
            text(number, "x" * int(arguments["size"]))
        case "needs_input":
            given = params.get("inputResponses")
            if given is None:
                schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
                form = {"mode": "form", "message": "How large?", "requestedSchema": schema}
                request = {"method": "elicitation/create", "params": form}
                result = {"inputRequests": {"q": request}, "requestState": "state-1"}
                send({"id": number, "result": {"resultType": "input_required", **result}})
            else:
                said = {"given": given, "state": params.get("requestState")}
                content = [{"type": "text", "text": json.dumps(said)}]
                send({"id": number, "result": {"resultType": "complete", "content": content}})
        case "endless":
            write(b'{"jsonrpc": "2.0", "id": %d, "result": "' % number)
            for _ in range(300):
                write(b"x" * 65_536)
        case "big":
            text(number, "head" + "x" * 3_000_000 + "tail")
        case "twice":
            text(number, "first")
            text(number, "second")
        case "surrogate":
            content = '[{"type": "text", "text": "half \\ud800 of a pair"}]'
            write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": ' % number)
            write(content.encode() + b', "structuredContent": {"x": NaN}}}\n')
        case "garbled":
            write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [}}}\n' % number)
        case "shapeless":
            send({"id": number, "result": {"content": "no list"}})
        case "family":
            spawn_family()
            if not arguments.get("hang"):
                text(number, "started")
        case "crash":
            mark("crashed")
            sys.stderr.write("Traceback: the reason of the crash\n")
            sys.stderr.flush()
            os._exit(9)
        case "close_output":
            os.close(1)
            time.sleep(600)
        case "sample":
            send({"id": "s1", "method": "sampling/createMessage", "params": {"messages": []}})
            waiting["s1"] = threading.Event()
            waiting["s1"].wait(30)
            text(number, json.dumps(answers["s1"]))
        case "echo":
            text(number, json.dumps(arguments))
        case "environment":
            text(number, json.dumps(sorted(os.environ)))
        case "slow_echo":
            mark("slow_echo began")
            time.sleep(float(arguments["seconds"]))
            text(number, "echoed")
        case _:
            text(number, f"{name}: {arguments}")


answers: dict[Any, Any] = {}


def handle(message: dict[str, Any]) -> None:
    number, method = message.get("id"), message.get("method")
    match method:
        case "initialize" if MODE == "modern":
            data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
            error = {"code": -32022, "message": "newer only", "data": data}
            send({"id": number, "error": error})
        case "server/discover":
            versions = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            send({"id": number, "result": {**CACHED, **versions}})
        case "initialize":
            if MODE == "never":
                return
            if MODE == "wrong_version":
                version = "1999-01-01"
            else:
                version = message["params"]["protocolVersion"]
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
                "instructions": "Be raw.",
            }
            send({"id": number, "result": result})
        case "tools/list":
            send({"id": number, "result": {**CACHED, "tools": listed()}})
        case "tools/call":
            threading.Thread(target=call, args=(number, message["params"]), daemon=True).start()
        case "notifications/cancelled":
            event = waiting.get(message["params"]["requestId"])
            if event is not None:
                event.set()
        case None:
            answers[number] = message
            if number in waiting:
                waiting[number].set()
        case "ping":
            send({"id": number, "result": {}})


def main() -> None:
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "exits":
        print("usage: raw_server", flush=True)
        sys.stderr.write(f"no token {os.environ.get('TOKEN', '')} given\n")
        raise SystemExit(4)
    log = os.environ.get("LOG")
    for line in sys.stdin:
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(line)
        handle(json.loads(line))
        if MODE == "stops_reading" and '"tools/list"' in line:
            mark("deaf now")
            time.sleep(600)
    if MODE == "deaf":
        time.sleep(600)
    os._exit(0)


if __name__ == "__main__":
    main()
