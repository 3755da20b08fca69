"""The recorded streams: whole they say what was said, cut anywhere they execute nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from endstop.adapters import Reply, read_reply
from endstop.agents.models import Anthropic, Delta, ModelError, OpenAICompatible, OpenAIResponses
from endstop.agents.models.anthropic_stream import AnthropicStream
from endstop.agents.models.chat_stream import ChatStream
from endstop.agents.models.failures import Redactor
from endstop.agents.models.http import HttpLimits
from endstop.agents.models.protocol import Ask
from endstop.agents.models.provider import HttpModel
from endstop.agents.models.reading import Assembler, Malformed, Reading
from endstop.agents.models.responses_stream import ResponsesStream
from tests.models.server import play, serving, streams
from tests.support import needs_shared, shared_lines
from tests.unit.adapters.pairing import problems

pytestmark = needs_shared

ENDED_IN_AN_ERROR = 21
"""The one stream that its provider broke off with an error."""


@dataclass(frozen=True)
class Seen:
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Said:
    """What a stream says, dug out of the recording without the code under test."""

    text: str
    calls: list[tuple[str, Any]]


@cache
def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in shared_lines("replies/streams.jsonl")]


def bodies(row: dict[str, Any]) -> list[dict[str, Any]]:
    found = [line[5:].strip() for line in row["sse"].split("\n") if line.startswith("data:")]
    return [json.loads(one) for one in found if one != "[DONE]"]


def said(row: dict[str, Any]) -> Said:
    match row["format"]:
        case "openai-chat":
            return said_in_chat(bodies(row))
        case "openai-responses":
            return said_in_response(bodies(row)[-1]["response"])
        case _:
            return said_in_blocks(bodies(row))


def said_in_chat(chunks: list[dict[str, Any]]) -> Said:
    text, names, arguments = "", dict[int, str](), dict[int, str]()
    for delta in (choice["delta"] for one in chunks for choice in one["choices"]):
        text += delta.get("content") or ""
        for call in delta.get("tool_calls") or []:
            function = call["function"]
            names[call["index"]] = names.get(call["index"], "") + (function.get("name") or "")
            piece = function.get("arguments") or ""
            arguments[call["index"]] = arguments.get(call["index"], "") + piece
    calls = [(names[index], json.loads(arguments[index] or "{}")) for index in sorted(names)]
    return Said(text, calls)


def said_in_response(response: dict[str, Any]) -> Said:
    text, calls = "", []
    for item in response["output"]:
        if item["type"] == "message":
            text += "".join(part["text"] for part in item["content"])
        elif item["type"] == "function_call":
            calls.append((item["name"], json.loads(item["arguments"])))
    return Said(text, calls)


def said_in_blocks(events: list[dict[str, Any]]) -> Said:
    text, kinds, arguments = "", dict[int, Any](), dict[int, str]()
    for one in events:
        if one["type"] == "content_block_start":
            kinds[one["index"]] = one["content_block"]
            text += one["content_block"].get("text", "")
        elif one["type"] == "content_block_delta":
            text += one["delta"].get("text", "")
            piece = one["delta"].get("partial_json", "")
            arguments[one["index"]] = arguments.get(one["index"], "") + piece
    calls = [
        (block["name"], json.loads(arguments.get(index) or "{}"))
        for index, block in sorted(kinds.items())
        if block["type"] == "tool_use"
    ]
    return Said(text, calls)


def assembler(format: str) -> Assembler:
    match format:
        case "openai-chat":
            return ChatStream()
        case "openai-responses":
            return ResponsesStream()
        case _:
            return AnthropicStream()


def replayed(
    row: dict[str, Any], data: bytes, size: int | None = None
) -> tuple[dict[str, Any], list[Delta]]:
    """The body that a stream gives, and what was shown; raises `ModelError`."""
    deltas: list[Delta] = []
    reading = Reading(
        assembler(row["format"]), deltas.append, where="It", redact=Redactor(), event_limit=10**7
    )
    size = size or len(data) or 1
    for start in range(0, len(data), size):
        if reading.feed(data[start : start + size]):
            break
    return reading.end(), deltas


def check(row: dict[str, Any], body: dict[str, Any]) -> Reply:
    """That a body is read as what the recording says, and answered in pairs."""
    wanted = said(row)
    reply = read_reply(body)
    assert reply.format == row["format"]
    assert not reply.truncated
    assert reply.text == wanted.text
    assert [(call.tool, call.arguments) for call in reply.calls] == wanted.calls
    assert all(call.problem is None for call in reply.calls)
    answers = reply.answer([Seen(f"{n}") for n, _ in enumerate(reply.calls)])
    assert problems(reply.format, [*reply.stored(), *answers]) == []
    return reply


def test_the_corpus_is_whole() -> None:
    assert len(rows()) == 52
    assert sum(len(said(row).calls) for n, row in enumerate(rows()) if n != ENDED_IN_AN_ERROR) == 34


@pytest.mark.parametrize("size", [None, 1, 7, 1000])
def test_whole_streams_say_what_was_said(size: int | None) -> None:
    for number, row in enumerate(rows()):
        if number == ENDED_IN_AN_ERROR:
            continue
        body, deltas = replayed(row, row["sse"].encode(), size)
        reply = check(row, body)
        assert "".join(delta.text for delta in deltas) == reply.text, number
        assert body["usage"], number


@pytest.mark.parametrize("size", [None, 1])
def test_the_stream_that_its_provider_broke_off_is_an_error_in_its_words(size: int | None) -> None:
    row = rows()[ENDED_IN_AN_ERROR]
    with pytest.raises(ModelError, match="Tool choice is required, but model did not") as caught:
        replayed(row, row["sse"].encode(), size)
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


def cuts(row: dict[str, Any]) -> list[int]:
    """Where to cut: after every event, in the middle of each, and around the ends of its lines."""
    data = row["sse"].encode()
    found = {0}
    start = 0
    for end in (found.end() for found in re.finditer(rb"\n\n", data)):
        found |= {end, (start + end) // 2, end - 1, end - 2, end - 3, start + 1, start + 7}
        start = end
    return sorted(place for place in found if 0 <= place < len(data))


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_a_stream_that_is_cut_anywhere_executes_nothing(format: str) -> None:
    """Law 1 one-door: what did not arrive whole never becomes calls."""
    tried, kinds = 0, set[str]()
    for number, row in enumerate(rows()):
        if row["format"] != format or number == ENDED_IN_AN_ERROR:
            continue
        data = row["sse"].encode()
        for place in cuts(row):
            tried += 1
            try:
                body, _ = replayed(row, data[:place])
            except ModelError as error:
                kinds.add(error.kind)
                continue
            # No more than the end of the very last event is missing, after its data: all was said.
            assert not re.search(rb"[}\]]", data[place:]), (number, place)
            check(row, body)
    assert kinds == {"broken_stream"}
    assert tried > 400


def test_at_no_byte_of_a_stream_is_it_whole_but_at_the_last() -> None:
    for number, row in enumerate(rows()):
        if number == ENDED_IN_AN_ERROR:
            continue
        mine = assembler(row["format"])
        reading = Reading(mine, lambda _: None, where="", redact=Redactor(), event_limit=10**7)
        data = row["sse"].encode()
        for byte in data[:-1]:
            assert not reading.feed(bytes((byte,)))
            if byte == ord("\n"):
                with pytest.raises(Malformed):
                    mine.whole()
        assert reading.feed(data[-1:])
        check(row, mine.whole())


def model_for(row: dict[str, Any], url: str) -> HttpModel:
    limits = HttpLimits(retries=0)
    match row["format"]:
        case "openai-chat":
            return OpenAICompatible("m", base_url=url, limits=limits)
        case "openai-responses":
            return OpenAIResponses("m", base_url=url, limits=limits)
        case _:
            return Anthropic("m", base_url=url, limits=limits)


SAMPLE = [1, 11, 22, 27, 28, 33, 36, 48]


@pytest.mark.parametrize("number", SAMPLE)
def test_over_the_wire_whole_streams_say_what_was_said(number: int) -> None:
    row = rows()[number]
    data = row["sse"].encode()

    async def scenario() -> None:
        pieces = [data[start : start + 333] for start in range(0, len(data), 333)]
        answers = (streams(data), streams(*pieces))
        async with serving(*answers) as server, model_for(row, server.url) as model:
            for _ in range(2):
                deltas: list[Delta] = []
                reply = await model.reply(Ask(messages=[]), deltas.append)
                read = check(row, reply.body)
                assert "".join(delta.text for delta in deltas) == read.text
                assert reply.usage.reported
                assert reply.usage.output_tokens > 0

    play(scenario)


@pytest.mark.parametrize("end", ["whole", "hang up", "reset"])
@pytest.mark.parametrize("number", SAMPLE)
def test_over_the_wire_a_cut_stream_executes_nothing(number: int, end: str) -> None:
    row = rows()[number]
    data = row["sse"].encode()
    places = cuts(row)
    last = places[-8] if row["format"] == "openai-chat" else places[-4]
    chosen = [places[len(places) // 3], places[len(places) // 2], last]

    async def scenario() -> None:
        answers = [streams(data[:place], end=end) for place in chosen]
        async with serving(*answers) as server, model_for(row, server.url) as model:
            for _ in chosen:
                with pytest.raises(ModelError) as caught:
                    await model.reply(Ask(messages=[]), lambda _: None)
                assert caught.value.kind in ("broken_stream", "unavailable")
            assert len(server.requests) == len(chosen)

    play(scenario)
