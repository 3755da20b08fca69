"""Clients that send what no client should, and readers that do not read (laws 18 and 19)."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any

import pytest

from tests.server.house import ALICE, Served, head, message, open_files, resident_mb, until

DEEP = b"[" * 50_000
CONNECTS = int(os.environ.get("ENDSTOP_CONNECTS", "400"))
"""How many clients come and go: 10,000 are tried where somebody asks for it."""


def lines(sock: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def request(body: bytes, *more: bytes, path: bytes = b"/", length: int | None = None) -> bytes:
    """A POST by hand."""
    headers = [
        b"POST " + path + b" HTTP/1.1",
        b"host: localhost",
        b"content-type: application/json",
        b"a2a-version: 1.0",
        b"authorization: Bearer " + ALICE.encode(),
        b"content-length: %d" % (len(body) if length is None else length),
        *more,
    ]
    return b"\r\n".join(headers) + b"\r\n\r\n" + body


def is_well(served: Served) -> None:
    """The server answers, and nothing of it is in an answer or in its log."""
    assert served.rpc("GetTask", {"id": "none"})["error"]["code"] == -32001
    assert "Traceback" not in served.words()
    assert ALICE not in served.words()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"nonsense", -32700),
        (DEEP, -32700),
        (b'{"a":' * 50_000, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"GetTask"}', -32700),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"GetTask"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":"\\uD800"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"\\udfff"}}', -32602),
        (b"[]", -32600),
        (b"null", -32600),
        (b"7", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}]', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600),
        (b'{"id":1,"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":""}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"Nonsense"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":7}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":[]}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":3}}', None),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, bytes) else str(value),
)
def test_law_19_what_is_no_request_gets_an_error(
    served: Served, body: bytes, code: int | None
) -> None:
    answer = served.post(body)
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert content["jsonrpc"] == "2.0"
    if code is None:
        assert content["error"]["code"] in (-32600, -32602), content
    else:
        assert content["error"]["code"] == code, content
    assert "/site-packages" not in answer.text
    assert str(served.folder) not in answer.text
    is_well(served)


@pytest.mark.parametrize("body", [b"\xff\xfe{}", b'{"a":"\xed\xa0\x80"}', b"\x80"])
def test_law_19_what_is_not_utf_8_is_refused(served: Served, body: bytes) -> None:
    assert served.post(body).status_code == 400
    assert served.http.post("/message:send", content=body, headers=head(ALICE)).status_code == 400
    is_well(served)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (DEEP, 400),
        (b"[]", 400),
        (b'{"message":7}', 400),
        (b'{"message":{"parts":[{"text":"\\ud800"}]}}', 400),
        (b'{"message":{"messageId":"\\uDFFF","parts":[{"text":"x"}],"role":"ROLE_USER"}}', 400),
    ],
)
def test_law_19_http_json_says_what_is_wrong(served: Served, body: bytes, status: int) -> None:
    for path in ("/message:send", "/message:stream", "/v1/message:send"):
        answer = served.http.post(path, content=body, headers=head(ALICE))
        assert answer.status_code == status, (path, answer.text)
        assert "error" in answer.json(), path
    is_well(served)


@pytest.mark.parametrize("query", ["pageSize=x", "pageSize=-1", "status=NONSENSE", "%ff=%ff"])
def test_law_19_a_query_that_cannot_be_read_is_the_client_s_mistake(
    served: Served, query: str
) -> None:
    answer = served.http.get(f"/tasks?{query}", headers=head(ALICE))
    assert answer.status_code in (200, 400), answer.text
    is_well(served)


@pytest.mark.parametrize("length", ["x", "-1", "1e3", "9" * 40, "%00", "", "%e2%80%ae", "1&a=%ff"])
def test_law_19_a_history_of_no_length_is_the_client_s_mistake(served: Served, length: str) -> None:
    for path in ("/v1/tasks/none", "/tasks/none"):
        version = "0.3" if "v1" in path else "1.0"
        told = head(ALICE, a2a_version=version)
        answer = served.http.get(f"{path}?historyLength={length}", headers=told)
        assert answer.status_code in (400, 404), (path, answer.text)
    is_well(served)


def test_an_error_of_an_executor_shows_no_path(served: Served) -> None:
    task = served.send("fail")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    is_well(served)


def test_a_request_that_is_too_large_is_refused(served: Served) -> None:
    large = b" " * (8 * 1024 * 1024 + 1)
    assert served.post(large).status_code == 413
    declared = served.raw(request(b"", length=10**12))
    assert b" 413 " in lines(declared).split(b"\r\n")[0]
    declared.close()
    chunked = served.raw(
        request(b"", b"transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    )
    with pytest.raises(OSError), chunked:
        for _ in range(64):
            chunked.sendall(b"40000\r\n" + b" " * 0x40000 + b"\r\n")
        assert b" 413 " in chunked.recv(65536)
        raise OSError("it was refused, and not by a reset")
    is_well(served)


@pytest.mark.parametrize("many", [[1] * 60_000, [[]] * 60_000, {str(n): n for n in range(60_000)}])
def test_law_6_bounded_stop_a_request_of_many_values_holds_up_nobody(
    served: Served, many: Any
) -> None:
    asked = {"message": {**message("echo x"), "metadata": {"many": many}}}
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": asked}
    error = served.post(rpc).json()["error"]
    assert (error["code"], "50000 values" in error["message"]) == (-32600, True)
    assert served.http.post("/message:send", json=asked, headers=head(ALICE)).status_code == 413
    # A text is one value, whatever is in it.
    assert served.send("echo " + "a, b [c] {d}, " * 20_000)["status"]["state"].endswith("COMPLETED")
    is_well(served)


def test_a_head_that_is_too_large_is_refused(served: Served) -> None:
    for head_ in (
        b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9000 + b"\r\n",
        b"GET /" + b"z" * 60_000,
        b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000,
    ):
        with served.raw(head_) as sock:
            try:
                answer = lines(sock)
            except ConnectionResetError:
                continue
            assert answer.startswith(b"HTTP/1.1 431 "), (head_[:20], answer[:100])
    is_well(served)


def test_what_is_not_http_is_refused(served: Served) -> None:
    for data in (b"\x00" * 200, b"\x16\x03\x01\x02\x00\x01" * 20, b"HELLO\r\n\r\n", b"GET\r\n\r\n"):
        with served.raw(data) as sock:
            sock.shutdown(socket.SHUT_WR)
            assert b" 400 " in lines(sock).split(b"\r\n")[0]
    is_well(served)


@pytest.mark.parametrize("apart", [False, True])
def test_who_asks_for_another_protocol_is_answered_in_this_one(
    served: Served, *, apart: bool
) -> None:
    """Clients in Java ask for HTTP/2 with their first request, and send its body all the same."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "upgrade: x"}}
    body = json.dumps(asked).encode()
    wish = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAA")
    whole = request(body, *wish, b"connection: close")
    sock = served.raw(whole[: -len(body)] if apart else whole)
    if apart:
        time.sleep(0.05)
        sock.sendall(body)
    said = lines(sock)
    sock.close()
    assert b'"code":-32001' in said, said
    is_well(served)


