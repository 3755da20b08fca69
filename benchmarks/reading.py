"""The cost of reading a model's reply, beside decoding its JSON and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Sample, Stopwatch, interleave
from benchmarks.noop import CALLS, QUICK_ROUNDS, ROUNDS
from benchmarks.rows import Row, beside
from endstop import read_reply


def reply_text(n: int) -> str:
    """A chat completion with `n` tool calls, as it comes over the wire."""
    calls: list[dict[str, Any]] = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {
                "name": "read_file",
                "arguments": json.dumps({"path": f"/srv/a/{i}.txt", "limit": 100}),
            },
        }
        for i in range(n)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return json.dumps({"choices": [{"index": 0, "message": message}]})


def read_reply_rows(quick: bool) -> Iterator[Row]:
    """Reading replies of several sizes; the floor decodes reply and arguments with `json.loads`."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for n in (1, 10, 100):
        text = reply_text(n)
        times = CALLS // n

        def floor(text: str = text, n: int = n, times: int = times) -> Sample:
            watch, read = Stopwatch(), list[Any]()
            with watch:
                for _ in range(times):
                    message = json.loads(text)["choices"][0]["message"]
                    read = [json.loads(c["function"]["arguments"]) for c in message["tool_calls"]]
            if len(read) != n:
                raise AssertionError(f"the floor read {len(read)} of {n} calls")
            return watch.sample(n * times)

        def ours(text: str = text, n: int = n, times: int = times) -> Sample:
            watch, reply = Stopwatch(), read_reply(text)
            with watch:
                for _ in range(times):
                    reply = read_reply(text)
            if len(reply.calls) != n or any(call.problem for call in reply.calls):
                raise AssertionError(f"{len(reply.calls)} of {n} calls were read")
            return watch.sample(n * times)

        yield beside(
            interleave(floor, ours, rounds),
            name="read-reply",
            mode="sync",
            n=n,
            floor="json.loads",
            executed=n * times * (rounds + 1),
        )
