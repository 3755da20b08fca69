"""Models: one POST to a provider, tried again within bounds, and its answer read within bounds.

The only file that knows the HTTP library, which it imports at the first request. Every wait in it
ends: by its own limit, by the total limit, or at once when the task that waits is cancelled, which
closes the connection (laws 6 bounded-stop and 7 every-wait-listens).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import random
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from endstop.agents.models import failures
from endstop.agents.models.failures import Redactor, sentence
from endstop.agents.models.inflate import CannotInflate, Inflater
from endstop.agents.models.protocol import Kind, ModelError
from endstop.errors import CallerError

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("endstop.agents")

T = TypeVar("T")

_ERROR_BODY_LIMIT = 64 * 1024
_ERROR_BODY_S = 5.0
_LINGER_S = 0.05
_KEPT_S = 60.0
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """How long and how much: every limit of one reply. Times are in seconds.

    `connect_s` bounds reaching the server, `idle_s` how long it may send nothing, `total_s` the
    whole reply with all its retries. A request that failed before anything of a reply came is
    tried again at most `retries` times, after `first_s`, then twice as long each time, at most
    `most_s`; where the provider says how long (Retry-After), that long, but never longer than
    `retry_after_s`: what should wait longer fails at once and says so. A reply has at most
    `reply_bytes` bytes and one event of its stream `event_bytes`.
    """

    connect_s: float = 10.0
    idle_s: float = 180.0
    total_s: float = 1800.0
    retries: int = 4
    first_s: float = 0.5
    most_s: float = 20.0
    retry_after_s: float = 60.0
    reply_bytes: int = 64 * 1024 * 1024
    event_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("connect_s", "idle_s", "total_s", "reply_bytes", "event_bytes"):
            value = getattr(self, name)
            if not _is_number(value) or not value > 0:
                raise CallerError(f"HttpLimits: {name} is {value!r}: give more than 0")
        for name in ("retries", "first_s", "most_s", "retry_after_s"):
            value = getattr(self, name)
            if not _is_number(value) or not value >= 0:
                raise CallerError(f"HttpLimits: {name} is {value!r}: give 0 or more")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Failed(Exception):
    """An attempt failed: with what, and whether another one could succeed. Stays in this room."""

    def __init__(self, error: ModelError, *, again: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again


class Answer:
    """The body of one successful answer, still arriving."""

    def __init__(self, http: Http, response: httpx2.Response) -> None:
        self._http = http
        self._response = response
        self._size = 0
        # Set by whoever reads: whether anything of the reply itself has come.
        self.begun = False

    async def feed(self, take: Callable[[bytes], bool]) -> None:
        """Hand every piece of the body to `take`, until it returns True or the body has ended.

        Raises `ModelError` where the body is too large or cannot be read.
        """
        inflater = self._inflater()
        chunks = self._response.aiter_raw()
        async with contextlib.aclosing(chunks):
            while (chunk := await self._next(chunks)) is not None:
                for piece in self._inflated(inflater, chunk):
                    self._count(len(piece))
                    if take(piece):
                        await self._linger(chunks)
                        return
        if not inflater.whole:
            raise failures.broken(self._http.where, "the compressed answer was cut off")

    async def _next(self, chunks: AsyncGenerator[bytes]) -> bytes | None:
        # Only what the connection raises is meant, not what the reader of a piece does.
        try:
            return await anext(chunks, None)
        except self._http.faults as error:
            raise self._http.failed(error, begun=self.begun) from error

    def _inflated(self, inflater: Inflater, chunk: bytes) -> Iterator[bytes]:
        try:
            yield from inflater.feed(chunk)
        except CannotInflate as error:
            raise failures.broken(self._http.where, f"the answer {error}") from None

    def _inflater(self) -> Inflater:
        coding = self._response.headers.get("content-encoding", "")
        try:
            return Inflater(coding)
        except CannotInflate as error:
            raise ModelError(
                "bad_request",
                f"{self._http.where} sent an answer that {error}, though none was asked for."
                " Set the header Accept-Encoding to identity on the way.",
            ) from None

    def _count(self, size: int) -> None:
        self._size += size
        limit = self._http.limits.reply_bytes
        if self._size > limit:
            raise ModelError(
                "too_large",
                f"{self._http.where} sent a reply of more than {limit} bytes; it was given up."
                " Ask for less, or raise reply_bytes in HttpLimits.",
            )

    async def _linger(self, chunks: AsyncGenerator[bytes]) -> None:
        # All is said; a body that ends now leaves the connection usable for the next request.
        with contextlib.suppress(TimeoutError, *self._http.faults):
            async with asyncio.timeout(_LINGER_S):
                async for _ in chunks:
                    pass


class Http:
    """Sends requests to one address. One pool of connections per event loop.

    A pool is closed with `aclose`, or when its event loop shuts down.
    """

    def __init__(
        self,
        *,
        url: str,
        where: str,
        headers: Callable[[], Mapping[str, str]],
        redact: Callable[[], Redactor],
        limits: HttpLimits,
    ) -> None:
        if importlib.util.find_spec("httpx2") is None:
            raise CallerError(
                "Models over HTTP need the package httpx2, which is not installed here:"
                ' pip install "endstop[models]"'
            )
        self.where = where
        self.limits = limits
        self._url = url
        self._headers = headers
        self._redact = redact
        self._library: ModuleType | None = None
        self._lock = threading.Lock()
        self._pools: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[httpx2.AsyncClient, AsyncGenerator[None]]
        ] = weakref.WeakKeyDictionary()

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """What the library raises when a connection cannot be made, breaks or keeps silent."""
        assert self._library is not None, "a request has been sent"
        fault: type[Exception] = self._library.TransportError
        return (fault,)

    async def ask(self, payload: bytes, read: Callable[[Answer], Awaitable[T]]) -> T:
        """POST `payload` and return what `read` makes of the answer. Raises `ModelError`.

        `read` may raise `Failed` to say that another attempt could succeed.
        """
        total_s = self.limits.total_s
        scope = asyncio.timeout(total_s)
        try:
            async with scope:
                return await self._attempts(payload, read)
        except TimeoutError:
            if not scope.expired():
                raise
            raise ModelError(
                "timeout",
                f"{self.where} did not finish its reply within {total_s:g} s."
                " Ask for less, or raise total_s in HttpLimits.",
            ) from None

    async def _attempts(self, payload: bytes, read: Callable[[Answer], Awaitable[T]]) -> T:
        until = time.monotonic() + self.limits.total_s
        tried = 0
        while True:
            tried += 1
            try:
                return await self._attempt(payload, read)
            except Failed as failed:
                rest_s = self._rest_s(failed, tried, until)
                if rest_s is None:
                    raise _told(failed.error, tried) from failed.__cause__
                log.info("%s (Asked again in %.1f s.)", failed.error, rest_s)
            await asyncio.sleep(rest_s)

    def _rest_s(self, failed: Failed, tried: int, until: float) -> float | None:
        """How long to rest before the next attempt; None where there is none."""
        limits, wanted_s = self.limits, failed.error.retry_after_s
        if not failed.again or tried > limits.retries:
            return None
        if wanted_s is not None and wanted_s > limits.retry_after_s:
            return None
        doubled_s = limits.first_s * 2.0 ** min(tried - 1, 30)
        # Many clients that were turned away together must not come back together.
        rest_s = min(doubled_s, limits.most_s) * random.uniform(0.5, 1.0)
        if wanted_s is not None:
            rest_s = max(rest_s, wanted_s)
        assert rest_s <= max(limits.most_s, limits.retry_after_s), "a rest is bounded"
        return None if time.monotonic() + rest_s >= until else rest_s

    async def _attempt(self, payload: bytes, read: Callable[[Answer], Awaitable[T]]) -> T:
        headers = dict(self._headers())
        client = await self._client()
        library = self._library
        assert library is not None, "the client came from it"
        try:
            request = client.build_request("POST", self._url, content=payload, headers=headers)
            response = await client.send(request, stream=True)
        except (library.TransportError, library.InvalidURL, UnicodeError) as error:
            raise self.failed(error, begun=False) from error
        async with contextlib.aclosing(response):
            if not response.is_success:
                raise await self._refused(response)
            return await read(Answer(self, response))

    async def _refused(self, response: httpx2.Response) -> Failed:
        body = bytearray()
        with contextlib.suppress(CannotInflate, TimeoutError, *self.faults):
            inflater = Inflater(response.headers.get("content-encoding", ""))
            chunks = response.aiter_raw()
            async with contextlib.aclosing(chunks), asyncio.timeout(_ERROR_BODY_S):
                async for chunk in chunks:
                    for piece in inflater.feed(chunk):
                        body += piece
                        if len(body) >= _ERROR_BODY_LIMIT:
                            break
                    if len(body) >= _ERROR_BODY_LIMIT:
                        break
        error, again = failures.from_status(
            self.where,
            response.status_code,
            response.headers,
            bytes(body[:_ERROR_BODY_LIMIT]),
            self._redact(),
        )
        return Failed(error, again=again)

    def failed(self, error: Exception, *, begun: bool) -> Failed:
        """What the library raised, in words. As long as nothing of a reply has `begun`, nothing was
        shown, and asking again shows nothing twice."""
        library = self._library
        assert library is not None, "a request has been sent"
        words = self._redact()(str(error)) or type(error).__name__
        match error:
            case library.ConnectTimeout() | library.PoolTimeout():
                what = f"could not be reached within {self.limits.connect_s:g} s"
                return Failed(self._failure("unavailable", what, ""), again=True)
            case library.TimeoutException():
                what = f"sent nothing for {self.limits.idle_s:g} s"
                return Failed(self._failure("timeout", what, ""), again=False)
            case library.ConnectError() | library.ProxyError():
                remedy = "Is it running, and is base_url right?"
                text = sentence(f"{self.where} cannot be reached", words, remedy)
                again = "certificate" not in words.lower()
                return Failed(ModelError("unavailable", text), again=again)
            case library.LocalProtocolError() | library.InvalidURL() | UnicodeError():
                # Its words may quote a header, and a header may be the key.
                what = f"cannot be asked like this ({type(error).__name__})"
                return Failed(self._failure("bad_request", what, ""), again=False)
            case _ if not begun:
                what = "broke the connection before its reply began"
                return Failed(self._failure("unavailable", what, words), again=True)
            case _:
                what = f"broke off in the middle of its reply: {words}"
                return Failed(failures.broken(self.where, what), again=False)

    def _failure(self, kind: Kind, what: str, words: str) -> ModelError:
        return ModelError(kind, sentence(f"{self.where} {what}", words, failures.REMEDY[kind]))

    async def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._pools.get(loop)
        if found is not None and not found[0].is_closed:
            return found[0]
        # To import the library and to read the certificates takes long enough to be felt.
        client = await asyncio.to_thread(self._made)
        guard = _closed_with_its_loop(client)
        with self._lock:
            for other in [one for one in self._pools if one.is_closed()]:
                del self._pools[other]
            found = self._pools.get(loop)
            if found is not None and not found[0].is_closed:
                # Another request was faster; this client has no connections yet.
                return found[0]
            self._pools[loop] = (client, guard)
        await anext(guard)
        return client

    def _made(self) -> httpx2.AsyncClient:
        import httpx2

        self._library = httpx2
        limits = self.limits
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(limits.idle_s, connect=limits.connect_s, pool=limits.connect_s),
            limits=httpx2.Limits(keepalive_expiry=_KEPT_S),
            verify=httpx2.create_ssl_context(),
            # A proxy for the world cannot reach a server on this machine.
            trust_env=httpx2.URL(self._url).host not in _LOCAL,
        )

    async def aclose(self) -> None:
        """Close the connections of this event loop, and have those of others closed there."""
        here = asyncio.get_running_loop()
        with self._lock:
            pools = list(self._pools.items())
            self._pools.clear()
        for loop, (_, guard) in pools:
            if loop is here:
                await guard.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_close(guard), loop)


async def _closed_with_its_loop(client: httpx2.AsyncClient) -> AsyncGenerator[None]:
    """A generator that holds a client until it is closed, as event loops do when they shut down."""
    try:
        yield
    finally:
        await client.aclose()


async def _close(guard: AsyncGenerator[None]) -> None:
    await guard.aclose()


def _told(error: ModelError, tried: int) -> ModelError:
    if tried == 1:
        return error
    return ModelError(
        error.kind,
        f"{error.message} (Tried {tried} times.)",
        status=error.status,
        retry_after_s=error.retry_after_s,
    )
