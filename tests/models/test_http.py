"""Faults of a real server: each becomes one error in words, and what is not whole is no reply."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import (
    Ask,
    Delta,
    HttpLimits,
    ModelError,
    ModelReply,
    OpenAICompatible,
    http,
)
from endstop.work.loopthread import LoopThread
from tests.models.server import (
    DONE,
    WAIT_S,
    Answer,
    Line,
    Request,
    answers,
    chat,
    chunk,
    event,
    hangs_up,
    joined,
    play,
    resets,
    serving,
    streams,
)

ASK = Ask(messages=[{"role": "user", "content": "hello"}])
CALL = {"index": 0, "id": "c1", "function": {"name": "pay", "arguments": '{"amount": 1}'}}
WHOLE = {
    "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]
}


def once(*given: Answer, limits: HttpLimits | None = None, **options: Any) -> ModelReply:
    """The reply of a model to one ask, from a server that gives these answers."""

    async def scenario() -> ModelReply:
        async with serving(*given) as server:
            model = OpenAICompatible(
                "m", base_url=server.url, limits=limits or HttpLimits(retries=0), **options
            )
            async with model, asyncio.timeout(WAIT_S):
                return await model.reply(ASK, lambda _: None)

    return play(scenario)


def refused(*given: Answer, limits: HttpLimits | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        once(*given, limits=limits)
    return caught.value


def text_of(reply: ModelReply) -> str:
    return read_reply(reply.body).text


def test_a_stream_byte_by_byte_is_the_same_reply() -> None:
    data = joined(chat("so slow"))
    reply = once(streams(*(bytes((byte,)) for byte in data)))
    assert text_of(reply) == "soslow"
    assert reply.usage.output_tokens == 2


def test_deltas_come_while_the_stream_goes_on() -> None:
    async def scenario() -> None:
        shown = asyncio.Event()

        async def waits(line: Line, request: Request) -> None:
            await line.stream_head()
            await line.chunk(chunk({"content": "first"}))
            await asyncio.wait_for(shown.wait(), WAIT_S)
            await line.chunk(chunk({"content": "second"}) + chunk({}, "stop") + DONE)
            await line.send(b"0\r\n\r\n")

        def show(delta: Delta) -> None:
            shown.set()

        async with serving(waits) as server, OpenAICompatible("m", base_url=server.url) as model:
            assert text_of(await model.reply(ASK, show)) == "firstsecond"

    play(scenario)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json", "application/octet-stream", "", "text/html; x=1"]
)
def test_the_content_type_decides_nothing(kind: str) -> None:
    assert text_of(once(streams(*chat(), kind=kind))) == "hello"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
def test_a_server_that_does_not_stream_is_understood(kind: str) -> None:
    deltas: list[Delta] = []

    async def scenario() -> ModelReply:
        body = {**WHOLE, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
        given = answers("\ufeff \r\n" + json.dumps(body, indent=1), content_type=kind)
        async with serving(given) as server, OpenAICompatible("m", base_url=server.url) as model:
            return await model.reply(ASK, deltas.append)

    reply = play(scenario)
    assert text_of(reply) == "hello"
    assert deltas == [Delta(text="hello")]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)


def test_a_json_answer_that_is_cut_is_no_reply() -> None:
    text = json.dumps(WHOLE)

    async def cut(line: Line, request: Request) -> None:
        await line.head(content_type="application/json")
        await line.send(text[:-9].encode())
        line.hang_up()

    async def short(line: Line, request: Request) -> None:
        await line.head(content_length=str(len(text)))
        await line.send(text[:-9].encode())
        line.hang_up()

    assert refused(cut).kind == "broken_stream"
    assert refused(short).kind == "unavailable"


ENDS = ["whole", "hang up", "reset"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "cut",
    [
        pytest.param([chunk({"tool_calls": [CALL]})], id="after the call"),
        pytest.param([chunk({"tool_calls": [CALL]}), chunk({}, "tool_calls")], id="before [DONE]"),
        pytest.param(
            [chunk({"tool_calls": [CALL]}), chunk({}, "tool_calls"), b"data: [DONE"], id="in [DONE]"
        ),
        pytest.param([chunk({"tool_calls": [CALL]})[:-30]], id="in the call"),
    ],
)
def test_a_cut_stream_is_no_reply(cut: list[bytes], end: str) -> None:
    """Law 1 one-door: whatever way the connection ends."""
    error = refused(streams(*cut, end=end))
    assert error.kind in ("broken_stream", "unavailable")
    assert "127.0.0.1" in str(error)


def test_done_without_a_finish_reason_is_no_reply() -> None:
    error = refused(streams(chunk({"tool_calls": [CALL]}), DONE))
    assert error.kind == "broken_stream"
    assert "without a finish_reason" in str(error)


def test_a_server_without_done_can_be_named_as_such() -> None:
    whole = [chunk({"content": "hello"}), chunk({}, "stop")]
    assert text_of(once(streams(*whole), needs_done=False)) == "hello"
    assert refused(streams(*whole)).kind == "broken_stream"
    # A body that ends with the connection may have been cut; the finish reason came, though.
    with pytest.raises(ModelError):
        once(streams(*whole, end="hang up"), needs_done=False)
    with pytest.raises(ModelError):
        once(streams(whole[0]), needs_done=False)


def test_done_without_its_blank_line_is_done() -> None:
    whole = [*chat()[:-1], b"data: [DONE]"]
    assert text_of(once(streams(*whole))) == "hello"


def test_what_comes_after_done_counts_for_nothing() -> None:
    late = chunk({"tool_calls": [CALL]}, "tool_calls") + DONE
    assert not read_reply(once(streams(joined(chat()) + late)).body).calls


def test_a_server_that_keeps_the_connection_open_after_done_is_not_waited_for() -> None:
    async def scenario() -> None:
        async def stays(line: Line, request: Request) -> None:
            await line.stream_head()
            await line.chunk(joined(chat()))
            await line.gone()

        async with serving(stays) as server, OpenAICompatible("m", base_url=server.url) as model:
            async with asyncio.timeout(WAIT_S / 2):
                assert text_of(await model.reply(ASK, lambda _: None)) == "hello"
            await server.emptied()

    play(scenario)


def test_the_connection_is_used_again() -> None:
    async def scenario() -> None:
        async with serving(streams(*chat())) as server:
            async with OpenAICompatible("m", base_url=server.url) as model:
                for _ in range(3):
                    await model.reply(ASK, lambda _: None)
                assert (len(server.requests), server.connections) == (3, 1)
            await server.emptied()

    play(scenario)


def test_a_model_serves_one_loop_after_the_other_and_closes_with_each() -> None:
    """Nobody closes the model: its connections end with their loop, without a warning."""
    model: OpenAICompatible | None = None
    port = 0

    async def scenario() -> None:
        nonlocal model, port
        async with serving(streams(*chat()), port=port) as server:
            port = int(server.url.split(":")[2].removesuffix("/v1"))
            model = model or OpenAICompatible("m", base_url=server.url)
            for _ in range(2):
                assert text_of(await model.reply(ASK, lambda _: None)) == "hello"
            assert server.connections == 1

    for _ in range(3):
        play(scenario)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "identity", "GZIP"])
def test_a_compressed_stream_is_read(coding: str) -> None:
    data = joined(chat())
    packed = {"deflate": zlib.compress(data), "identity": data}.get(coding, gzip.compress(data))

    async def answer(line: Line, request: Request) -> None:
        assert request.headers["accept-encoding"] == "identity"
        await line.stream_head(content_encoding=coding)
        for start in range(0, len(packed), 10):
            await line.chunk(packed[start : start + 10])
        await line.send(b"0\r\n\r\n")

    assert text_of(once(answer)) == "hello"


def test_broken_compression_is_no_reply() -> None:
    packed = gzip.compress(json.dumps(WHOLE).encode())
    junk = refused(answers(b"not gzip at all", content_encoding="gzip"))
    assert junk.kind == "broken_stream"
    cut = refused(answers(packed[:-12], content_encoding="gzip"))
    assert cut.kind == "broken_stream"
    unknown = refused(answers(packed, content_encoding="br"))
    assert unknown.kind == "bad_request"
    assert "'br'" in str(unknown)


def test_a_few_bytes_that_stand_for_gigabytes_are_given_up() -> None:
    packer = zlib.compressobj()
    bomb = packer.compress(b"data: ") + b"".join(packer.compress(bytes(10**6)) for _ in range(50))
    error = refused(
        answers(bomb, content_encoding="deflate"), limits=HttpLimits(reply_bytes=10**6, retries=0)
    )
    assert error.kind == "too_large"
    assert "1000000 bytes" in str(error)


def test_a_stream_without_an_end_is_given_up_by_its_size() -> None:
    async def scenario() -> None:
        async def endless(line: Line, request: Request) -> None:
            await line.stream_head()
            while True:
                await line.chunk(chunk({"content": "x" * 1000}))

        limits = HttpLimits(reply_bytes=100_000)
        async with serving(endless) as server:
            model = OpenAICompatible("m", base_url=server.url, limits=limits)
            with pytest.raises(ModelError, match="more than 100000 bytes") as caught:
                await model.reply(ASK, lambda _: None)
            assert caught.value.kind == "too_large"
            await server.emptied()

    play(scenario)


def test_an_event_without_an_end_is_given_up_by_its_size() -> None:
    limits = HttpLimits(event_bytes=10_000, retries=0)
    error = refused(streams(b"data: " + b"x" * 20_000), limits=limits)
    assert error.kind == "too_large"
    assert "event_bytes" in str(error)


@pytest.mark.parametrize("first", [b"", b": waiting\n\n", chunk({"content": "a"})])
def test_a_silent_server_is_given_up(first: bytes) -> None:
    """Law 6 bounded-stop: before the answer, in the middle of it, or after a sign of life."""

    async def silent(line: Line, request: Request) -> None:
        if first:
            await line.stream_head()
            await line.chunk(first)
        await line.gone()

    error = refused(silent, limits=HttpLimits(idle_s=0.1, retries=3))
    assert error.kind == "timeout"
    assert "sent nothing for 0.1 s" in str(error)


def test_a_trickle_that_never_ends_is_given_up() -> None:
    async def trickle(line: Line, request: Request) -> None:
        await line.stream_head()
        while True:
            await line.chunk(b": ping\n\n")
            await asyncio.sleep(0.01)

    error = refused(trickle, limits=HttpLimits(idle_s=10, total_s=0.3))
    assert error.kind == "timeout"
    assert "within 0.3 s" in str(error)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"error": {"message": "no such model"}}, "unavailable", "no such model"),
        ({"error": {"message": "no", "code": 429}}, "rate_limited", ": no."),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, "bad_request", "bad"),
        ({"error": "all wrong"}, "unavailable", "all wrong"),
        ({"object": "error", "message": "too long", "code": 400}, "bad_request", "too long"),
        ([{"error": {"code": 503, "message": "busy"}}], "overloaded", "busy"),
        ({"object": "list", "data": []}, "bad_request", "without `choices`"),
        ({"choices": []}, "bad_request", "without `choices`"),
        ([1, 2], "bad_request", "a JSON list"),
        ("<!DOCTYPE html><html><title>Sign\nin</title>", "bad_request", "a web page, 'Sign\\nin'"),
        (
            '{"message": 1, "done": false}\n{"message": 2, "done": true}\n',
            "bad_request",
            "lines of",
        ),
        ("", "broken_stream", "before [DONE]"),
        ("   \n", "broken_stream", "before [DONE]"),
        ("{", "broken_stream", "not valid JSON"),
        ("hello", "broken_stream", "before [DONE]"),
    ],
)
def test_a_success_that_is_none_is_told_in_words(body: Any, kind: str, words: str) -> None:
    error = refused(answers(body))
    assert error.kind == kind
    assert words in str(error)
    assert str(error).startswith("The model server at http://127.0.0.1:")


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        (event({"error": {"message": "boom", "code": 502}}), "unavailable", "boom"),
        (event({"error": {"message": "slow down"}, "choices": []}), "unavailable", "slow down"),
        (event({"message": "odd"}, name="error"), "unavailable", "odd"),
        (event("not json"), "broken_stream", "not valid JSON"),
        (event([1]), "broken_stream", "list, not an object"),
        (event({"choices": "x"}), "broken_stream", "`choices` is str"),
        (chunk({"tool_calls": ["x"]}), "broken_stream", "a tool call that is str"),
        (chunk({"tool_calls": 5}), "broken_stream", "`tool_calls` is int"),
        (DONE, "broken_stream", "without a reply in it"),
    ],
)
def test_junk_in_a_stream_is_told_in_words(events: bytes, kind: str, words: str) -> None:
    for before in (b"", chunk({"tool_calls": [CALL]}) + chunk({}, "tool_calls")):
        if before and events == DONE:
            continue
        error = refused(streams(before, events, DONE))
        assert error.kind == kind
        assert words in str(error)


def test_odd_http_is_understood_or_told() -> None:
    async def extensions(line: Line, request: Request) -> None:
        await line.stream_head()
        data = joined(chat())
        half = len(data) // 2
        await line.send(f"{half:X};name=value\r\n".encode() + data[:half] + b"\r\n")
        await line.send(f"00{len(data) - half:x}\r\n".encode() + data[half:] + b"\r\n")
        await line.send(b"0\r\nTrailer: yes\r\n\r\n")

    async def old(line: Line, request: Request) -> None:
        await line.send(b"HTTP/1.0 200 OK\r\n\r\n" + joined(chat()))
        line.hang_up()

    async def early(line: Line, request: Request) -> None:
        await line.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await streams(*chat())(line, request)

    async def no_http(line: Line, request: Request) -> None:
        await line.send(b"SSH-2.0-OpenSSH_9.6\r\n")
        line.hang_up()

    async def bad_size(line: Line, request: Request) -> None:
        await line.stream_head()
        await line.send(b"zz\r\ndata: x\r\n")
        line.hang_up()

    for good in (extensions, old, early):
        assert text_of(once(good)) == "hello"
    for bad in (no_http, bad_size):
        assert refused(bad).kind == "unavailable"


@pytest.mark.parametrize("given", [resets, hangs_up])
def test_a_connection_that_breaks_before_the_answer_is_told(given: Answer) -> None:
    error = refused(given)
    assert error.kind == "unavailable"
    assert "before its reply began" in str(error)


def test_nobody_there_is_told() -> None:
    async def scenario() -> None:
        async with serving(resets) as server:
            url = server.url
        limits = HttpLimits(retries=0)
        model = OpenAICompatible("m", base_url=url, limits=limits)
        async with model:
            with pytest.raises(ModelError, match=r"cannot be reached: .*Is it running") as caught:
                await model.reply(ASK, lambda _: None)
        assert caught.value.kind == "unavailable"

    play(scenario)


def test_what_the_shower_raises_ends_the_reply() -> None:
    async def scenario() -> None:
        async def waits(line: Line, request: Request) -> None:
            await line.stream_head()
            await line.chunk(chunk({"content": "a"}))
            await line.gone()

        def broken(delta: Delta) -> None:
            raise TimeoutError("of the application's own")

        async with serving(waits) as server, OpenAICompatible("m", base_url=server.url) as model:
            with pytest.raises(TimeoutError, match="of the application's own"):
                await model.reply(ASK, broken)
            await server.emptied()

    play(scenario)


def test_an_error_of_the_shower_about_its_own_text_stays_its_own() -> None:
    """Printing to a terminal that is not UTF-8 is no fault of the server."""

    async def scenario() -> None:
        def prints(delta: Delta) -> None:
            delta.text.encode("ascii")

        async with serving(streams(*chat("é"))) as server:
            with pytest.raises(UnicodeEncodeError):
                await OpenAICompatible("m", base_url=server.url).reply(ASK, prints)
            await server.emptied()

    play(scenario)


BLANKS = b"\n \r\n" * 100


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", BLANKS, b"\xef\xbb\xbf" + BLANKS])
def test_what_stands_before_the_answer_says_nothing(before: bytes, size: int) -> None:
    for body in (joined(chat()), json.dumps(WHOLE).encode()):
        data = before + body
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert text_of(once(streams(*pieces))) == "hello"


def test_blanks_without_an_end_are_given_up() -> None:
    error = refused(streams(*[b" " * 10_000] * 20), limits=HttpLimits(reply_bytes=100_000))
    assert error.kind == "too_large"


def test_an_error_event_in_plain_words_is_told() -> None:
    error = refused(streams(chunk({"content": "a"}), b"event: error\ndata: out of memory\n\n"))
    assert (error.kind, error.status) == ("unavailable", None)
    assert "out of memory" in str(error)


@pytest.mark.parametrize("depth", [3, 900, 100_000])
def test_an_error_body_that_is_a_trap_is_told_all_the_same(depth: int) -> None:
    for key in ("error", "detail"):
        text = f'{{"{key}":' * depth + '"deep"' + "}" * depth
        error = refused(answers(text, "400 Bad Request"))
        assert error.kind == "bad_request"
        assert len(str(error)) < 2000
    lists = "[" * depth + "]" * depth
    assert refused(answers(lists, "400 Bad Request")).kind == "bad_request"
    assert refused(answers(lists)).kind in ("bad_request", "broken_stream")


def test_an_error_body_without_an_end_is_read_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law 6 bounded-stop."""
    monkeypatch.setattr(http, "_ERROR_BODY_S", 0.2)

    async def trickle(line: Line, request: Request) -> None:
        await line.head("500 Internal Server Error", transfer_encoding="chunked")
        await line.chunk(b"the words ")
        while True:
            await line.chunk(b".")
            await asyncio.sleep(0.01)

    async def pours(line: Line, request: Request) -> None:
        await line.head("500 Internal Server Error", transfer_encoding="chunked")
        while True:
            await line.chunk(b"pours " * 10_000)

    for given, words in ((trickle, "the words ..."), (pours, "pours pours")):
        error = refused(given)
        assert error.kind == "unavailable"
        assert words in str(error)


