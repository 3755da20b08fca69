"""A whole conversation with every provider: what goes back to it is what it accepts."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from endstop import Anthropic, Money, OpenAICompatible, OpenAIResponses, Prices, Runtime, tool
from endstop.agents import Ended, ModelAgent
from endstop.agents.models.provider import HttpModel
from tests.models.server import WAIT_S, event, joined, play, serving, streams
from tests.models.server import chat as chat_stream
from tests.unit.adapters.pairing import problems

CALLS = [("add", '{"a": 1, "b": 2}'), ("add", '{"a": 3'), ("add", '{"a": 5, "b": 6}')]
"""The second one is no JSON: it is answered, and never runs."""


@tool(effect="read_only", resources=[])
async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def chat() -> list[bytes]:
    entries = [
        {"index": n, "id": f"call_{n}", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(CALLS)
    ]
    pieces = [{"role": "assistant", "content": "Let me add."}]
    pieces += [{"tool_calls": [entry]} for entry in entries]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 10}}
    chunks = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    return [*map(event, [*chunks, last, usage]), event("[DONE]")]


def messages() -> list[bytes]:
    usage = {"input_tokens": 1000, "output_tokens": 1}
    head = {"type": "message", "role": "assistant", "content": [], "usage": usage}
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "s"}),
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me add."}),
    ]
    blocks += [
        (
            {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": {}},
            {"type": "input_json_delta", "partial_json": arguments},
        )
        for n, (name, arguments) in enumerate(CALLS)
    ]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for n, (block, delta) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": n, "content_block": block},
            {"type": "content_block_delta", "index": n, "delta": delta},
            {"type": "content_block_stop", "index": n},
        ]
    stop = {"stop_reason": "tool_use"}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 10}})
    return [event(one, name=one["type"]) for one in [*events, {"type": "message_stop"}]]


def messages_end() -> list[bytes]:
    head = {"type": "message", "role": "assistant", "content": []}
    return [
        event({"type": "message_start", "message": head}),
        event(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": "hello"},
            }
        ),
        event({"type": "content_block_stop", "index": 0}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        event({"type": "message_stop"}),
    ]


def response(*output: dict[str, Any], **more: Any) -> list[bytes]:
    body = {"object": "response", "status": "completed", "output": list(output), **more}
    return [event({"type": "response.completed", "response": body})]


def responses() -> list[bytes]:
    part = {"type": "output_text", "text": "Let me add.", "annotations": []}
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]},
    ]
    items += [
        {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": f"c_{n}",
            "name": name,
            "arguments": a,
        }
        for n, (name, a) in enumerate(CALLS)
    ]
    return response(*items, usage={"input_tokens": 1000, "output_tokens": 10})


def responses_end() -> list[bytes]:
    part = {"type": "output_text", "text": "hello", "annotations": []}
    return response({"type": "message", "role": "assistant", "content": [part]})


SCENES: dict[type[HttpModel], tuple[list[bytes], list[bytes], str]] = {
    OpenAICompatible: (chat(), chat_stream(), "messages"),
    OpenAIResponses: (responses(), responses_end(), "input"),
    Anthropic: (messages(), messages_end(), "messages"),
}


@pytest.mark.parametrize("kind", SCENES, ids=lambda kind: kind.__name__)
def test_a_conversation_pairs(kind: type[Any]) -> None:
    """Law 4 one-answer: every call has one result, in order, in the provider's own format."""
    first, second, key = SCENES[kind]

    async def scenario() -> None:
        async with serving(streams(joined(first)), streams(joined(second))) as server:
            prices = Prices(input="1", output="2", currency="USD")
            async with kind("m", base_url=server.url, prices=prices) as model, Runtime() as runtime:
                agent = ModelAgent(name="a", model=model, tools=[add], instructions="Add.")
                async with asyncio.timeout(WAIT_S):
                    result = await agent.run(runtime, "Add them.")
            assert (result.ended, result.text) == (Ended.DONE, "hello")
            # The chat model counts its last reply, too.
            cost = "0.001029" if kind is OpenAICompatible else "0.00102"
            assert result.spent == (Money(amount=Decimal(cost), currency="USD"),)
            sent = server.requests[1].body[key]
            said = [one for one in sent if one.get("role") != "system"]
            assert problems(kind.format, said) == []
            text = json.dumps(said)
            assert text.count("Let me add.") == 1
            for found in ('"3"', '"11"'):
                assert text.count(found) == 1
            assert len(server.requests) == 2

    play(scenario)
