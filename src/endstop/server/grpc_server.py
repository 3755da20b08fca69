"""gRPC: the same handler behind the third binding, in both versions of the protocol.

The token and the version are asked for before a handler sees anything. Needs the extra `grpc`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
from a2a.auth.user import UnauthenticatedUser, User
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import (
    DefaultGrpcServerCallContextBuilder,
    GrpcHandler,
)
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2_grpc
from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import A2A_ERROR_REASONS, A2AError, VersionNotSupportedError
from a2a.utils.grpc_status import status_to_grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from endstop.server.auth import Owner, Tokens
from endstop.server.front import Door
from endstop.server.guard import Guarded
from endstop.server.limits import CannotServe, Refused
from endstop.server.seen import Seen, task_id, tell

_VERSION = VERSION_HEADER.lower()


def make_grpc(
    handler: RequestHandler, tokens: Tokens, door: Door, host: str, port: int
) -> tuple[grpc.aio.Server, int]:
    """A gRPC server that is bound and not started, and the port that it has.

    Raises CannotServe for an address that cannot be had.
    """
    limits = door.limits
    server = grpc.aio.server(
        interceptors=[_Front(tokens, door)],
        maximum_concurrent_rpcs=limits.connections,
        options=[
            # Two servers on one port would share its clients.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_metadata_size", limits.header_bytes),
            ("grpc.max_concurrent_streams", limits.streams),
            # A client that is gone without a word is found, and its stream with it.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ],
    )
    guarded = handler if isinstance(handler, Guarded) else Guarded(handler)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(  # type: ignore[no-untyped-call]
        _Service(guarded, _Contexts("1", tokens)), server
    )
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(  # type: ignore[no-untyped-call]
        CompatGrpcHandler(guarded, _Contexts("0", tokens)), server
    )
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise CannotServe(
            f"gRPC cannot listen on {address}: another program does, or it is not here"
        )
    return server, bound


class _Service(GrpcHandler):
    """The SDK's service, with the status that the specification names for a version (§5.4)."""

    async def abort_context(self, error: A2AError, context: Any) -> None:
        if not isinstance(error, VersionNotSupportedError):
            await super().abort_context(error, context)
            return
        code = grpc.StatusCode.UNIMPLEMENTED
        reason = A2A_ERROR_REASONS[VersionNotSupportedError]
        status = status_pb2.Status(code=code.value[0], message=error.message)
        status.details.add().Pack(
            error_details_pb2.ErrorInfo(reason=reason, domain="a2a-protocol.org")
        )
        context.set_trailing_metadata(status_to_grpc(status).trailing_metadata)
        await context.abort(code, error.message)


class _Contexts(DefaultGrpcServerCallContextBuilder):
    """Says who calls, and refuses versions of the protocol that this service does not speak."""

    def __init__(self, major: str, tokens: Tokens) -> None:
        self._major = major
        self._tokens = tokens

    def build(self, context: Any) -> ServerCallContext:
        version = _metadata(context.invocation_metadata(), _VERSION).decode("latin-1").strip()
        if version and version.partition(".")[0] != self._major:
            raise VersionNotSupportedError(
                f"version {version[:20]!r} of the protocol is not spoken by this service; "
                "this server speaks 1.0 and 0.3"
            )
        return super().build(context)

    def build_user(self, context: Any) -> User:
        owner = self._tokens.owner_of(_metadata(context.invocation_metadata(), "authorization"))
        return UnauthenticatedUser() if owner is None else Owner(owner)


class _Front(grpc.aio.ServerInterceptor):
    """What every call passes first: the same as in `front`, in the words of gRPC."""

    def __init__(self, tokens: Tokens, door: Door) -> None:
        self._tokens = tokens
        self._door = door

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        method = await continuation(handler_call_details)
        if method is None:
            return None
        seen = Seen(handler_call_details.method.rpartition("/")[2])
        metadata = handler_call_details.invocation_metadata
        owner = self._tokens.owner_of(_metadata(metadata, "authorization"))
        seen.owner = owner or ""
        if self._tokens and owner is None:
            words = "this agent needs a bearer token in the metadata: authorization: Bearer …"
            return _refused(method, seen, grpc.StatusCode.UNAUTHENTICATED, words)
        if self._door.closing:
            words = "the server is going down; ask again when it is back"
            return _refused(method, seen, grpc.StatusCode.UNAVAILABLE, words)
        if not method.response_streaming:
            return _unary(method, seen)
        try:
            self._door.streams.check()
        except Refused as refused:
            return _refused(method, seen, grpc.StatusCode.RESOURCE_EXHAUSTED, str(refused))
        return _stream(method, seen, self._door)


def _refused(method: Any, seen: Seen, code: grpc.StatusCode, words: str) -> Any:
    async def refuse(request: Any, context: Any) -> None:
        seen.status, seen.refused = code.name, words
        tell(seen)
        await context.abort(code, words)

    if method.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse)
    return grpc.unary_unary_rpc_method_handler(refuse)


def _unary(method: Any, seen: Seen) -> Any:
    async def answer(request: Any, context: Any) -> Any:
        seen.task = task_id(getattr(request, "id", ""))
        try:
            await _check(request, context)
            return await method.unary_unary(request, context)
        finally:
            seen.status = _code(context)
            tell(seen)

    return grpc.unary_unary_rpc_method_handler(answer, _reader(method), method.response_serializer)


def _stream(method: Any, seen: Seen, door: Door) -> Any:
    async def answer(request: Any, context: Any) -> AsyncGenerator[Any]:
        seen.task = task_id(getattr(request, "id", ""))
        seen.stream = True
        door.streams.take()
        try:
            await _check(request, context)
            async with aclosing(method.unary_stream(request, context)) as answers:
                async for one in answers:
                    seen.frames += 1
                    yield one
        finally:
            door.streams.free()
            seen.status = _code(context)
            tell(seen)

    return grpc.unary_stream_rpc_method_handler(answer, _reader(method), method.response_serializer)


_UNREADABLE = object()


def _reader(method: Any) -> Callable[[bytes], Any]:
    """Reads a request; what is none is the client's mistake, and not an error of ours."""

    def read(data: bytes) -> Any:
        try:
            return method.request_deserializer(data)
        except DecodeError:
            return _UNREADABLE

    return read


async def _check(request: Any, context: Any) -> None:
    if request is _UNREADABLE:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be read")


def _code(context: Any) -> str:
    code = context.code()
    name = code.name if isinstance(code, grpc.StatusCode) else "OK" if not code else str(code)
    return "" if name == "OK" else name


def _metadata(metadata: Any, wanted: str) -> bytes:
    for key, value in metadata or ():
        if key.lower() == wanted:
            return value if isinstance(value, bytes) else value.encode("latin-1", "replace")
    return b""
