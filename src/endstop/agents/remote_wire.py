"""The wire to a remote agent: the protocol's SDK with a bound on every wait and every answer.

Each operation opens and closes its own connection: they are few, since a stream is followed and not
polled, and so nothing is left open by whoever stops half-way. What went wrong leaves here as a
`WireError` of one of a few kinds, in words. Nothing here knows what a call is. Needs the SDK.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.errors import (
    A2AError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import Error as JsonError
from google.protobuf.message import Error as ProtobufError

from endstop.agents.errors import AgentError
from endstop.core.text import safe_text
from endstop.work.steps import on_thread

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
ANSWER_BYTES = 32 * 1024 * 1024
"""Bytes of one answer, or of one event of a stream."""
_GENERATORS = 12
"""Turns of the loop that the SDK's generators take to be closed, and some more."""
_HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})
_BUSY = frozenset({429, 503})
"""By these a server says that it did not take the request: as if nothing had been sent."""
_PASSING = frozenset({408, 425, 500, 502, 504})


class Kind(StrEnum):
    """What went wrong, as far as it decides what is done about it."""

    UNSENT = "unsent"
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    GARBAGE = "garbage"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    NOT_FOUND = "not found"
    NOT_CANCELABLE = "not cancelable"


FINAL = frozenset({Kind.NOT_FOUND, Kind.REFUSED})
"""Kinds that asking again does not change."""
_AWAY = frozenset({Kind.UNSENT, Kind.UNREACHABLE})


class WireError(AgentError):
    """An operation on a remote agent failed; `kind` says how."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Wire:
    """How one remote agent is reached; `agent` is its URL or its card."""

    def __init__(
        self,
        agent: str | AgentCard,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        binding: str | None = None,
    ) -> None:
        self._agent = agent
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._bindings = [binding] if binding is not None else list(BINDINGS[:2])
        self._card = agent if isinstance(agent, AgentCard) else None

    async def card(self, limit_s: float) -> AgentCard:
        """The agent's card, asked for once. Raises WireError."""
        if self._card is None:
            assert isinstance(self._agent, str)
            async with _bounded(limit_s), _http(self._headers, limit_s) as http:
                card = await A2ACardResolver(http, self._agent).get_agent_card()
            self._check(card)
            self._card = card
        return self._card

    def _check(self, card: AgentCard) -> None:
        """A card that leads a secret out of the encrypted is not followed."""
        asked = urlsplit(str(self._agent)).scheme
        plain = [one.url for one in card.supported_interfaces if one.url.startswith("http://")]
        if asked == "https" and plain and "Authorization" in self._headers:
            raise WireError(
                Kind.REFUSED,
                "its card was read over https and leads to plain http; the token is not sent there",
            )

    async def send(
        self, request: SendMessageRequest, *, stream: bool, first_s: float, idle_s: float
    ) -> AsyncGenerator[StreamResponse]:
        """Send a message; what comes back, one response or a stream of them. Raises WireError."""
        async with self._client(first_s, idle_s, stream) as client:
            answers = client.send_message(request, context=self._context(idle_s))
            async for one in _each(answers, first_s, idle_s):
                yield one

    async def subscribe(
        self, task_id: str, *, first_s: float, idle_s: float
    ) -> AsyncGenerator[StreamResponse]:
        """Follow a task from where it stands. Raises WireError."""
        async with self._client(first_s, idle_s, True) as client:
            request = SubscribeToTaskRequest(id=task_id)
            answers = client.subscribe(request, context=self._context(idle_s))
            async for one in _each(answers, first_s, idle_s):
                yield one

    async def get(self, task_id: str, limit_s: float) -> Task:
        """A task as it stands. Raises WireError."""
        async with self._client(limit_s, limit_s, False) as client:
            async with _bounded(limit_s):
                found = await client.get_task(
                    GetTaskRequest(id=task_id), context=self._context(limit_s)
                )
            return _same(found, task_id)

    async def cancel(self, task_id: str, limit_s: float) -> Task:
        """Ask the agent to cancel a task; the task as it stands then. Raises WireError."""
        async with self._client(limit_s, limit_s, False) as client:
            async with _bounded(limit_s):
                found = await client.cancel_task(
                    CancelTaskRequest(id=task_id), context=self._context(limit_s)
                )
            return _same(found, task_id)

    def _context(self, limit_s: float) -> ClientCallContext:
        return ClientCallContext(timeout=limit_s, service_parameters=dict(self._headers))

    @asynccontextmanager
    async def _client(self, first_s: float, idle_s: float, stream: bool) -> AsyncIterator[Client]:
        card = await self.card(first_s)
        async with _in_words(), AsyncExitStack() as stack:
            http = await stack.enter_async_context(_http(self._headers, max(first_s, idle_s)))
            config = ClientConfig(
                streaming=stream,
                httpx_client=http,
                supported_protocol_bindings=self._bindings,
                use_client_preference=True,
                grpc_channel_factory=self._channel,
            )
            try:
                client = ClientFactory(config).create(card)
            except (ValueError, ImportError) as error:
                known = ", ".join(sorted({i.protocol_binding for i in card.supported_interfaces}))
                raise WireError(
                    Kind.REFUSED,
                    f"it cannot be reached by {' or '.join(self._bindings)}, its card offers "
                    f"{known or 'nothing'}: {error}",
                ) from error
            stack.push_async_callback(client.close)
            yield client

    def _channel(self, url: str) -> Any:
        """A gRPC channel: plain only where the card says http, or the agent is on this machine."""
        import grpc

        terms = [("grpc.max_receive_message_length", ANSWER_BYTES)]
        scheme, _, rest = url.rpartition("://")
        host = rest.partition("/")[0]
        if scheme == "http" or (not scheme and host.rpartition(":")[0] in _HERE):
            return grpc.aio.insecure_channel(host, options=terms)
        return grpc.aio.secure_channel(host, grpc.ssl_channel_credentials(), options=terms)