def test_an_error_body_that_stands_for_gigabytes_is_cut() -> None:
    packer = zlib.compressobj()
    bomb = b"".join(packer.compress(b"boom " * 10**6) for _ in range(20)) + packer.flush()
    error = refused(answers(bomb, "500 Internal Server Error", content_encoding="deflate"))
    assert "boom boom" in str(error)


def test_what_a_router_was_told_is_told_on() -> None:
    raw = json.dumps({"error": {"message": "the model is tired"}})
    body = {"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}
    error = refused(answers(body, "502 Bad Gateway"))
    assert "Provider returned error (the model is tired)" in str(error)


def test_connections_close_with_a_loop_on_a_thread_of_its_own() -> None:
    async def scenario() -> None:
        async with serving(streams(*chat())) as server:
            thread = LoopThread("of-the-test")
            model = OpenAICompatible("m", base_url=server.url)
            asking = model.reply(ASK, lambda _: None)
            asked = asyncio.run_coroutine_threadsafe(asking, thread.loop())
            assert text_of(await asyncio.wrap_future(asked)) == "hello"
            assert server.open == 1
            thread.close()
            await server.emptied()

    play(scenario)


def test_a_server_that_hangs_up_after_each_answer_is_connected_to_again() -> None:
    async def whole_then_gone(line: Line, request: Request) -> None:
        await streams(*chat())(line, request)
        line.hang_up()

    async def scenario() -> None:
        async with serving(whole_then_gone) as server:
            limits = HttpLimits(first_s=0.01)
            async with OpenAICompatible("m", base_url=server.url, limits=limits) as model:
                for _ in range(5):
                    assert text_of(await model.reply(ASK, lambda _: None)) == "hello"

    play(scenario)


def test_many_first_requests_at_once_share_one_pool() -> None:
    async def scenario() -> None:
        async with serving(streams(*chat())) as server:
            model = OpenAICompatible("m", base_url=server.url)
            replies = [model.reply(ASK, lambda _: None) for _ in range(8)]
            for reply in await asyncio.gather(*replies):
                assert text_of(reply) == "hello"
            before = server.connections
            assert before <= 8
            await model.reply(ASK, lambda _: None)
            assert server.connections == before
            await model.aclose()
            await server.emptied()

    play(scenario)
