"""Recorded streams, mangled: whatever a server sends, it is a readable reply or a `ModelError`.

Law 19 any-payload. Events are dropped, doubled and swapped, and values in them replaced by junk.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import ModelError
from endstop.agents.models.failures import Redactor
from endstop.agents.models.reading import Reading, readable
from tests.models.test_recorded import Seen, assembler, rows
from tests.support import needs_shared
from tests.unit.adapters.pairing import problems

pytestmark = needs_shared

JUNK: list[Any] = [None, True, -1, 1.5, 10**30, "", "x", "\ud800", "error", [], [[]], [None], {}]
JUNK += [{"type": "error"}, {"error": {}}, {"index": 0}, [{"a": 1}], "[DONE]", "tool_calls"]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value with each of its keys."""
    items: Any = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield value, key
        yield from places(inner)


def mangled(row: dict[str, Any], chance: random.Random) -> str:
    events = [one for one in row["sse"].split("\n\n") if one]
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(events))
        match chance.choice(["drop", "double", "swap", "junk", "junk", "junk", "junk"]):
            case "drop" if len(events) > 1:
                del events[at]
            case "double":
                events.insert(chance.randrange(len(events)), events[at])
            case "swap":
                other = chance.randrange(len(events))
                events[at], events[other] = events[other], events[at]
            case _:
                events[at] = with_junk(events[at], chance)
    return "".join(f"{one}\n\n" for one in events)


def with_junk(event: str, chance: random.Random) -> str:
    head, found, data = event.partition("data:")
    data, *rest = data.split("\n", 1)
    try:
        body = json.loads(data)
    except ValueError:
        return event
    spots = list(places(body))
    if not found or not spots:
        return event
    holder, key = chance.choice(spots)
    junk = copy.deepcopy(chance.choice(JUNK))
    if isinstance(holder, dict) and chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = junk
    return "\n".join([f"{head}data: {json.dumps(body)}", *rest])


def outcome(row: dict[str, Any], text: str) -> str:
    """What became of a stream; anything but these is an error of ours."""
    reading = Reading(
        assembler(row["format"]),
        lambda delta: (delta.text + delta.thinking).encode(),  # type: ignore[func-returns-value]
        where="It",
        redact=Redactor(),
        event_limit=10**7,
    )
    try:
        reading.feed(text.encode(errors="replace"))
        body = readable(reading.end(), row["format"], "It")
    except ModelError as error:
        str(error).encode()
        return error.kind
    reply = read_reply(json.loads(json.dumps(body)), row["format"])
    answers = reply.answer([Seen("ok")] * len(reply.calls))
    assert problems(row["format"], [*reply.stored(), *answers]) == []
    return "truncated" if reply.truncated else "reply"


@pytest.mark.parametrize("seed", range(8))
def test_a_mangled_stream_is_a_reply_or_an_error(seed: int) -> None:
    chance = random.Random(seed)
    seen: dict[str, int] = {}
    for _ in range(250):
        row = chance.choice(rows())
        text = mangled(row, chance)
        try:
            kind = outcome(row, text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} from\n{text}") from error
        seen[kind] = seen.get(kind, 0) + 1
    assert {"reply", "broken_stream"} <= seen.keys(), seen