async def _each(
    answers: AsyncIterator[StreamResponse], first_s: float, idle_s: float
) -> AsyncGenerator[StreamResponse]:
    """Each response, waited for within its bound; the source is closed on every way out."""
    assert isinstance(answers, AsyncGenerator)
    try:
        async with aclosing(answers):
            limit_s = first_s
            while True:
                async with _bounded(limit_s):
                    one = await anext(answers, None)
                if one is None:
                    return
                yield one
                limit_s = idle_s
    finally:
        # The SDK's generators lie in one another, and the inner ones are closed by tasks of the
        # loop: now, and not when there may be no loop any more.
        for _ in range(_GENERATORS):
            await asyncio.sleep(0)


def _same(task: Task, task_id: str) -> Task:
    if task.id != task_id:
        raise WireError(Kind.GARBAGE, f"it answered with task {task.id!r:.80}, not {task_id!r:.80}")
    return task


@asynccontextmanager
async def _in_words() -> AsyncIterator[None]:
    """What goes wrong beside the bounded waits, such as in closing what is broken."""
    try:
        yield
    except WireError:
        raise
    except Exception as error:
        raise _explained(error) from error


class _bounded:
    """A bound on a wait, and what goes wrong in it in words. Never around a `yield`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timeout = asyncio.timeout(limit_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            words = f"it did not answer within {self._limit_s:g} s"
            raise WireError(Kind.SILENT, words) from late
        if isinstance(error, Exception) and not isinstance(error, WireError):
            raise _explained(error) from error


def _explained(error: Exception) -> WireError:
    """What the SDK raised, as one of our kinds."""
    words = safe_text(str(error) or type(error).__name__, 300)
    cause = error.__cause__
    match error:
        case TaskNotFoundError():
            return WireError(Kind.NOT_FOUND, f"it does not know the task: {words}")
        case TaskNotCancelableError():
            return WireError(Kind.NOT_CANCELABLE, words)
        case UnsupportedOperationError() | NotImplementedError():
            return WireError(Kind.UNSUPPORTED, words)
        case A2AClientTimeoutError():
            return WireError(Kind.SILENT, "it did not answer in time")
        case AgentCardResolutionError() | A2AClientError():
            kind = _kind_of(error, cause)
            return WireError(kind, f"it cannot be reached: {words}" if kind in _AWAY else words)
        case A2AError():
            return WireError(Kind.REFUSED, f"it refused: {words}")
        case httpx.ConnectError():
            return WireError(Kind.UNSENT, f"it cannot be reached: {words}")
        case OSError() | httpx.RequestError():
            return WireError(Kind.UNREACHABLE, f"the connection was lost: {words}")
        case _:
            # A parser that stumbled over what came: KeyError, TypeError, ProtobufError and others.
            what = (
                "broke the protocol"
                if isinstance(error, JsonError | ProtobufError)
                else "answered nonsense"
            )
            return WireError(Kind.GARBAGE, f"it {what}: {type(error).__name__}: {words}")


def _kind_of(error: A2AError, cause: BaseException | None) -> Kind:
    match cause:
        case httpx.HTTPStatusError():
            status = cause.response.status_code
            if status in _BUSY:
                return Kind.UNSENT
            return Kind.UNREACHABLE if status in _PASSING else Kind.REFUSED
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return Kind.UNSENT
        case httpx.DecodingError():
            return Kind.GARBAGE
        case httpx.RequestError():
            return Kind.UNREACHABLE
        case None | ValueError() | JsonError() | ProtobufError():
            return Kind.GARBAGE
        case _:
            # What is left is gRPC's, whose classes need not be there.
            name = getattr(getattr(cause, "code", lambda: None)(), "name", "")
            return Kind.UNREACHABLE if name in ("UNAVAILABLE", "CANCELLED") else Kind.REFUSED


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


@asynccontextmanager
async def _http(headers: Mapping[str, str], limit_s: float) -> AsyncIterator[httpx.AsyncClient]:
    # Loading the certificates takes long, and is done once.
    tls = _tls() if _tls.cache_info().currsize else await on_thread(_tls)
    transport = _Bounded(httpx.AsyncHTTPTransport(verify=tls))
    async with httpx.AsyncClient(
        # What is compressed could be of any size when it is not any more.
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=limit_s,
        transport=transport,
    ) as http:
        yield http


class _Bounded(httpx.AsyncBaseTransport):
    """Counts what comes: no answer, and no event of a stream, is longer than `ANSWER_BYTES`."""

    def __init__(self, inner: httpx.AsyncHTTPTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        response = await self._inner.handle_async_request(request)
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            await response.aclose()
            raise httpx.DecodingError(
                f"it answered compressed ({coding[:20]}), which was not asked for", request=request
            )
        assert isinstance(response.stream, httpx.AsyncByteStream)
        events = "text/event-stream" in response.headers.get("content-type", "")
        response.stream = _Counted(response.stream, request, events)
        return response

    async def aclose(self) -> None:
        """See httpx."""
        await self._inner.aclose()


class _Counted(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, request: httpx.Request, events: bool) -> None:
        self._inner = inner
        self._request = request
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        came = 0
        async for chunk in self._inner:
            came += len(chunk)
            if self._events and (end := max(chunk.rfind(b"\n\n"), chunk.rfind(b"\r\n\r\n"))) >= 0:
                came = len(chunk) - end
            if came > ANSWER_BYTES:
                raise httpx.DecodingError(
                    f"its answer is longer than {ANSWER_BYTES} bytes", request=self._request
                )
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
