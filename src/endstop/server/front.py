"""The front of the server: what every HTTP request passes before anything of A2A sees it.

Who asks, how much, how fast. What it refuses, it refuses in the words of the binding that was
spoken; what fails behind it is answered without a traceback and without a path. It knows of no
task, and no client can make it wait without end (law 18 audience-free).
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from endstop.server.auth import Owner, Tokens
from endstop.server.card import CARD_PATH
from endstop.server.limits import Refused, ServerLimits, Slots, holds_too_much, is_no_text
from endstop.server.patience import Patience
from endstop.server.rpc import RPC_PATH, Rpc
from endstop.server.seen import Seen, shown, tell

log = logging.getLogger("endstop.server")

JSON = "application/json"
A2A_JSON = "application/a2a+json"
STREAM = b"text/event-stream"
STREAM_PATHS = (":stream", ":subscribe")

# What JSON-RPC and HTTP+JSON call it where the protocol has no code of its own.
_RPC = {400: -32600, 401: -32600, 408: -32600, 413: -32600, 415: -32005}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    408: "DEADLINE_EXCEEDED",
    413: "OUT_OF_RANGE",
    415: "INVALID_ARGUMENT",
    421: "PERMISSION_DENIED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class StoppedReading(Exception):
    """A client took nothing for so long that its connection is given up."""


class Door:
    """What a server and its front share: the bounds, what is open, and whether it is closing."""

    __slots__ = ("arriving", "closing", "hosts", "leaving", "limits", "streams")

    def __init__(self, limits: ServerLimits, hosts: frozenset[str] | None = None) -> None:
        self.limits = limits
        # The names that clients may call the server by; any where there are none.
        self.hosts = hosts
        self.streams = Slots(limits.streams)
        self.arriving = Patience(limits.body_s)
        self.leaving = Patience(limits.send_s)
        self.closing = False

    def close(self) -> None:
        """Begin nothing new."""
        self.closing = True


class Front:
    """An ASGI app around the app that speaks A2A; JSON-RPC it hands over by the shortest way."""

    def __init__(self, app: ASGIApp, tokens: Tokens, door: Door, rpc: Rpc) -> None:
        self._app = app
        self._rpc = rpc
        self._tokens = tokens
        self._limits = door.limits
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        seen = scope["endstop"] = Seen(f"{scope['method']} {scope['path']}")
        sending = _Sending(send, seen, self._door)
        try:
            try:
                await self._let_in(scope, receive, sending)
            except Refused as refused:
                await _refuse(scope, receive, sending, refused)
        except StoppedReading:
            seen.left = "the client read nothing any more"
            raise
        except Exception:
            log.exception("a request failed; this is a bug in endstop")
            seen.status = "500"
            if sending.started:
                raise
            failure = Refused(500, "the request failed inside the server")
            await _refuse(scope, receive, sending, failure)
        finally:
            sending.close()
            tell(seen)

    async def _let_in(self, scope: Scope, receive: Receive, send: _Sending) -> None:
        headers = dict(scope["headers"])
        if self._door.hosts is not None:
            _check_host(headers.get(b"host", b""), self._door.hosts)
        open_to_all = scope["path"] == CARD_PATH and scope["method"] in ("GET", "HEAD")
        if self._tokens and not open_to_all:
            owner = self._tokens.owner_of(headers.get(b"authorization"))
            if owner is None:
                raise Refused(401, "this agent needs a bearer token: Authorization: Bearer …")
            scope["user"] = Owner(owner)
            send.seen.owner = owner
        if self._door.closing and not open_to_all:
            raise Refused(503, "the server is going down; ask again when it is back")
        if scope["path"].endswith(STREAM_PATHS):
            self._door.streams.check()
        if scope["method"] in ("GET", "HEAD"):
            _check_query(scope)
            await self._app(scope, receive, send)
            return
        try:
            body = await self._door.arriving.wait(self._read(headers, receive))
        except TimeoutError:
            limit_s = f"{self._limits.body_s:g}"
            raise Refused(408, f"the request took longer than {limit_s} s to arrive") from None
        if body or scope["path"] == RPC_PATH:
            _check_type(scope, headers.get(b"content-type", b""))
        try:
            body.decode()
        except UnicodeDecodeError:
            raise Refused(400, "the body is not UTF-8") from None
        if scope["path"] == RPC_PATH and scope["method"] == "POST":
            await self._rpc.serve(scope, body, receive, send)
            return
        if scope["path"] != RPC_PATH:
            _check_values(body, self._limits.values)
        await self._app(scope, _Again(body, receive), send)

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body, within its bounds."""
        limit = self._limits.body_bytes
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise Refused(413, f"a request has at most {limit} bytes")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the client left in the middle of its request")
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise Refused(413, f"a request has at most {limit} bytes")
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _check_type(scope: Scope, header: bytes) -> None:
    if header == b"application/json":
        return
    kind, _, parameters = header.decode("latin-1").lower().partition(";")
    rpc = scope["path"] == RPC_PATH
    allowed = (JSON,) if rpc else (A2A_JSON, JSON)
    charset = parameters.replace(" ", "").replace('"', "").partition("charset=")[2]
    if kind.strip() not in allowed or charset.partition(";")[0] not in ("", "utf-8"):
        raise Refused(415, f"the body must be {' or '.join(allowed)}, in UTF-8")


