"""What the tests of the loop share: a judge of transcripts, and models that are held and let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from endstop.adapters.repair import repair
from endstop.agents.models import Ask, Delta, ModelReply, Scripted

FORMATS = ("openai-chat", "anthropic-messages", "openai-responses")


def check_pairs(messages: list[dict[str, Any]], format: str) -> None:
    """Every call has exactly one result, directly behind its reply, in order (law 4 one-answer).

    Judged here from the messages alone, and by the repairer, which must find nothing to mend.
    """
    match format:
        case "openai-chat":
            _check_chat(messages)
        case "anthropic-messages":
            _check_anthropic(messages)
        case _:
            _check_items(messages)
    assert repair(messages, format).changes == ()


def _check_chat(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting, f"a result without a call: {message}"
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting, f"calls without results: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting, f"calls without results: {waiting}"


def _check_anthropic(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    before = ""
    for message in messages:
        assert message["role"] != before, "roles alternate"
        before = message["role"]
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text"}]
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert results == waiting, f"expected results of {waiting}, found {results}"
        assert [b["type"] for b in blocks[: len(results)]] == ["tool_result"] * len(results)
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
    assert not waiting, f"calls without results: {waiting}"


def _check_items(items: list[dict[str, Any]]) -> None:
    called = [one["call_id"] for one in items if one.get("type") == "function_call"]
    answered = [one["call_id"] for one in items if one.get("type") == "function_call_output"]
    assert called == answered


def results_in(messages: list[dict[str, Any]]) -> list[str]:
    """The texts of the results in a chat transcript."""
    return [message["content"] for message in messages if message["role"] == "tool"]


class Held:
    """A model that waits in the middle of a reply until it is let go; counts what became of it."""

    def __init__(self, script: Scripted, *, hold_at: int = 1) -> None:
        self.name = "held"
        self.format = script.format
        self.script = script
        self.hold_at = hold_at
        self.holds = asyncio.Event()
        self.go_on = asyncio.Event()
        self.asked = 0
        self.closed = 0

    async def reply(self, ask: Ask, on_delta: Callable[[Delta], None]) -> ModelReply:
        self.asked += 1
        try:
            if self.asked == self.hold_at:
                on_delta(Delta(text="hm "))
                self.holds.set()
                await self.go_on.wait()
            return await self.script.reply(ask, on_delta)
        except asyncio.CancelledError:
            self.closed += 1
            raise

    async def aclose(self) -> None:
        await self.script.aclose()
