"""Lost connections, restarts, silence and nonsense: every wait has a bound, nothing is made up."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from endstop import (
    DelegationFailed,
    Effect,
    HandleCancelled,
    Outcome,
    RemoteAgent,
    StoppedBy,
    delegate,
)
from endstop.agents import Patience, Proof
from endstop.agents.remote_wire import ANSWER_BYTES
from tests.remote.house import QUICK, Server, line, loop_test, remote, running
from tests.remote.serving import card_of

# The library that connects starts a coroutine in a task. Where the end of the loop comes in that
# very step, as it may for what was abandoned, it is never begun; nothing of ours is lost by that.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'connect_tcp:RuntimeWarning")

HASTY = Patience(
    submit_s=1.0, probe_s=1.0, fetch_s=1.0, cancel_s=0.5, every_s=0.01, most_every_s=0.05, probes=2
)


@loop_test
@pytest.mark.parametrize("kind", ["stock", "endstop"])
async def test_a_stream_that_is_lost_is_taken_up_again(tmp_path: Path, kind: str) -> None:
    server = Server(tmp_path, kind)
    async with line(server.port) as wire, running() as run:
        agent = remote(card_of(f"http://127.0.0.1:{wire.port}", streaming=True))
        handle = delegate(agent, "work 40", run=run)
        await server.until(lambda: bool(agent._followed))
        for _ in range(2):
            before = wire.accepted
            wire.cut()
            await server.until(lambda before=before: wire.accepted > before + 1)
            wire.mend()
            await asyncio.sleep(0.2)
        assert (await handle)["text"] == "did 40"
        assert server.count("got") == 1, "one task, however often the line was lost"
    server.stop()


@loop_test
async def test_a_restart_of_the_server_is_survived_where_the_server_survives_it(
    tmp_path: Path,
) -> None:
    """Law 16 survives-restart, seen from the client: an honest end, and not by a timeout."""
    journal = f"sqlite:{tmp_path / 'runs.db'}"
    server = Server(tmp_path, "endstop", "--journal", journal)
    async with running() as run:
        agent = remote(server.url)
        handle = delegate(agent, "work 500", run=run)
        await server.until(lambda: bool(agent._followed) and server.count("tick") > 2)
        server.stop()
        await asyncio.sleep(0.3)
        assert not handle.done, "a connection that is lost is not yet a failure"
        server.start()
        with pytest.raises(DelegationFailed) as failed:
            await handle
        assert failed.value.answer.outcome is Outcome.FAILED
        assert "agent peer failed" in str(failed.value)
        assert server.count("got") == 1
    server.stop()


@loop_test
async def test_a_server_that_forgot_the_task_is_no_success_and_no_hang(tmp_path: Path) -> None:
    server = Server(tmp_path, "stock")
    async with running() as run:
        agent = remote(server.url)
        handle = delegate(agent, "work 500", run=run)
        await server.until(lambda: bool(agent._followed))
        server.stop()
        server.start()
        with pytest.raises(DelegationFailed, match="does not know the task") as failed:
            await handle
        assert failed.value.answer.effect is Effect.UNKNOWN
    server.stop()


@loop_test
async def test_an_agent_that_is_gone_for_good_fails_in_its_time(tmp_path: Path) -> None:
    server = Server(tmp_path, "stock")
    async with running() as run:
        agent = remote(server.url, lost_s=0.5)
        handle = delegate(agent, "work 500", run=run)
        await server.until(lambda: bool(agent._followed))
        server.stop()
        began = time.monotonic()
        with pytest.raises(DelegationFailed, match="status could not be read") as failed:
            await handle
        assert 0.4 < time.monotonic() - began < 15.0
        assert failed.value.answer.effect is Effect.UNKNOWN


@loop_test
async def test_an_agent_that_was_never_there_is_named_in_its_time() -> None:
    async with running() as run:
        agent = remote("http://127.0.0.1:1", patience=HASTY)
        began = time.monotonic()
        with pytest.raises(DelegationFailed, match="cannot be reached") as failed:
            await delegate(agent, "echo", run=run)
        assert time.monotonic() - began < 10.0
        assert "whether it took the task" not in str(failed.value), "nothing was sent"


@pytest.mark.parametrize("steps", range(3))
def test_the_end_of_a_loop_may_come_while_something_connects(steps: int) -> None:
    async def end() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.create_task(anyio.connect_tcp("127.0.0.1", port))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not connecting.done()
        server.close()

    asyncio.run(end())
    gc.collect()


Answer = Callable[[str, str, dict[str, Any]], bytes | None]


@asynccontextmanager
async def hostile(answer: Answer) -> AsyncIterator[str]:
    """A server that answers with whatever bytes it is told; None is silence."""
    open_: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [
                int(line.split(":")[1])
                for line in head.split("\r\n")
                if line.lower().startswith("content-length")
            ]
            body = await reader.readexactly(lengths[0]) if lengths else b"{}"
            path = head.split(" ")[1]
            if path.startswith("/.well-known/"):
                port = writer.get_extra_info("sockname")[1]
                card = json.dumps(card_json(f"http://127.0.0.1:{port}"))
                writer.write(http(card.encode()))
            else:
                asked = json.loads(body)
                said = answer(path, asked.get("method", ""), asked)
                if said is None:
                    await asyncio.sleep(3600)
                    return
                writer.write(said)
            await writer.drain()
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)


def card_json(url: str) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(card_of(url, streaming=True))


def http(body: bytes, kind: str = "application/json", *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", "Connection: close", *headers]
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n").encode() + body


def event(result: Any, **more: Any) -> bytes:
    return (
        b"data: "
        + json.dumps({"jsonrpc": "2.0", "id": 1, "result": result} | more).encode()
        + b"\n\n"
    )


def stream(*events: bytes) -> bytes:
    return http(b"".join(events), "text/event-stream")


def task(state: str, task_id: str = "t1") -> dict[str, Any]:
    return {"id": task_id, "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}


JUNK: dict[str, bytes] = {
    "no JSON": http(b"<html>"),
    "not HTTP": b"SSH-2.0-hello\r\n\r\n",
    "empty": http(b""),
    "an error page": http(b"oops", status=500),
    "a list": http(b"[1,2,3]"),
    "neither result nor error": http(b"{}"),
    "an error that is text": http(b'{"error": "no"}'),
    "an event without JSON": stream(b"data: {\n\n"),
    "an event with nothing in it": stream(event({})),
    "a task without an id": stream(event({"task": {"status": {"state": "TASK_STATE_WORKING"}}})),
    "a state that is none": stream(event({"task": task("DREAMING")})),
    "a task with a list for an id": stream(event({"task": {"id": [1]}})),
    "a stream that ends at once": stream(),
    "a result that is text": stream(event("done")),
    "compressed": http(b"x", "application/json", "Content-Encoding: gzip"),
    "a redirect": http(b"", "text/plain", "Location: http://127.0.0.1:1/", status=307),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
@loop_test
async def test_nonsense_instead_of_a_task_is_a_failure_in_words(junk: bytes) -> None:
    async with hostile(lambda path, method, asked: junk) as url, running() as run:
        began = time.monotonic()
        with pytest.raises(DelegationFailed, match="agent peer: ") as failed:
            await delegate(remote(url, patience=HASTY), "echo", run=run)
        assert time.monotonic() - began < 10.0
        assert failed.value.answer.outcome is Outcome.FAILED
        assert failed.value.answer.effect is Effect.UNKNOWN


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
@loop_test
async def test_nonsense_later_on_is_a_failure_in_its_time(junk: bytes) -> None:
    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        return stream(event({"task": task("WORKING")})) if "Message" in method else junk

    async with hostile(answer) as url, running() as run:
        agent = remote(url, patience=HASTY, lost_s=0.3)
        began = time.monotonic()
        with pytest.raises(DelegationFailed, match="status could not be read"):
            await delegate(agent, "echo", run=run)
        assert time.monotonic() - began < 10.0


@loop_test
async def test_another_task_than_was_asked_for_is_nonsense() -> None:
    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        if "Message" in method:
            return stream(event({"task": task("WORKING")}))
        return http(
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": task("COMPLETED", "t2")}).encode()
        )

    async with hostile(answer) as url, running() as run:
        with pytest.raises(DelegationFailed, match="answered with task 't2', not 't1'"):
            await delegate(remote(url, patience=QUICK), "echo", run=run)


@loop_test
async def test_silence_has_a_bound_everywhere() -> None:
    async with hostile(lambda path, method, asked: None) as url, running() as run:
        began = time.monotonic()
        with pytest.raises(DelegationFailed, match="within 1 s"):
            await delegate(remote(url, patience=HASTY), "echo", run=run)
        assert time.monotonic() - began < 10.0

    def taken(path: str, method: str, asked: dict[str, Any]) -> bytes | None:
        return stream(event({"task": task("WORKING")})) if "Message" in method else None

    async with hostile(taken) as url, running(grace_s=1.0) as run:
        handle = delegate(remote(url, patience=HASTY, lost_s=60.0), "echo", run=run)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert time.monotonic() - began < 10.0
        assert cancelled.value.proof is Proof.UNKNOWN, "asked for, and confirmed by nobody"


@loop_test
async def test_an_agent_that_takes_the_cancel_and_works_on_has_not_stopped() -> None:
    cancels = 0

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        nonlocal cancels
        cancels += method == "CancelTask"
        if "Message" in method or method == "SubscribeToTask":
            return stream(event({"task": task("WORKING")}))
        return http(json.dumps({"jsonrpc": "2.0", "id": 1, "result": task("WORKING")}).encode())

    async with hostile(answer) as url, running(grace_s=0.5) as run:
        handle = delegate(remote(url, patience=QUICK), "echo", run=run)
        await asyncio.sleep(0.3)
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.UNKNOWN
        assert handle.answer.effect is Effect.UNKNOWN
        assert cancels == 1, "what was taken is not asked for again"


@loop_test
async def test_a_stop_while_nobody_knows_whether_the_task_was_taken_proves_nothing() -> None:
    async with hostile(lambda path, method, asked: None) as url, running(grace_s=1.5) as run:
        handle = delegate(remote(url, patience=HASTY), "echo", run=run)
        await asyncio.sleep(0.2)
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.UNKNOWN
        assert cancelled.value.answer.stopped_by is StoppedBy.ABANDONED


@loop_test
async def test_what_may_have_arrived_is_not_sent_again() -> None:
    """Law 10 no-blind-retry."""
    sent: list[str] = []

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        sent.append(method)
        return b""

    async with hostile(answer) as url, running() as run:
        with pytest.raises(DelegationFailed, match="whether it took the task is not known"):
            await delegate(remote(url, patience=HASTY), "echo", run=run)
        assert sent == ["SendStreamingMessage"]


@loop_test
async def test_a_question_that_is_shown_once_more_is_not_asked_twice() -> None:
    messages = 0
    looks = 0

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        nonlocal messages, looks
        waiting = task("INPUT_REQUIRED")
        if "Message" in method:
            messages += 1
            return http(
                json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"task": waiting}}).encode()
            )
        looks += messages > 1
        found = task("COMPLETED") if looks > 3 else waiting
        return http(json.dumps({"jsonrpc": "2.0", "id": 1, "result": found}).encode())

    asked_for: list[str] = []
    async with hostile(answer) as url, running() as run:
        run._runtime.answer_with(lambda one: asked_for.append(one.text) or "yes")
        await delegate(remote(url, patience=QUICK, streaming=False), "echo", run=run)
        assert len(asked_for) == 1
        assert messages == 2, "the task, and one answer"


def result(found: Any) -> bytes:
    return http(json.dumps({"jsonrpc": "2.0", "id": 1, "result": found}).encode())


def refusal(words: str, code: int = -32603) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": words}}


@loop_test
async def test_a_last_frame_that_says_why_a_stream_ends_is_no_end_of_the_task() -> None:
    gone = b"event: error\ndata: " + json.dumps(refusal("too slow")).encode() + b"\n\n"
    subscribed = 0

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        nonlocal subscribed
        if "Message" in method:
            return stream(event({"task": task("WORKING")}), gone)
        if method == "SubscribeToTask":
            subscribed += 1
            done = event({"task": task("COMPLETED")})
            return stream(event({"task": task("WORKING")}), gone if subscribed < 3 else done)
        return result(task("COMPLETED" if subscribed > 2 else "WORKING"))

    async with hostile(answer) as url, running() as run:
        await delegate(remote(url), "echo", run=run)
        assert subscribed == 3


@loop_test
async def test_a_server_that_is_busy_is_asked_again() -> None:
    sent = 0

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        nonlocal sent
        sent += "Message" in method
        if sent <= 2:
            return http(b"later", "text/plain", status=503 if sent == 1 else 429)
        return (
            stream(event({"task": task("COMPLETED")}))
            if "Message" in method
            else result(task("COMPLETED"))
        )

    async with hostile(answer) as url, running() as run:
        await delegate(remote(url), "echo", run=run)
        assert sent == 3


@loop_test
@pytest.mark.parametrize("arrived", [False, True])
async def test_an_answer_that_was_lost_is_sent_again_unless_it_had_arrived(arrived: bool) -> None:
    ids: list[str] = []

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        if "Message" in method:
            ids.append(asked["params"]["message"]["messageId"])
            if len(ids) == 1:
                return result({"task": task("INPUT_REQUIRED")})
            if len(ids) == 2:
                return b""
            return result({"task": task("COMPLETED")})
        waiting = len(ids) == 1 or (len(ids) == 2 and not arrived)
        return result(task("INPUT_REQUIRED" if waiting else "COMPLETED"))

    asked_for: list[str] = []
    async with hostile(answer) as url, running() as run:
        run._runtime.answer_with(lambda one: asked_for.append(one.text) or "yes")
        handle = delegate(remote(url, streaming=False), "echo", run=run)
        await handle
        assert ids[1].startswith(f"{handle.id}-answer-")
        assert ids[1:] == [ids[1]] * (1 if arrived else 2)
        assert len(asked_for) == 1, "the human is asked once"


@loop_test
async def test_an_answer_that_is_refused_is_a_failure_in_words() -> None:
    messages = 0

    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        nonlocal messages
        messages += "Message" in method
        if messages > 1 and "Message" in method:
            return http(json.dumps(refusal("not like this", -32602)).encode())
        found = task("INPUT_REQUIRED")
        return result({"task": found} if "Message" in method else found)

    async with hostile(answer) as url, running() as run:
        run._runtime.answer_with(lambda one: "yes")
        with pytest.raises(
            DelegationFailed, match=r"refused the answer to its question: .*not like"
        ):
            await delegate(remote(url, streaming=False), "echo", run=run)


@loop_test
async def test_an_answer_without_an_end_is_cut_off() -> None:
    endless = b'{"jsonrpc": "2.0", "id": 1, "result": "' + b"x" * (ANSWER_BYTES + 10) + b'"}'
    async with hostile(lambda path, method, asked: http(endless)) as url, running() as run:
        with pytest.raises(DelegationFailed, match="longer than"):
            await delegate(remote(url), "echo", run=run)


@loop_test
async def test_a_large_answer_is_cut_to_size() -> None:
    def answer(path: str, method: str, asked: dict[str, Any]) -> bytes:
        parts = [{"text": "x" * 1_000_000}, {"text": "y"}, {"data": {"a": "z" * 300_000}}]
        artifact = {"artifactId": "a", "parts": parts}
        done = task("COMPLETED") | {"artifacts": [artifact]}
        if "Message" in method:
            return stream(event({"task": done}))
        return http(json.dumps({"jsonrpc": "2.0", "id": 1, "result": done}).encode())

    async with hostile(answer) as url, running() as run:
        found = await delegate(remote(url), "echo", run=run)
        assert len(found["text"]) <= 200_001
        assert found["left_out"] == "parts that were too many or too large: 1"
        assert "characters" in found["text"], "what is left out is said"


@loop_test
async def test_a_card_from_elsewhere_does_not_get_the_token_out_of_the_encrypted() -> None:
    from endstop.agents.remote_wire import Wire, WireError

    wire = Wire("https://agent.example", token="s3cret")
    with pytest.raises(WireError, match="the token is not sent there"):
        wire._check(card_of("http://agent.example", streaming=True))
    Wire("https://agent.example")._check(card_of("http://agent.example", streaming=True))


def test_without_the_sdk_the_extra_is_named() -> None:
    import subprocess
    import sys

    script = (
        "import sys, asyncio; sys.modules['a2a.client'] = None\n"
        "from endstop import RemoteAgent, Runtime, delegate\n"
        "async def main():\n"
        "    async with Runtime() as runtime, runtime.run('r') as run:\n"
        "        await delegate(RemoteAgent('http://127.0.0.1:1', name='peer'), 'x', run=run)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "install endstop[server]" in done.stderr
    assert RemoteAgent
