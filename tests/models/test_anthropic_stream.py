"""Anthropic's streams: blocks are put together, and what breaks the protocol is no reply."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import Delta
from endstop.agents.models.anthropic_stream import AnthropicStream
from endstop.agents.models.reading import Malformed, Reported
from endstop.agents.models.sse import Event

START = {"type": "message_start", "message": {"type": "message", "role": "assistant", "usage": {}}}
ENDED = {
    "type": "message_delta",
    "delta": {"stop_reason": "tool_use"},
    "usage": {"output_tokens": 3},
}
STOP = {"type": "message_stop"}


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def close(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def taken(*events: Any) -> tuple[AnthropicStream, list[Delta]]:
    stream = AnthropicStream()
    return stream, [
        stream.take(Event(name=one.get("type", ""), data=json.dumps(one))) for one in events
    ]


def whole(*events: Any) -> dict[str, Any]:
    return taken(START, *events, ENDED, STOP)[0].whole()


def call(index: int, *pieces: str, name: str = "pay") -> list[dict[str, Any]]:
    return [
        begin(index, type="tool_use", id=f"i{index}", name=name, input={}),
        *(more(index, type="input_json_delta", partial_json=one) for one in pieces),
        close(index),
    ]


def test_calls_are_put_together() -> None:
    body = whole(*call(0, "", '{"a', '": ', "1}"), *call(1), *call(2, "", name="now"))
    reply = read_reply(body)
    assert [(one.tool, one.arguments) for one in reply.calls] == [
        ("pay", {"a": 1}),
        ("pay", {}),
        ("now", {}),
    ]
    assert body["usage"] == {"output_tokens": 3}
    assert body["stop_reason"] == "tool_use"


def test_blocks_that_are_interleaved_are_put_together() -> None:
    first, second = call(0, '{"a', '": 1}'), call(1, '{"b', '": 2}')
    mixed = [one for pair in zip(first, second, strict=True) for one in pair]
    assert [one.arguments for one in read_reply(whole(*mixed)).calls] == [{"a": 1}, {"b": 2}]


def test_thinking_signature_text_and_citations_are_kept() -> None:
    stream, deltas = taken(
        START,
        begin(0, type="thinking", thinking="", signature=""),
        more(0, type="thinking_delta", thinking="h"),
        {"type": "ping"},
        more(0, type="thinking_delta", thinking="m"),
        more(0, type="signature_delta", signature="sig"),
        close(0),
        begin(1, type="text", text="A"),
        more(1, type="text_delta", text="b"),
        more(1, type="citations_delta", citation={"n": 1}),
        more(1, type="citations_delta", citation={"n": 2}),
        more(1, type="of_the_future_delta", thing=1),
        close(1),
        begin(2, type="redacted_thinking", data="xyz"),
        close(2),
        {"type": "of_the_future", "index": "x"},
        ENDED,
        STOP,
    )
    assert stream.whole()["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Ab", "citations": [{"n": 1}, {"n": 2}]},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    assert [one for one in deltas if one != Delta()] == [
        Delta(thinking="h"),
        Delta(thinking="m"),
        Delta(text="A"),
        Delta(text="b"),
    ]


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", '{"a": 1}}', "nonsense"])
def test_input_that_is_no_object_is_refused_and_runs_nothing(text: str) -> None:
    (one,) = read_reply(whole(*call(0, text))).calls
    assert one.problem is not None
    assert one.arguments is None


def test_input_of_a_tool_of_the_provider_stays_storable() -> None:
    body = whole(
        begin(0, type="server_tool_use", id="s", name="web_search", input={}),
        more(0, type="input_json_delta", partial_json='{"q": "cut'),
        close(0),
        begin(1, type="server_tool_use", id="s", name="web_search", input={}),
        more(1, type="input_json_delta", partial_json='{"q": "x"}'),
        close(1),
    )
    assert isinstance(body["content"][0]["input"], dict)
    assert body["content"][1]["input"] == {"q": "x"}
    assert not read_reply(body).calls


def test_a_reply_that_the_model_did_not_finish_runs_nothing() -> None:
    ended = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
    reply = read_reply(taken(START, *call(0, '{"a": 1}'), ended, STOP)[0].whole())
    assert reply.truncated
    assert reply.calls[0].problem


CALL = call(0, '{"a": 1}')


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([START, *CALL, ENDED], "before message_stop"),
        ([START, *CALL, STOP], "without a stop_reason"),
        ([START, *CALL[:-1], ENDED, STOP], "in the middle of a block"),
        ([STOP], "without a message"),
    ],
)
def test_what_is_not_whole_is_no_reply(events: list[Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        taken(*events)[0].whole()


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([START, START], "a second message"),
        (CALL, "before message_start"),
        ([ENDED], "before message_start"),
        ([START, CALL[0], CALL[0]], "began block 0 of the content twice"),
        ([START, *CALL, CALL[1]], "block 0 of the content, which is not open"),
        ([START, more(3, type="text_delta", text="x")], "block 3 .* not open"),
        ([START, {**CALL[0], "index": None}], "without its index"),
        ([START, {**CALL[0], "index": True}], "without its index"),
    ],
)
def test_what_breaks_the_protocol_is_no_reply(events: list[Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        taken(*events)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"error": {"message": "no type"}},
    ],
)
def test_an_error_is_an_error_wherever_it_comes(body: dict[str, Any]) -> None:
    for before in ([], [START], [START, CALL[0]], [START, *CALL, ENDED]):
        with pytest.raises(Reported) as caught:
            taken(*before, body)
        assert caught.value.body == body


def test_the_cost_of_many_blocks_is_no_more_than_their_number() -> None:
    began = time.monotonic()
    blocks = [
        one
        for n in range(5_000)
        for one in (begin(n, type="text"), more(n, type="text_delta", text="a"), close(n))
    ]
    cited = [begin(5_000, type="text")]
    cited += [more(5_000, type="citations_delta", citation={}) for _ in range(5_000)]
    body = whole(*blocks, *cited, close(5_000))
    assert time.monotonic() - began < 20
    assert len(body["content"]) == 5_001
    assert len(body["content"][-1]["citations"]) == 5_000
