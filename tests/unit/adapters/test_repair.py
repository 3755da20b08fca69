"""Broken transcripts become valid and stay honest (laws 4 one-answer and 5 honest-effect)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.adapters.parts import UNREADABLE
from endstop.adapters.repair import NO_RESULT, NOT_STARTED, REMOVED, repair
from endstop.errors import CallerError
from tests.unit.adapters.pairing import problems

Messages = list[dict[str, Any]]

USER = {"role": "user", "content": "go on"}


class Chat:
    """How the tests write a transcript of chat completions."""

    format = "openai-chat"

    @staticmethod
    def calls(*ids: Any, arguments: Any = '{"n": 1}') -> Messages:
        functions = {"name": "note", "arguments": arguments}
        calls = [{"id": i, "type": "function", "function": functions} for i in ids]
        return [{"role": "assistant", "content": None, "tool_calls": calls}]

    @staticmethod
    def result(call_id: Any, text: str = "ok") -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    @staticmethod
    def texts(messages: Messages) -> list[str]:
        return [m["content"] for m in messages if m["role"] == "tool"]


class Responses:
    """How the tests write a list of items of the responses format."""

    format = "openai-responses"

    @staticmethod
    def calls(*ids: Any, arguments: Any = '{"n": 1}') -> Messages:
        one = {"type": "function_call", "name": "note", "arguments": arguments}
        return [{**one, "call_id": i} for i in ids]

    @staticmethod
    def result(call_id: Any, text: str = "ok") -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call_id, "output": text}

    @staticmethod
    def texts(messages: Messages) -> list[str]:
        return [m["output"] for m in messages if m.get("type") == "function_call_output"]


class Anthropic:
    """How the tests write a transcript of messages with blocks."""

    format = "anthropic-messages"

    @staticmethod
    def calls(*ids: Any, arguments: Any = None) -> Messages:
        given_input = {"n": 1} if arguments is None else arguments
        blocks = [{"type": "tool_use", "id": i, "name": "note", "input": given_input} for i in ids]
        return [{"role": "assistant", "content": blocks}]

    @staticmethod
    def result(call_id: Any, text: str = "ok") -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return {"role": "user", "content": [block]}

    @staticmethod
    def texts(messages: Messages) -> list[str]:
        blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"]]
        return [b["content"] for b in blocks if b["type"] == "tool_result"]


FORMS = [Chat, Responses, Anthropic]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.format)


def mended(form: Any, messages: Messages) -> Messages:
    """The repaired transcript, checked for everything that must always hold of one."""
    before = copy.deepcopy(messages)
    repaired = repair(messages, form.format)
    assert messages == before, "the input was changed"
    assert problems(form.format, repaired.messages) == []
    assert bool(repaired.changes) == (repaired.messages != messages)
    again = repair(repaired.messages, form.format)
    assert again.changes == ()
    assert again.messages == repaired.messages
    return repaired.messages


@forms
def test_BH48_abort_while_arguments_are_half_streamed(form: Any) -> None:
    half = '{"n": '
    messages = [USER, *form.calls("a", arguments=half), USER]
    fixed = mended(form, messages)
    assert form.texts(fixed) == [NOT_STARTED]
    assert UNREADABLE in json.dumps(fixed)


@forms
def test_BH48_abort_after_one_of_two_results_is_stored(form: Any) -> None:
    for kept, expected in (("a", ["ok", NO_RESULT]), ("b", [NO_RESULT, "ok"])):
        messages = [USER, *form.calls("a", "b"), form.result(kept), USER]
        assert form.texts(mended(form, messages)) == expected


@forms
def test_BH48_history_compacted_in_the_middle_of_a_turn(form: Any) -> None:
    lost_call = [form.result("old"), *form.calls("a"), form.result("a"), USER]
    assert form.texts(mended(form, lost_call)) == ["ok"]
    lost_result = [USER, *form.calls("a"), *form.calls("b"), form.result("b"), USER]
    assert form.texts(mended(form, lost_result)) == [NO_RESULT, "ok"]


@forms
def test_BH48_results_written_twice_and_in_execution_order(form: Any) -> None:
    results = [form.result("b", "B"), form.result("a", "A"), form.result("b", "B again")]
    assert form.texts(mended(form, [USER, *form.calls("a", "b"), *results])) == ["A", "B"]


@forms
def test_results_are_moved_behind_their_calls(form: Any) -> None:
    late = [USER, *form.calls("a", "b"), form.result("a", "A"), USER, form.result("b", "B")]
    assert form.texts(mended(form, late)) == ["A", "B"]
    early = [USER, form.result("a", "A"), *form.calls("a"), USER]
    assert form.texts(mended(form, early)) == ["A"]


@forms
def test_a_result_before_its_call_is_not_trusted_when_its_id_is_not_alone(form: Any) -> None:
    messages = [USER, form.result("a", "old"), *form.calls("a"), USER, *form.calls("a"), USER]
    assert form.texts(mended(form, messages)) == [NO_RESULT, NO_RESULT]


@forms
def test_of_two_results_before_their_call_neither_is_trusted(form: Any) -> None:
    messages = [USER, form.result("a", "1"), USER, form.result("a", "2"), *form.calls("a"), USER]
    assert form.texts(mended(form, messages)) == [NO_RESULT]


@forms
def test_a_second_result_is_dropped_and_listed(form: Any) -> None:
    messages = [USER, *form.calls("a"), form.result("a", "1"), USER, form.result("a", "2")]
    assert form.texts(mended(form, messages)) == ["1"]
    changes = repair(messages).changes
    assert [change.split(": ")[1] for change in changes] == ["second result of call 'a' dropped"]


@forms
def test_an_id_of_every_turn_finds_the_result_of_its_own_turn(form: Any) -> None:
    turn = [USER, *form.calls("call_0")]
    messages = [
        *turn,
        *turn,
        form.result("call_0", "second"),
        *turn,
        form.result("call_0", "third"),
    ]
    assert form.texts(mended(form, messages)) == [NO_RESULT, "second", "third"]


@forms
def test_BH49_repeated_and_empty_ids_get_their_results_by_position(form: Any) -> None:
    ids = ["x", "x", "", "y"]
    results = [form.result(i, str(n)) for n, i in enumerate(ids)]
    assert form.texts(mended(form, [USER, *form.calls(*ids), *results])) == ["0", "1", "2", "3"]


@forms
def test_results_under_ids_that_somebody_made_up(form: Any) -> None:
    results = [form.result("made_1", "0"), form.result("made_2", "1")]
    assert form.texts(mended(form, [USER, *form.calls("", ""), *results])) == ["0", "1"]


@forms
def test_a_valid_transcript_keeps_its_very_objects(form: Any) -> None:
    one = [USER, *form.calls("a"), form.result("a"), USER, *form.calls("b"), form.result("b")]
    repaired = repair(one)
    assert repaired.changes == ()
    assert all(new is old for new, old in zip(repaired.messages, one, strict=True))


@forms
def test_BH72_text_that_is_not_utf8_is_replaced(form: Any) -> None:
    messages = [USER, *form.calls("a"), form.result("a", "half \ud83c")]
    assert form.texts(mended(form, messages)) == ["half \ufffd"]


@forms
def test_BH73_poisoned_arguments_are_stored_valid_and_their_result_stays(form: Any) -> None:
    messages = [USER, *form.calls("a", arguments="[1]"), form.result("a", "invalid arguments")]
    fixed = mended(form, messages)
    assert form.texts(fixed) == ["invalid arguments"]
    assert UNREADABLE in json.dumps(fixed)


@forms
def test_large_arguments_that_were_accepted_once_stay(form: Any) -> None:
    large = {"text": "x" * 2_000_000}
    arguments: Any = large if form is Anthropic else json.dumps(large)
    messages = [USER, *form.calls("a", arguments=arguments), form.result("a")]
    assert repair(messages).changes == ()


def test_unanswered_calls_are_closed_as_errors_for_anthropic() -> None:
    fixed = mended(Anthropic, [USER, *Anthropic.calls("a"), USER])
    assert fixed[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": NO_RESULT, "is_error": True},
        {"type": "text", "text": "go on"},
    ]


def test_a_message_left_empty_keeps_its_place() -> None:
    messages = [Anthropic.result("gone"), {"role": "assistant", "content": "hello"}, USER]
    fixed = mended(Anthropic, messages)
    assert fixed[0] == {"role": "user", "content": [{"type": "text", "text": REMOVED}]}


def test_results_come_before_the_text_of_their_message() -> None:
    text = {"type": "text", "text": "and now"}
    block = Anthropic.result("a")["content"][0]
    messages = [USER, *Anthropic.calls("a"), {"role": "user", "content": [text, block]}]
    assert mended(Anthropic, messages)[2]["content"] == [block, text]


def test_a_reply_that_goes_on_talking_is_left_alone() -> None:
    said = {"type": "message", "role": "assistant", "content": []}
    items = [USER, *Responses.calls("a"), said, Responses.result("a"), USER]
    assert mended(Responses, items) == items
    cut = [USER, *Responses.calls("a"), said, USER]
    assert [i.get("type") for i in mended(Responses, cut)] == [
        None,
        "function_call",
        "function_call_output",
        "message",
        None,
    ]


def test_custom_calls_get_outputs_of_their_kind() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "query", "input": "select 1"}
    assert mended(Responses, [USER, custom])[2]["type"] == "custom_tool_call_output"
    wrong = mended(Responses, [USER, custom, Responses.result("c")])
    assert wrong[2] == {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}


def test_legacy_calls_are_closed_by_name() -> None:
    legacy = {"role": "assistant", "content": None}
    legacy["function_call"] = {"name": "note", "arguments": "{}"}  # type: ignore[assignment]
    answer = {"role": "function", "name": "note", "content": "ok"}
    assert mended(Chat, [USER, legacy, answer]) == [USER, legacy, answer]
    assert mended(Chat, [USER, legacy])[2]["content"] == NO_RESULT
    assert mended(Chat, [USER, answer]) == [USER]


def test_an_empty_list_of_calls_goes() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": []}
    assert mended(Chat, [USER, message]) == [USER, {"role": "assistant", "content": "hi"}]


def test_a_transcript_without_calls_is_left_alone() -> None:
    messages = [USER, {"role": "assistant", "content": "hi"}]
    assert repair(messages).messages == messages
    assert repair([]).messages == []


def test_changes_say_where_and_what() -> None:
    changes = repair([USER, *Chat.calls("a"), Chat.result("b")]).changes
    assert changes == (
        "message 2: result without a call ('b') dropped",
        "message 1: call 'a' had no result: closed as unknown",
    )


def test_what_is_no_transcript_is_refused_in_words() -> None:
    with pytest.raises(CallerError, match=r"messages\[1\] is a str"):
        repair([USER, "hello"])
    with pytest.raises(CallerError, match="mixes"):
        repair([*Chat.calls("a"), *Anthropic.calls("a")])
    with pytest.raises(CallerError, match="Unknown format"):
        repair([], "gemini")
    loop: dict[str, Any] = {"role": "user"}
    loop["content"] = [loop]
    with pytest.raises(CallerError, match=r"messages\[0\]\.content\[0\]: contains itself"):
        repair([loop])


ids = st.sampled_from(["a", "b", "c", "", "a_2", "call00001", "long_enough_id_1"])
arguments = st.sampled_from(['{"n": 1}', '{"n": ', "[]", "", "null", '{"a":1,"a":2}'])


@st.composite
def transcripts(draw: st.DrawFn, form: Any) -> Messages:
    """Calls, results and talk in any order, with any ids."""
    messages: Messages = []
    for kind in draw(st.lists(st.sampled_from(["calls", "result", "user", "said"]), max_size=12)):
        match kind:
            case "calls":
                several = draw(st.lists(ids, min_size=1, max_size=4))
                raw: Any = draw(arguments)
                if form is Anthropic:
                    raw = draw(st.sampled_from([{"n": 1}, {}, [], raw]))
                messages += form.calls(*several, arguments=raw)
            case "result":
                messages.append(form.result(draw(ids), draw(st.text(max_size=3))))
            case "user":
                messages.append(USER)
            case _:
                messages.append({"role": "assistant", "content": "hm", **said(form)})
    return messages


def said(form: Any) -> dict[str, Any]:
    return {"type": "message", "content": []} if form is Responses else {}


@forms
@given(data=st.data())
def test_any_transcript_comes_out_paired(form: Any, data: st.DataObject) -> None:
    messages = data.draw(transcripts(form))
    fixed = mended(form, messages)
    assert len(form.texts(fixed)) == count_calls(messages), "one result per call"


@forms
@given(data=st.data())
def test_no_result_is_invented_and_none_is_shown_twice(form: Any, data: st.DataObject) -> None:
    messages = data.draw(transcripts(form))
    numbered: Messages = []
    for number, message in enumerate(messages):
        is_result = bool(form.texts([message]))
        numbered.append(numbered_result(form, message, number) if is_result else message)
    texts = [t for t in form.texts(mended(form, numbered)) if t not in (NO_RESULT, NOT_STARTED)]
    assert len(set(texts)) == len(texts)
    assert set(texts) <= set(form.texts(numbered))


def numbered_result(form: Any, message: dict[str, Any], number: int) -> dict[str, Any]:
    key = message.get("tool_call_id", message.get("call_id"))
    if form is Anthropic:
        key = message["content"][0]["tool_use_id"]
    made: dict[str, Any] = form.result(key, f"result {number}")
    return made


def count_calls(messages: Messages) -> int:
    count = sum(m.get("type") == "function_call" for m in messages)
    for message in messages:
        count += len(message.get("tool_calls") or [])
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        count += sum(block.get("type") == "tool_use" for block in blocks)
    return count
