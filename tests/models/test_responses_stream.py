"""OpenAI's response streams: the last event is the reply, and one that failed is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import Ask, Delta, HttpLimits, ModelError, ModelReply, OpenAIResponses
from tests.models.server import Answer, answers, event, joined, play, serving, streams

CALL = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": '{"amount": 1}'}
ITEM_DONE = {"type": "response.output_item.done", "output_index": 0, "item": CALL}


def last(kind: str, **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"object": "response", **response}}


def asked(*given: Answer) -> tuple[ModelReply, list[Delta]]:
    async def scenario() -> tuple[ModelReply, list[Delta]]:
        deltas: list[Delta] = []
        async with serving(*given) as server:
            limits = HttpLimits(retries=0)
            async with OpenAIResponses("m", base_url=server.url, limits=limits) as model:
                return await model.reply(Ask(messages=[]), deltas.append), deltas

    return play(scenario)


def streamed(*events: dict[str, Any]) -> tuple[ModelReply, list[Delta]]:
    return asked(streams(joined(event(one, name=one.get("type", "")) for one in events)))


def test_text_and_thoughts_are_shown() -> None:
    reply, deltas = streamed(
        {"type": "response.created", "response": {"output": []}},
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.refusal.delta", "delta": "b"},
        {"type": "response.function_call_arguments.delta", "delta": "{"},
        last("completed", status="completed", output=[CALL]),
    )
    assert deltas == [Delta(thinking="hm"), Delta(text="a"), Delta(text="b")]
    (call,) = read_reply(reply.body).calls
    assert (call.tool, call.arguments) == ("pay", {"amount": 1})


def test_items_stand_in_for_an_output_that_is_left_out() -> None:
    second = {**ITEM_DONE, "output_index": 1, "item": {**CALL, "name": "b", "call_id": "d"}}
    for output in ({}, {"output": None}, {"output": []}):
        reply, _ = streamed(second, ITEM_DONE, last("completed", status="completed", **output))
        assert [call.tool for call in read_reply(reply.body).calls] == ["pay", "b"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}),
        ("cancelled", {}),
    ],
)
def test_a_reply_that_the_model_did_not_finish_runs_nothing(kind: str, more: Any) -> None:
    reply, _ = streamed(ITEM_DONE, last(kind, status=kind, output=[CALL], **more))
    read = read_reply(reply.body)
    assert read.truncated
    assert all(call.problem for call in read.calls)


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        (
            [last("failed", error={"code": "server_error", "message": "it broke"})],
            "unavailable",
            "it broke",
        ),
        (
            [last("failed", error={"code": "rate_limit_exceeded", "message": "too much"})],
            "rate_limited",
            "too much",
        ),
        ([last("failed", error=None)], "unavailable", "does not say"),
        ([{"type": "error", "code": "x", "message": "odd"}], "unavailable", "odd"),
        ([{"error": {"type": "invalid_request_error", "message": "no"}}], "bad_request", "no"),
        ([ITEM_DONE], "broken_stream", "before response.completed"),
        ([{"type": "response.in_progress", "response": {"output": [CALL]}}], "broken_stream", ""),
    ],
)
def test_what_failed_or_was_cut_is_an_error(events: list[Any], kind: str, words: str) -> None:
    for before in ([], [ITEM_DONE]):
        with pytest.raises(ModelError) as caught:
            streamed(*before, *events)
        assert caught.value.kind == kind
        assert words in str(caught.value)


def test_a_response_that_still_runs_is_no_reply() -> None:
    body = {"object": "response", "status": "in_progress", "output": []}
    with pytest.raises(ModelError, match="still in_progress"):
        asked(answers(json.dumps(body)))
    whole = {**body, "status": "completed", "output": [CALL]}
    reply, _ = asked(answers(json.dumps(whole)))
    assert len(read_reply(reply.body).calls) == 1