def test_law_18_slow_heads_and_bodies_do_not_stay(tmp_path: Any) -> None:
    served = Served(tmp_path, agent=write_quick(tmp_path))
    try:
        # What the first task needs, such as a worker loop, stays open.
        served.send("echo warm", token=None)
        before = open_files(served.process.pid)
        silent = [served.raw() for _ in range(20)]
        half = [served.raw(b"POST / HTTP/1.1\r\nhost:") for _ in range(20)]
        waiting = [served.raw(request(b'{"jsonrpc"', length=500)) for _ in range(20)]
        assert served.rpc("GetTask", {"id": "none"}, token=None)["error"]["code"] == -32001
        assert all(lines(sock) == b"" for sock in silent)
        assert all(b" 408 " in lines(sock) for sock in [*half, *waiting])
        for sock in [*silent, *half, *waiting]:
            sock.close()
        until(lambda: open_files(served.process.pid) <= before + 2)
        # Nor does a reader that takes nothing: its connection ends, its task does not notice.
        sock = stream_of(served, "flood 3000")
        until(lambda: "the client read nothing any more" in served.words())
        until(lambda: open_files(served.process.pid) <= before + 2)
        until(lambda: newest(served, token=None)["status"]["state"] == "TASK_STATE_COMPLETED")
        sock.close()
    finally:
        served.end()


