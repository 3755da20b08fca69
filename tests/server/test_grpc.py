"""gRPC with clients that are not polite, and what the log says of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.server.house import ALICE, Served, until

TOLD = [("authorization", f"Bearer {ALICE}"), ("a2a-version", "1.0")]


@pytest.fixture
def stub(served: Served) -> Iterator[Any]:
    with grpc.insecure_channel(str(served.said["grpc"])) as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


def say(text: str, message_id: str = "g") -> a2a_pb2.SendMessageRequest:
    part = a2a_pb2.Part(text=text)
    message = a2a_pb2.Message(message_id=message_id, role="ROLE_USER", parts=[part])
    return a2a_pb2.SendMessageRequest(message=message)


def code_of(call: Any) -> grpc.StatusCode:
    """The status that a call failed with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    code = caught.value.code()
    assert isinstance(code, grpc.StatusCode)
    assert "Traceback" not in caught.value.details()
    return code


def test_a_stream_needs_a_token_too(stub: Any) -> None:
    for call in (
        lambda: list(stub.SendStreamingMessage(say("echo x"), timeout=20)),
        lambda: list(stub.SubscribeToTask(a2a_pb2.SubscribeToTaskRequest(id="x"), timeout=20)),
        lambda: stub.GetExtendedAgentCard(a2a_pb2.GetExtendedAgentCardRequest(), timeout=20),
    ):
        assert code_of(call) is grpc.StatusCode.UNAUTHENTICATED


def test_what_is_too_large_or_no_message_is_refused(served: Served, stub: Any) -> None:
    large = say("x" * (8 * 1024 * 1024 + 1))
    code = code_of(lambda: stub.SendMessage(large, metadata=TOLD, timeout=20))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    many = [*TOLD, ("x-many", "y" * 200_000)]
    refused = code_of(lambda: stub.SendMessage(say("echo x"), metadata=many, timeout=20))
    assert refused in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
    with grpc.insecure_channel(str(served.said["grpc"])) as channel:
        raw = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        assert code_of(lambda: raw(b"\xff" * 50, metadata=TOLD, timeout=20)) in (
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.INVALID_ARGUMENT,
        )
        none = channel.unary_unary("/lf.a2a.v1.A2AService/Nothing")
        assert code_of(lambda: none(b"", metadata=TOLD, timeout=20)) is (
            grpc.StatusCode.UNIMPLEMENTED
        )
    empty = a2a_pb2.SendMessageRequest()
    assert code_of(lambda: stub.SendMessage(empty, metadata=TOLD, timeout=20)) is (
        grpc.StatusCode.INVALID_ARGUMENT
    )


def test_law_18_a_reader_that_leaves_changes_nothing(served: Served, stub: Any) -> None:
    stream = stub.SendStreamingMessage(say("work grpc", "leaves"), metadata=TOLD, timeout=60)
    task = next(iter(stream)).task.id
    until(lambda: served.ticks("grpc") > 2)
    for at in range(50):
        watching = stub.SubscribeToTask(
            a2a_pb2.SubscribeToTaskRequest(id=task), metadata=TOLD, timeout=60
        )
        if at % 2:
            next(iter(watching))
        watching.cancel()
    stream.cancel()
    now = served.ticks("grpc")
    until(lambda: served.ticks("grpc") > now + 3)
    done = stub.CancelTask(a2a_pb2.CancelTaskRequest(id=task), metadata=TOLD, timeout=20)
    assert done.status.state == a2a_pb2.TASK_STATE_CANCELED
    stopped = served.ticks("grpc")
    time.sleep(0.2)
    assert served.ticks("grpc") == stopped


def test_the_log_speaks_to_people_and_tells_no_secrets(served: Served, stub: Any) -> None:
    words = "a-word-that-nobody-else-says"
    task = stub.SendMessage(say(f"echo {words}", "secret"), metadata=TOLD, timeout=20).task
    served.send(f"echo {words}")
    served.rpc("GetTask", {"id": task.id})
    served.rpc("GetTask", {"id": "none"})
    served.rpc("GetTask", {"id": "none"}, token=None)
    code_of(lambda: stub.GetTask(a2a_pb2.GetTaskRequest(id="none"), metadata=TOLD, timeout=20))
    until(lambda: "failed with NOT_FOUND" in served.words())
    log = served.words()
    assert f"alice GetTask {task.id}: answered in" in log
    assert "alice GetTask none: answered with error -32001 in" in log
    assert "somebody POST /: refused with 401: this agent needs a bearer token" in log
    assert "alice SendMessage: answered in" in log
    assert words not in log
    assert ALICE not in log
    assert "Traceback" not in log
