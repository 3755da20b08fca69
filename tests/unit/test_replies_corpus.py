"""Every recorded reply goes in as it was received and comes out paired (law 4 one-answer)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.adapters.repair import repair
from tests.support import needs_shared, shared_lines
from tests.unit.adapters.pairing import problems

pytestmark = needs_shared


@dataclass(frozen=True)
class Seen:
    text: str
    is_error: bool = False


@cache
def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in shared_lines("replies/replies.jsonl")]


def test_the_corpus_is_whole() -> None:
    assert len(rows()) == 214


@pytest.mark.parametrize("as_text", [False, True], ids=["dict", "text"])
@pytest.mark.parametrize("told", [False, True], ids=["detected", "named"])
def test_each_reply_comes_out_paired(as_text: bool, told: bool) -> None:
    for number, row in enumerate(rows()):
        body = json.dumps(row["reply"]) if as_text else row["reply"]
        reply = read_reply(body, row["format"] if told else None)
        where = f"reply {number} of {row['model']}"
        assert reply.format == row["format"], where
        # The recorded number counts the client's calls; what the server ran itself is not in it.
        assert len(reply.calls) == row["calls"], where
        assert not reply.truncated, where
        assert all(call.problem is None for call in reply.calls), where
        assert [(c.tool, c.arguments) for c in reply.calls] == recorded_calls(row), where
        answers = reply.answer([Seen(f"{n}: {c.arguments}") for n, c in enumerate(reply.calls)])
        transcript = [*reply.stored(), *answers]
        assert problems(reply.format, transcript) == [], where
        texts = result_texts(reply.format, answers)
        assert texts == [f"{n}: {c.arguments}" for n, c in enumerate(reply.calls)], where


def test_each_answered_reply_needs_no_repair() -> None:
    for row in rows():
        reply = read_reply(row["reply"])
        transcript = [*reply.stored(), *reply.answer([Seen("ok")] * len(reply.calls))]
        repaired = repair(transcript)
        assert repaired.changes == ()
        assert repaired.messages == transcript


def test_each_unanswered_reply_is_closed_in_order() -> None:
    for row in rows():
        reply = read_reply(row["reply"])
        repaired = repair(reply.stored(), row["format"])
        assert problems(row["format"], repaired.messages) == []
        assert len(repaired.changes) == row["calls"]


def test_a_reply_is_not_changed_by_reading_it() -> None:
    for row in rows():
        before = json.dumps(row["reply"])
        read_reply(row["reply"]).answer([Seen("ok")] * row["calls"])
        assert json.dumps(row["reply"]) == before


def recorded_calls(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Name and arguments of each call, dug out of the recording without the adapters."""
    reply = row["reply"]
    match row["format"]:
        case "openai-chat":
            functions = [c["function"] for c in reply["choices"][0]["message"]["tool_calls"]]
        case "openai-responses":
            functions = [item for item in reply["output"] if item["type"] == "function_call"]
        case _:
            blocks = [block for block in reply["content"] if block["type"] == "tool_use"]
            return [(block["name"], block["input"]) for block in blocks]
    return [(f["name"], json.loads(f.get("arguments") or "{}")) for f in functions]


def result_texts(format: str, answers: list[dict[str, Any]]) -> list[str]:
    match format:
        case "openai-chat":
            return [message["content"] for message in answers]
        case "openai-responses":
            return [item["output"] for item in answers]
        case _:
            return [block["content"] for block in answers[0]["content"]]