def test_law_18_connections_without_a_request_are_bounded(tmp_path: Any) -> None:
    served = Served(tmp_path, agent=write_quick(tmp_path, "connections=20, header_s=5"))
    try:
        assert "error" in served.rpc("GetTask", {"id": "none"}, token=None)
        held = [served.raw() for _ in range(19)]
        # One of them is the client's own, which is kept.
        assert "error" in served.rpc("GetTask", {"id": "none"}, token=None)
        with served.raw() as sock:
            assert lines(sock).startswith(b"HTTP/1.1 503 ")
        for sock in held:
            sock.close()
        until(lambda: answers(served))
    finally:
        served.end()


def answers(served: Served) -> bool:
    """Whether a new client is answered."""
    with served.raw(
        b"GET /.well-known/agent-card.json HTTP/1.0\r\nhost: localhost\r\n\r\n"
    ) as sock:
        return lines(sock).startswith(b"HTTP/1.1 200 ")


def write_quick(folder: Any, bounds: str = "header_s=0.5, body_s=0.5, send_s=0.5") -> Any:
    """The agent, behind a server of these bounds: whose patience is short."""
    file = folder / "quick.py"
    file.write_text(
        "import endstop.server.limits as limits\n"
        f"limits.ServerLimits.__init__.__kwdefaults__.update({bounds})\n"
        "from tests.server.agent import Agent\n"
        "agent = Agent()\n",
        encoding="utf-8",
    )
    return file


def stream_of(served: Served, text: str) -> socket.socket:
    """A stream whose reader is slow: its window is as small as can be."""
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": message(text)},
        }
    ).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(20)
    sock.connect(served.address)
    sock.sendall(request(body))
    return sock


def newest(served: Served, token: str | None = ALICE) -> dict[str, Any]:
    """The newest task."""
    listed = served.rpc("ListTasks", {"pageSize": 1}, token=token)["result"]["tasks"]
    assert isinstance(listed[0], dict)
    return listed[0]


def test_law_18_a_reader_that_reads_nothing_holds_up_nothing(served: Served) -> None:
    sock = stream_of(served, "flood 14000")
    until(lambda: newest(served)["status"]["state"] == "TASK_STATE_COMPLETED")
    task = newest(served)["id"]
    # It is told that it fell behind when it reads at last, and can read the task. Where that was
    # before its first frame, the error is the whole answer and no frame.
    said = b""
    while b"updates behind" not in said[-4000:] and len(said) < 40_000_000:
        part = sock.recv(1 << 20)
        if not part:
            break
        said += part
    sock.close()
    assert b"updates behind" in said[-4000:], said[-300:]
    assert served.state(task) == "COMPLETED"
    is_well(served)


def come_and_go(served: Served, data: bytes, count: int) -> None:
    """Clients that leave: after a byte, before one, or with a reset."""
    for at in range(count):
        sock = served.raw(data)
        if at % 3 == 0:
            sock.recv(1)
        if at % 3 == 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    # Whoever came last is served after all that left.
    is_well(served)


def test_law_18_who_asked_twice_before_the_first_answer_is_seen_to_leave(served: Served) -> None:
    task = served.send("work twice", at_once=True)["id"]
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    ended = served.words().count("SubscribeToTask")
    for _ in range(3):
        sock = served.raw(request(json.dumps(asked).encode()) * 3)
        assert sock.recv(12) == b"HTTP/1.1 200"
        sock.close()
    # Of each, one was begun; it ends when its client leaves, and not with the task.
    until(lambda: served.words().count("SubscribeToTask") == ended + 3)
    assert "is a bug" not in served.words()
    served.rpc("CancelTask", {"id": task})
    is_well(served)


def test_law_18_clients_that_come_and_go_leave_nothing_behind(served: Served) -> None:
    began = served.ticks("watched")
    task = served.send("work watched", at_once=True)["id"]
    until(lambda: served.ticks("watched") > began)
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    ).encode()
    come_and_go(served, request(body), 60)
    files, memory = open_files(served.process.pid), resident_mb(served.process.pid)
    come_and_go(served, request(body), CONNECTS)
    until(lambda: open_files(served.process.pid) <= files + 2)
    grown = resident_mb(served.process.pid) - memory
    assert grown < 8, f"{CONNECTS} clients left {grown:.1f} MB behind"
    now = served.ticks("watched")
    until(lambda: served.ticks("watched") > now + 3)
    assert served.state(task) == "WORKING"
    cancelled = served.rpc("CancelTask", {"id": task})["result"]
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    stopped = served.ticks("watched")
    time.sleep(0.2)
    assert served.ticks("watched") == stopped
    is_well(served)
