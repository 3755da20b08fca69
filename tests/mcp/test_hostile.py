"""Servers that flood, garble, repeat themselves and offer nonsense (law 19 any-payload)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from endstop import BlockingRuntime, Effect, Outcome, Reason
from endstop.adapters.mcp.offer import safe_names
from endstop.adapters.mcp.stdio import MESSAGE_BYTES
from tests.mcp.desk import McpServer, McpTerms, call, config, one, raw


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """One server for all of them: none may do harm to the next."""
    with raw(tmp_path_factory.mktemp("raw")) as opened:
        yield opened
        assert one(opened, "echo", still=True).value == '{"still": true}'


def test_a_flood_is_swallowed_and_its_progress_thinned_out(
    server: McpServer, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []

    def observe(event: object) -> None:
        if type(event).__name__ == "CallProgressed":
            seen.append(event)

    with BlockingRuntime(server.tools_now(), config=config(), observers=[observe]) as runtime:
        results = runtime.execute([call("flood"), call("echo", beside=1)])
    assert [result.value for result in results] == ["flooded", '{"beside": 1}']
    assert len(seen) < 1_000, "the journal is not flooded"
    assert not caplog.records, "nor is the log"


def test_what_is_no_message_is_skipped(server: McpServer) -> None:
    assert one(server, "junk").value == "after the junk"


def test_a_second_answer_changes_nothing(server: McpServer) -> None:
    assert one(server, "twice").value == "first"
    assert one(server, "echo", n=1).value == '{"n": 1}', "law 3 one-ending"


def test_a_result_is_bounded(server: McpServer) -> None:
    value = one(server, "big").value
    assert value.startswith("headxx")
    assert value.endswith("tail")
    assert len(value) <= 1 << 20
    assert "left out" in value


def test_an_endless_answer_fails_its_call_alone(server: McpServer) -> None:
    with BlockingRuntime(server.tools_now(), config=config()) as runtime:
        huge, beside = runtime.execute(
            [call("huge", size=MESSAGE_BYTES + 1_000), call("slow_echo", seconds=0.1)]
        )
    assert (huge.outcome, huge.effect) == (Outcome.FAILED, Effect.UNKNOWN)
    assert f"longer than {MESSAGE_BYTES} bytes" in (huge.error or "")
    assert beside.value == "echoed", "law 14 isolated-siblings"


def test_an_answer_without_an_end_is_not_kept(tmp_path: Path) -> None:
    with raw(tmp_path) as server:
        result = one(server, "endless")
        assert (result.outcome, result.effect) == (Outcome.FAILED, Effect.UNKNOWN)
        assert "longer than" in (result.error or "")


def test_halves_of_characters_and_numbers_that_are_none(server: McpServer) -> None:
    result = one(server, "surrogate")
    assert result.outcome is Outcome.SUCCEEDED
    json.dumps(result.value).encode("utf-8")


@pytest.mark.parametrize("tool", ["garbled", "shapeless"])
def test_an_answer_that_cannot_be_read_fails_its_call(server: McpServer, tool: str) -> None:
    result = one(server, tool)
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.TOOL_ERROR)
    assert result.effect is Effect.UNKNOWN, "law 5 honest-effect: it did answer something"
    assert "protocol" in (result.error or "") or "not valid" in (result.error or "")


def test_sampling_is_refused_in_words(server: McpServer) -> None:
    answer = json.loads(one(server, "sample").value)
    assert "sampling is refused" in answer["error"]["message"]


def test_a_broken_list_costs_only_what_is_broken(tmp_path: Path) -> None:
    with raw(tmp_path, "odd_tools") as server:
        names = [tool.name for tool in server.tools_now()]
        notes = "\n".join(server.notes)
        assert "fine" in names
        assert "no_schema" in notes
        assert len(server.notes) == 3
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        assert len(set(names)) == len(names)
        originals = server.originals()
        assert sorted(originals) == sorted(names)
        ours = {its: name for name, its in originals.items()}
        assert one(server, ours["a b"], q=1).value == "a b: {'q': 1}"
        assert one(server, ours["a/b"], q=2).value == "a/b: {'q': 2}"
        assert one(server, "bad_properties", anything=1).outcome is Outcome.SUCCEEDED
        assert one(server, "loop", anything=1).outcome is Outcome.SUCCEEDED


def test_names_are_sayable_distinct_and_the_same_each_time() -> None:
    names = ["a b", "a/b", "a_b", "ü", "x" * 64, "x" * 65, "x" * 66, "", "a.b"]
    made = safe_names(names)
    assert made == safe_names(reversed(names))
    assert len(set(made.values())) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in made.values())
    assert (made["a_b"], made["x" * 64]) == ("a_b", "x" * 64), "a good name is kept"
    prefixed = safe_names(names, "srv_")
    assert prefixed["a_b"] == "srv_a_b"
    assert all(len(name) <= 64 for name in prefixed.values())


def test_a_small_bound_is_kept(tmp_path: Path) -> None:
    with raw(tmp_path, terms=McpTerms(result_bytes=2_000)) as server:
        assert len(one(server, "big").value) <= 2_000
