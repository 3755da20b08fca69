"""Replies in, calls out; observations in, paired messages out (law 4 one-answer)."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.adapters import read_reply
from endstop.adapters.parts import FORMATS, UNREADABLE, unique_ids
from endstop.adapters.repair import NOT_STARTED, repair
from endstop.errors import CallerError
from tests.support import ROOT
from tests.unit.adapters.pairing import problems

SAMPLES = sorted((ROOT / "tests" / "samples").glob("*.json"))


@dataclass(frozen=True)
class Seen:
    text: str
    is_error: bool = False


def sample(name: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((ROOT / "tests" / "samples" / f"{name}.json").read_text())
    return body


def chat(*calls: Any, **message: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **message}


def call(model_id: Any, arguments: Any, name: Any = "note") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": model_id, "type": "function", "function": function}


def paired(reply: Any) -> list[dict[str, Any]]:
    """The transcript of a reply and its answers, which must be valid."""
    answers = reply.answer([Seen(f"result {n}") for n in range(len(reply.calls))])
    transcript = [*reply.stored(), *answers]
    assert problems(reply.format, transcript) == []
    return transcript


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_comes_out_paired(path: Any) -> None:
    text = path.read_text()
    reply = read_reply(text)
    assert reply.calls
    assert read_reply(json.loads(text)) == reply
    assert read_reply(text.encode(), reply.format) == reply
    paired(reply)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_bare_message_reads_like_the_body(path: Any) -> None:
    body = json.loads(path.read_text())
    if "choices" in body:
        bare = body["choices"][0]["message"]
    elif "output" in body:
        bare = body["output"]
    else:
        bare = {"role": "assistant", "content": body["content"]}
    assert read_reply(bare).format == read_reply(body).format
    assert len(read_reply(bare).calls) == len(read_reply(body).calls)
    paired(read_reply(bare))


def test_text_and_calls_are_read() -> None:
    reply = read_reply(sample("chat_two_calls"))
    assert reply.text == "I will look at the plan first."
    assert [(c.model_id, c.tool) for c in reply.calls] == [
        ("call_a1", "read_file"),
        ("call_a2", "word_count"),
    ]
    assert reply.calls[1].arguments == {"path": "notes/plan.md", "by": "line"}
    assert read_reply(sample("responses_two_calls")).text == "Opening both tickets."


def test_BH49_repeated_and_empty_ids_give_four_calls_and_four_results() -> None:
    reply = read_reply(sample("chat_odd_ids"))
    assert [c.model_id for c in reply.calls] == ["x", "x", "", "y"]
    assert [c.arguments for c in reply.calls] == [
        {"text": "one"},
        {"text": "two"},
        {"text": "three"},
        {"text": "one"},
    ]
    transcript = paired(reply)
    ids = [c["id"] for c in transcript[0]["tool_calls"]]
    assert len(set(ids)) == 4
    assert (ids[0], ids[3]) == ("x", "y")
    assert [m["tool_call_id"] for m in transcript[1:]] == ids
    assert [m["content"] for m in transcript[1:]] == [f"result {n}" for n in range(4)]
    again = read_reply(sample("chat_odd_ids"))
    assert again.assistant_message == reply.assistant_message


@pytest.mark.parametrize("format", ["openai-responses", "anthropic-messages"])
def test_BH49_the_same_in_the_other_formats(format: str) -> None:
    body: list[dict[str, Any]]
    if format == "openai-responses":
        one = {"type": "function_call", "name": "note", "arguments": "{}"}
        body = [{**one, "call_id": i} for i in ("x", "x", "", "x_2")]
    else:
        two: dict[str, Any] = {"type": "tool_use", "name": "note", "input": {}}
        body = [{**two, "id": i} for i in ("x", "x", "", "x_2")]
    reply = read_reply(body)
    assert reply.format == format
    assert len(reply.calls) == 4
    paired(reply)


BAD_ARGUMENTS = {
    "truncated": '{"path": "a.txt", "text": "hal',
    "a list": '["a.txt"]',
    "a number": "7",
    "ten megabytes": json.dumps({"text": "x" * 10_000_000}),
    "a key twice": '{"path": "a", "path": "b"}',
    "nested without end": '{"a":' * 100_000,
    "not a number": '{"a": NaN}',
    "too many digits": '{"a": ' + "9" * 5_000 + "}",
}


@pytest.mark.parametrize("raw", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_BH73_bad_arguments_stay_visible_and_are_stored_valid(raw: str) -> None:
    reply = read_reply(chat(call("good", '{"a": 1}'), call("bad", raw, "write_file")))
    good, bad = reply.calls
    assert good.problem is None
    assert bad.tool == "write_file"
    assert bad.arguments is None
    assert bad.problem
    assert bad.raw[:10] == raw[:10]
    assert len(bad.raw) <= 2_000
    message = paired(reply)[0]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    stored = json.loads(message["tool_calls"][1]["function"]["arguments"])
    assert stored == {UNREADABLE: bad.raw}


@pytest.mark.parametrize("raw", [["a"], "text", 7, True, {"a": float("nan")}], ids=repr)
def test_BH73_bad_input_blocks_of_anthropic(raw: Any) -> None:
    reply = read_reply([{"type": "tool_use", "id": "t", "name": "note", "input": raw}])
    assert reply.calls[0].arguments is None
    assert reply.calls[0].problem
    paired(reply)


def test_a_doubled_key_in_an_input_block_is_found_in_the_text() -> None:
    text = '[{"type": "tool_use", "id": "t", "name": "note", "input": {"a": 1, "a": 2}}]'
    problem = read_reply(text).calls[0].problem
    assert problem is not None
    assert "'a' twice" in problem


def test_a_cyclic_input_is_a_problem_of_its_call_only() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    good = {"type": "tool_use", "id": "u", "name": "note", "input": {}}
    reply = read_reply([{"type": "tool_use", "id": "t", "name": "note", "input": loop}, good])
    assert reply.calls[0].problem
    assert reply.calls[1].problem is None
    paired(reply)


@pytest.mark.parametrize(
    "entry", [None, "call", {}, {"function": None}, {"function": {}}], ids=repr
)
def test_a_call_that_is_no_call_is_answered_all_the_same(entry: Any) -> None:
    reply = read_reply(chat(entry, call("b", "{}")))
    assert len(reply.calls) == 2
    assert reply.calls[0].problem
    assert reply.calls[1].problem is None
    paired(reply)


@pytest.mark.parametrize("raw", ["", "  ", None, "null", {}], ids=repr)
def test_no_arguments_are_an_empty_object(raw: Any) -> None:
    reply = read_reply(chat(call("a", raw)))
    assert reply.calls[0].arguments == {}
    assert paired(reply)[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_arguments_may_come_as_an_object() -> None:
    reply = read_reply(chat(call("a", {"n": 1})))
    assert reply.calls[0].arguments == {"n": 1}
    paired(reply)


@pytest.mark.parametrize("name", ["chat_cut_off", "responses_cut_off", "anthropic_cut_off"])
def test_a_cut_reply_runs_nothing(name: str) -> None:
    reply = read_reply(sample(name))
    assert reply.truncated
    assert reply.reason
    for one in reply.calls:
        assert one.arguments is None
        assert one.problem is not None
        assert "cut off" in one.problem
    paired(reply)


@pytest.mark.parametrize("reason", ["length", "content_filter", "LENGTH", "error"])
def test_finish_reasons_of_cut_replies(reason: str) -> None:
    body = sample("chat_two_calls")
    body["choices"][0]["finish_reason"] = reason
    assert read_reply(body).truncated


def test_an_unfinished_item_cuts_the_bare_list() -> None:
    item = {"type": "function_call", "call_id": "a", "name": "n", "arguments": "{}"}
    assert read_reply([{**item, "status": "in_progress"}]).truncated
    assert not read_reply([{**item, "status": "completed"}]).truncated


def test_only_the_callers_own_tools_are_calls() -> None:
    reply = read_reply(sample("anthropic_server_tool"))
    assert [c.tool for c in reply.calls] == ["book_table"]
    assert [b["type"] for b in paired(reply)[0]["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "tool_use",
    ]
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert read_reply([searched]).calls == ()
    computer = {"type": "computer_call", "id": "cu_1", "call_id": "c"}
    assert "computer_call" in read_reply([computer]).notes[0]


def test_custom_tools_take_text() -> None:
    reply = read_reply(sample("chat_custom_tool"))
    assert reply.calls[0].arguments == {"input": "select 1"}
    assert paired(reply)[0]["tool_calls"][0]["custom"] == {"name": "run_query", "input": "select 1"}
    outputs = [i["type"] for i in paired(read_reply(sample("responses_two_calls")))]
    assert outputs[-2:] == ["function_call_output", "custom_tool_call_output"]


def test_a_legacy_call_is_answered_in_its_own_way() -> None:
    legacy = {"name": "note", "arguments": '{"a": 1}'}
    reply = read_reply({"role": "assistant", "content": None, "function_call": legacy})
    assert reply.calls[0].arguments == {"a": 1}
    assert paired(reply)[1] == {"role": "function", "name": "note", "content": "result 0"}
    both = read_reply(chat(call("a", "{}"), function_call=legacy))
    assert len(both.calls) == 1
    assert both.notes
    paired(both)


def test_the_first_choice_with_calls_is_used_and_said() -> None:
    body = sample("chat_two_calls")
    talk = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hm"}}
    body["choices"] = [talk, body["choices"][0], body["choices"][0]]
    reply = read_reply(body)
    assert len(reply.calls) == 2
    assert "3 choices" in reply.notes[0]
    assert "1 others" in reply.notes[0]


def test_content_parts_are_read_as_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert read_reply(chat(call("i", "{}"), content=parts)).text == "ab"


def test_anthropic_answers_in_one_message_and_marks_errors() -> None:
    reply = read_reply(sample("anthropic_two_calls"))
    answers = reply.answer([Seen("sunny"), Seen("no train", is_error=True)])
    assert answers == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "no train",
                    "is_error": True,
                },
            ],
        }
    ]


def test_what_a_provider_refuses_to_take_back_is_left_out() -> None:
    cut_thought = {"type": "thinking", "thinking": "so"}
    reply = read_reply({"type": "message", "stop_reason": "end_turn", "content": [cut_thought]})
    assert reply.stored() == []
    blank = {"type": "text", "text": "\n"}
    use = {"type": "tool_use", "id": "a", "name": "a b", "input": {}}
    message = paired(read_reply([blank, use]))[0]
    assert [b["type"] for b in message["content"]] == ["tool_use"]
    assert message["content"][0]["name"] == "a_b"


def test_no_calls_need_no_answer() -> None:
    for body in (
        {"role": "assistant", "content": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "done"}]},
        [{"type": "message", "role": "assistant", "content": []}],
    ):
        reply = read_reply(body)
        assert reply.calls == ()
        assert reply.answer([]) == []


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_observations_is_refused(count: int) -> None:
    reply = read_reply(sample("chat_two_calls"))
    with pytest.raises(CallerError, match="exactly one per call"):
        reply.answer([Seen("x")] * count)


def test_BH72_text_that_is_not_utf8_is_mended_once() -> None:
    text = json.dumps(chat(call("a\ud83c", '{"t": "\\ud83c \\u0000"}'), content="\ud83c"))
    assert "\\ud83c" in text
    reply = read_reply(text)
    assert reply.calls[0].arguments == {"t": "\ufffd \0"}
    assert reply.text == "\ufffd"
    answers = reply.answer([Seen("half \ud83c")])
    assert answers[0]["content"] == "half \ufffd"
    json.dumps([*reply.stored(), *answers], ensure_ascii=False).encode()


BROKEN = {
    "empty": "",
    "cut": '{"choices": [',
    "a number": "7",
    "an object of no format": {"a": 1},
    "an error": {"error": {"message": "overloaded"}},
    "an empty list": [],
    "no choices": {"choices": []},
    "no message": {"choices": [{}]},
    "deep": "[" * 100_000,
    "content of no kind": {
        "type": "message",
        "role": "assistant",
        "stop_reason": "x",
        "content": 7,
    },
    "calls of no kind": {"role": "assistant", "tool_calls": "x"},
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_what_is_no_reply_is_refused_in_words(body: Any) -> None:
    with pytest.raises(CallerError) as caught:
        read_reply(body)
    assert len(str(caught.value)) < 1_000


def test_refusals_say_what_was_found_and_what_is_accepted() -> None:
    with pytest.raises(CallerError, match=r"overloaded.*'openai-chat'.*'anthropic-messages'"):
        read_reply({"error": {"message": "overloaded"}})
    with pytest.raises(CallerError, match="Unknown format 'gemini'"):
        read_reply({"role": "assistant", "content": ""}, "gemini")


def test_a_model_object_is_read_through_its_dump() -> None:
    class Body:
        def model_dump(self, mode: str) -> dict[str, Any]:
            assert mode == "json"
            return sample("chat_two_calls")

    assert len(read_reply(Body()).calls) == 2  # type: ignore[arg-type]


def test_what_the_provider_added_to_a_call_goes_back_to_it() -> None:
    extra = {"provider": {"thought_signature": "c2ln"}}
    entry = {**call("a", "{}"), "index": 0, "extra_content": extra}
    body = chat(entry, reasoning_content="hm", refusal=None, audio=None, function_call=None)
    message = paired(read_reply(body))[0]
    assert message["tool_calls"] == [entry]
    assert message["reasoning_content"] == "hm"
    assert not {"refusal", "audio", "function_call"} & set(message)


def test_a_missing_type_is_filled_in() -> None:
    entry = {"id": "a", "function": {"name": "note", "arguments": "{}"}}
    assert paired(read_reply(chat(entry)))[0]["tool_calls"] == [{**entry, "type": "function"}]


def test_the_items_own_ids_do_not_repeat_either() -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "a", "name": "n", "arguments": "{}"}
    first, second, *_ = paired(read_reply([item, {**item, "call_id": "b"}]))
    assert first == item
    assert second == {key: v for key, v in item.items() if key != "id"} | {"call_id": "b"}


odd_ids = st.sampled_from(["x", "", None, 7, "call00001", "x_2", "long_enough_id", "\ud83c"])
odd_names = st.sampled_from(["note", "", None, "a b", "n" * 200, "functions.note", "\ud83c"])
odd_arguments = st.sampled_from(
    ['{"a": 1}', "{}", "", None, "[1]", '{"a":', "null", {"a": 1}, {"a": float("nan")}, 7, [{}]]
)


@pytest.mark.parametrize("format", FORMATS)
@given(
    several=st.lists(st.tuples(odd_ids, odd_names, odd_arguments), max_size=6), cut=st.booleans()
)
def test_any_reply_comes_out_paired_and_needs_no_repair(
    format: str, several: list[tuple[Any, Any, Any]], cut: bool
) -> None:
    body: dict[str, Any]
    match format:
        case "openai-chat":
            calls = [call(i, raw, name) for i, name, raw in several]
            message = chat(*calls) if calls else {"role": "assistant", "content": "hm"}
            body = {"choices": [{"finish_reason": "length" if cut else "stop", "message": message}]}
        case "openai-responses":
            one = {"type": "function_call"}
            items = [{**one, "call_id": i, "name": n, "arguments": raw} for i, n, raw in several]
            body = {"output": items, "status": "incomplete" if cut else "completed"}
        case _:
            two = {"type": "tool_use"}
            blocks = [{**two, "id": i, "name": n, "input": raw} for i, n, raw in several]
            body = {"content": blocks, "stop_reason": "max_tokens" if cut else "tool_use"}
    reply = read_reply(body)
    assert reply.format == format
    assert len(reply.calls) == len(several)
    assert reply.truncated == cut
    for one_call in reply.calls:
        assert (one_call.arguments is None) == (one_call.problem is not None)
        assert one_call.problem is not None or not cut
    transcript = paired(reply)
    assert repair(transcript, format).changes == ()


def test_a_stored_call_that_was_unreadable_is_closed_as_not_started() -> None:
    stored = read_reply(chat(call("a", '{"a":'))).stored()
    assert repair(stored).messages[1]["content"] == NOT_STARTED


@pytest.mark.parametrize(
    ("ids", "made"),
    [
        (["a", "b"], ["a", "b"]),
        (["x", "x", "x_2"], ["x", "x_3", "x_2"]),
        (["", ""], ["call00001", "call00002"]),
        (["", "call00001"], ["call00002", "call00001"]),
        (["abcdefghi", "abcdefghi"], ["abcdefghi", "abcdefgh2"]),
    ],
)
def test_only_bad_ids_change(ids: list[str], made: list[str]) -> None:
    assert unique_ids(ids) == made
    assert unique_ids(made) == made


def test_ids_that_are_taken_are_not_made_again() -> None:
    assert unique_ids(["a", ""], taken={"a", "call00002"}) == ["a_1", "call00003"]


@pytest.mark.parametrize("junk", [[], {}, [[]], {"a": 1}, 5, True, None])
@pytest.mark.parametrize("key", ["type", "status", "role", "id", "call_id", "name", "content"])
def test_a_field_of_a_wrong_type_is_no_trap(key: str, junk: Any) -> None:
    """Law 19 any-payload: a list or object where a word is expected, too."""
    item = {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}", key: junk}
    said = {"role": "assistant", "content": "a", key: junk}
    for body in ([item], {"output": [item], "status": junk}, [said], {"content": [item], **said}):
        for format in (None, *FORMATS):
            try:
                reply = read_reply(body, format)
            except CallerError:
                continue
            paired(reply)
    with contextlib.suppress(CallerError):
        repair([item, said])