def _check_host(header: bytes, hosts: frozenset[str]) -> None:
    """A page of the web can have its own name lead here, and then speak as its reader would."""
    host = header.decode("latin-1").lower()
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name not in hosts:
        raise Refused(421, f"{shown(name)} is not this server; without a token it has one name")


def _check_query(scope: Scope) -> None:
    """The adapter for version 0.3 takes this number as it comes."""
    if not scope["path"].startswith("/v1/") or b"historyLength" not in scope["query_string"]:
        return
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for value in query.get("historyLength", ()):
        if not (value.isascii() and value.isdigit()) or len(value) > 9:
            raise Refused(400, "historyLength is a whole number, 0 or more")


def _check_values(body: bytes, values: int) -> None:
    """The same for HTTP+JSON as is done for JSON-RPC, which parses by itself."""
    if len(body) < values and b"\\u" not in body:
        return
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None
    if is_no_text(body, content):
        raise Refused(400, "the body holds text that is not Unicode")
    if holds_too_much(body, content, values):
        raise Refused(413, f"the request holds more than {values} values")


async def _refuse(scope: Scope, receive: Receive, send: Send, refused: Refused) -> None:
    status, words = refused.status, str(refused)
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = "1"
    if status in (401, 408, 413, 421):
        # The body was not read to its end.
        headers["connection"] = "close"
    content: dict[str, Any]
    if scope["path"] == RPC_PATH:
        error = {"code": _RPC.get(status, -32603), "message": words}
        content = {"jsonrpc": "2.0", "id": None, "error": error}
        if status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
            # The protocol's own error: an answer like any other.
            status = 200
    else:
        reason = "CONTENT_TYPE_NOT_SUPPORTED" if status == 415 else _STATUS[status]
        detail = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": {},
        }
        error = {"code": status, "status": _STATUS[status], "message": words, "details": [detail]}
        content = {"error": error}
    scope["endstop"].refused = words
    await JSONResponse(content, status, headers)(scope, receive, send)


class _Again:
    """Gives the app the body that was read, and then what the client does after it."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Sending:
    """What goes to the client: watched for the log, counted as a stream, and bounded in time."""

    __slots__ = ("_leaving", "_send", "_streams", "_taken", "seen", "started")

    def __init__(self, send: Send, seen: Seen, door: Door) -> None:
        self._send = send
        self._leaving = door.leaving
        self._streams = door.streams
        self._taken = False
        self.seen = seen
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            status = message["status"]
            self.seen.status = str(status) if status >= 400 else ""
            if any(n == b"content-type" and v.startswith(STREAM) for n, v in message["headers"]):
                self.seen.stream, self._taken = True, True
                self._streams.take()
        elif self.seen.stream and message.get("body"):
            self.seen.frames += 1
        try:
            await self._leaving.wait(self._send(message))
        except TimeoutError:
            raise StoppedReading from None

    def close(self) -> None:
        """The response is over, however it ended."""
        if self._taken:
            self._taken = False
            self._streams.free()
