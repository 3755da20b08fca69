"""Tool calls in chat streams, as the many servers send them: one call stays one call.

In doubt, arguments run together and are refused; never does a part of a call run (law 5
honest-effect, law 4 one-answer).
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.adapters import read_reply
from endstop.agents.models.chat_calls import Calls
from endstop.agents.models.chat_stream import ChatStream
from endstop.agents.models.reading import Malformed
from endstop.agents.models.sse import Event


def body_of(*deltas: Any, finish: str = "tool_calls") -> dict[str, Any]:
    stream = ChatStream()
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        stream.take(Event(data=json.dumps({"id": "c", "choices": [choice]})))
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    stream.take(Event(data=json.dumps({"choices": [last]})))
    stream.take(Event(data="[DONE]"))
    return stream.whole()


def calls_of(*pieces: Any) -> list[tuple[str, Any]]:
    """The calls that may run, from streamed pieces of `tool_calls`, each a delta of its own."""
    return runnable(
        body_of(*({"tool_calls": one if isinstance(one, list) else [one]} for one in pieces))
    )


def runnable(body: dict[str, Any]) -> list[tuple[str, Any]]:
    reply = read_reply(body)
    return [(call.tool, None if call.problem else call.arguments) for call in reply.calls]


def piece(
    name: str | None = None, arguments: Any = None, index: Any = None, id: str | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"function": {}}
    if name is not None:
        made["function"]["name"] = name
    if arguments is not None:
        made["function"]["arguments"] = arguments
    if index is not None:
        made["index"] = index
    if id is not None:
        made["id"] = id
    return made


A, B = ("a", {"x": 1}), ("b", {"y": 2})

SERVERS: dict[str, list[Any]] = {
    "by the rules": [
        piece("a", "", 0, "i1"),
        piece(None, '{"x"', 0),
        piece(None, ": 1}", 0),
        piece("b", "", 1, "i2"),
        piece(None, '{"y": 2}', 1),
    ],
    "interleaved": [
        [piece("a", "", 0, "i1"), piece("b", "", 1, "i2")],
        piece(None, '{"y"', 1),
        piece(None, '{"x"', 0),
        [piece(None, ": 1}", 0), piece(None, ": 2}", 1)],
    ],
    "the second first": [
        piece("b", '{"y": 2}', 1, "i2"),
        piece("a", '{"x": 1}', 0, "i1"),
    ],
    "whole calls in one chunk": [
        [piece("a", '{"x": 1}', 0, "i1"), piece("b", '{"y": 2}', 1, "i2")]
    ],
    "whole calls, no index": [
        piece("a", '{"x": 1}', None, "i1"),
        piece("b", '{"y": 2}', None, "i2"),
    ],
    "whole calls, no index, no id": [piece("a", '{"x": 1}'), piece("b", '{"y": 2}')],
    "whole calls, no index, no id, one chunk": [[piece("a", '{"x": 1}'), piece("b", '{"y": 2}')]],
    "whole calls, all with index 0": [
        piece("a", '{"x": 1}', 0, "i1"),
        piece("b", '{"y": 2}', 0, "i2"),
    ],
    "whole calls, all with index 0, empty ids": [
        piece("a", '{"x": 1}', 0, ""),
        piece("b", '{"y": 2}', 0, ""),
    ],
    "pieces, all with index 0": [
        piece("a", "", 0, "i1"),
        piece(None, '{"x"', 0),
        piece(None, ": 1}", 0),
        piece("b", "", 0, "i2"),
        piece(None, '{"y": 2}', 0),
    ],
    "pieces without an index": [
        piece("a", "", None, "i1"),
        piece(None, '{"x"'),
        piece(None, ": 1}"),
        piece("b", "", None, "i2"),
        piece(None, '{"y": 2}'),
    ],
    "pieces without an index, interleaved by id": [
        piece("a", "", None, "i1"),
        piece("b", "", None, "i2"),
        piece(None, '{"x"', None, "i1"),
        piece(None, '{"y"', None, "i2"),
        piece(None, ": 1}", None, "i1"),
        piece(None, ": 2}", None, "i2"),
    ],
    "pieces without index and id, by their place": [
        [piece("a", ""), piece("b", "")],
        [piece(None, '{"x"'), piece(None, '{"y"')],
        [piece(None, ": 1}"), piece(None, ": 2}")],
    ],
    "a new id with every piece": [
        piece("a", "", 0, "r1"),
        piece(None, '{"x"', 0, "r2"),
        piece(None, ": 1}", 0, "r3"),
        piece("b", "", 1, "r4"),
        piece(None, '{"y": 2}', 1, "r5"),
    ],
    "one id for all": [
        piece("a", "", 0, "same"),
        piece(None, '{"x"', 0, "same"),
        piece("b", "", 1, "same"),
        piece(None, '{"y"', 1, "same"),
        piece(None, ": 1}", 0, "same"),
        piece(None, ": 2}", 1, "same"),
    ],
    "id and name with every piece": [
        piece("a", "", 0, "i1"),
        piece("a", '{"x"', 0, "i1"),
        piece("a", ": 1}", 0, "i1"),
        piece("a", "", 0, "i1"),
        piece("b", '{"y": 2}', 1, "i2"),
        piece("b", "", 1, "i2"),
    ],
    "the name with every piece, no id": [
        piece("a", "", 0),
        piece("a", '{"x"', 0),
        piece("a", ": 1}", 0),
        piece("b", '{"y"', 1),
        piece("b", ": 2}", 1),
    ],
    "the name in pieces": [
        piece("", "", 0, "i1"),
        piece("a", None, 0),
        piece(None, '{"x": 1}', 0),
        piece("b", '{"y": 2}', 1, "i2"),
    ],
    "the whole call once more at the end": [
        piece("a", "", 0, "i1"),
        piece(None, '{"x": 1}', 0),
        piece("b", '{"y": 2}', 1, "i2"),
        piece("a", '{"x": 1}', 0, "i1"),
        piece("b", '{"y": 2}', 1, "i2"),
    ],
    "the whole call once more at the end, no id": [
        piece("a", '{"x": 1}', 0),
        piece("b", '{"y": 2}', 1),
        piece("a", '{"x": 1}', 0),
        piece("b", '{"y": 2}', 1),
    ],
    "two in one chunk, no id, all with index 0": [
        [piece("a", '{"x": 1}', 0), piece("b", '{"y": 2}', 0)],
    ],
    "arguments as an object": [piece("a", {"x": 1}, 0, "i1"), piece("b", {"y": 2}, 1, "i2")],
    "indexes as text and floats": [
        piece("a", "", "0", "i1"),
        piece(None, '{"x": 1}', 0.0),
        piece("b", "", "1", "i2"),
        piece(None, '{"y": 2}', 1),
    ],
    "indexes from 1": [piece("a", '{"x": 1}', 1, "i1"), piece("b", '{"y": 2}', 2, "i2")],
    "nulls everywhere": [
        {"index": 0, "id": "i1", "type": None, "function": {"name": "a", "arguments": None}},
        {"index": 0, "id": None, "function": {"name": None, "arguments": '{"x": 1}'}},
        [None, piece("b", '{"y": 2}', 1, "i2")],
    ],
}


@pytest.mark.parametrize("server", SERVERS)
def test_two_calls_are_two_calls(server: str) -> None:
    assert calls_of(*SERVERS[server]) == [A, B]


@pytest.mark.parametrize("server", SERVERS)
def test_they_are_answered_in_pairs(server: str) -> None:
    deltas = [{"tool_calls": one if isinstance(one, list) else [one]} for one in SERVERS[server]]
    reply = read_reply(body_of(*deltas))
    (stored,) = reply.stored()
    ids = [call["id"] for call in stored["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(ids)


def test_a_long_name_in_pieces_is_one_name() -> None:
    got = calls_of(piece("get_", "", 0, "i"), piece("weather", "", 0), piece(None, "{}", 0))
    assert got == [("get_weather", {})]


def test_calls_without_arguments_are_calls() -> None:
    assert calls_of(piece("a", "", 0, "i1"), piece("b", "", 1, "i2")) == [("a", {}), ("b", {})]
    assert calls_of(piece("a", None, 0, "i1")) == [("a", {})]


def test_the_same_call_twice_is_two_calls_where_ids_say_so() -> None:
    twice = [piece("a", '{"x": 1}', 0, "i1"), piece("a", '{"x": 1}', 0, "i2")]
    assert calls_of(*twice) == [A, A]
    assert calls_of(piece("a", '{"x": 1}'), piece("a", '{"x": 1}')) == [A, A]


def test_in_doubt_nothing_runs() -> None:
    # Arguments that go on after they were whole.
    assert calls_of(piece("a", '{"x": 1}', 0, "i1"), piece(None, '{"x": 2}', 0)) == [("a", None)]
    # Another whole object under the same id.
    again = [piece("a", '{"x": 1}', 0, "i1"), piece("a", '{"x": 2}', 0, "i1")]
    assert calls_of(*again) == [("a", None)]
    # Two names, and nothing that says where the second call begins.
    assert calls_of(piece("a", "", 0), piece("b", "", 0)) == [("ab", {})]
    # A piece before its call has a name.
    assert calls_of(piece(None, '{"x": 1}', 0)) == [("", None)]


def test_arguments_that_are_no_object_are_refused() -> None:
    assert calls_of(piece("a", "[1]", 0, "i")) == [("a", None)]
    assert calls_of(piece("a", [1], 0, "i")) == [("a", None)]
    assert calls_of(piece("a", '{"x": 1', 0, "i")) == [("a", None)]


def test_what_else_a_call_carries_is_kept() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    body = body_of({"tool_calls": [{**piece("a", "{}", 0, "i1"), "extra_content": extra}]})
    assert body["choices"][0]["message"]["tool_calls"][0]["extra_content"] == extra


def test_a_custom_tool_call_is_put_together() -> None:
    begun = {"index": 0, "id": "i", "type": "custom", "custom": {"name": "code", "input": "pr"}}
    body = body_of(
        {"tool_calls": [begun]}, {"tool_calls": [{"index": 0, "custom": {"input": "int"}}]}
    )
    assert runnable(body) == [("code", {"input": "print"})]


def test_a_legacy_call_is_put_together() -> None:
    body = body_of(
        {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": ""}},
        {"function_call": {"arguments": '{"x"'}},
        {"function_call": {"name": "a", "arguments": ": 1}"}},
        finish="function_call",
    )
    assert runnable(body) == [A]
    assert body["choices"][0]["message"]["function_call"]["arguments"] == '{"x": 1}'


@pytest.mark.parametrize(
    "finish", ["stop", "tool_calls", "STOP", "end_turn", "eos", "function_call"]
)
def test_calls_count_whatever_the_finish_is_called(finish: str) -> None:
    assert runnable(body_of({"tool_calls": [piece("a", '{"x": 1}', 0, "i")]}, finish=finish)) == [A]


@pytest.mark.parametrize("finish", ["length", "LENGTH", "content_filter", "error", "network_error"])
def test_a_reply_that_the_model_did_not_finish_runs_nothing(finish: str) -> None:
    body = body_of({"tool_calls": [piece("a", '{"x": 1}', 0, "i")]}, finish=finish)
    assert read_reply(body).truncated
    assert runnable(body) == [("a", None)]


def test_a_cut_is_not_taken_back_by_a_later_chunk() -> None:
    stream = ChatStream()
    first = {"index": 0, "delta": {"tool_calls": [piece("a", "{}", 0, "i")]}}
    for choice in ({**first, "finish_reason": "length"}, {"index": 0, "finish_reason": "stop"}):
        stream.take(Event(data=json.dumps({"choices": [choice]})))
    stream.take(Event(data="[DONE]"))
    assert read_reply(stream.whole()).truncated


def test_an_empty_finish_reason_is_none() -> None:
    stream = ChatStream()
    for reason in ("", None, "null", "stop", ""):
        choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": reason}
        stream.take(Event(data=json.dumps({"choices": [choice]})))
    stream.take(Event(data="[DONE]"))
    body = stream.whole()
    assert body["choices"][0]["finish_reason"] == "stop"
    assert read_reply(body).text == "aaaaa"


def test_texts_thoughts_and_details_are_put_together() -> None:
    body = body_of(
        {"role": "assistant", "content": None, "reasoning_content": "hm"},
        {"reasoning_content": "m", "reasoning_details": [{"type": "t", "index": 0, "text": "h"}]},
        {"content": "", "reasoning_details": [{"type": "t", "index": 0, "text": "m", "sig": "s"}]},
        {"content": "a", "reasoning_details": [{"type": "u", "index": 1, "data": "x"}]},
        {"content": "b", "annotations": [1], "name": "n"},
        {"annotations": [2], "refusal": None, "name": "m"},
        finish="stop",
    )
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "ab",
        "name": "m",
        "reasoning_content": "hmm",
        "annotations": [1, 2],
        "reasoning_details": [
            {"type": "t", "index": 0, "text": "hm", "sig": "s"},
            {"type": "u", "index": 1, "data": "x"},
        ],
    }


def test_content_in_parts_is_put_together() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    body = body_of(
        {"content": [thought]},
        {"content": [{"type": "text", "text": "a"}]},
        {"content": [{"type": "text", "text": "b"}]},
        {"content": "c"},
        finish="stop",
    )
    content = body["choices"][0]["message"]["content"]
    assert content == [thought, {"type": "text", "text": "abc"}]
    assert read_reply(body).text == "abc"


def test_a_refusal_is_text_to_read() -> None:
    body = body_of({"refusal": "I can"}, {"refusal": "not."}, finish="stop")
    assert read_reply(body).text == "I cannot."


def test_a_whole_message_in_place_of_a_delta_is_taken() -> None:
    stream = ChatStream()
    message = {"role": "assistant", "content": "a", "tool_calls": [piece("a", '{"x": 1}', 0, "i")]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    stream.take(Event(data=json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1}})))
    stream.take(Event(data="[DONE]"))
    assert runnable(stream.whole()) == [A]


def test_every_choice_has_to_be_whole() -> None:
    stream = ChatStream()
    for index in (1, 0):
        choice = {"index": index, "delta": {"content": f"{index}"}}
        stream.take(Event(data=json.dumps({"choices": [choice]})))
    for index, left in ((0, 1), (1, 0)):
        ended = {"index": index, "finish_reason": "stop"}
        stream.take(Event(data=json.dumps({"choices": [ended]})))
        stream.done = True
        if left:
            with pytest.raises(Exception, match="finish_reason"):
                stream.whole()
    assert [one["message"]["content"] for one in stream.whole()["choices"]] == ["0", "1"]


names = st.sampled_from(["a", "b", "search"])
arguments = st.dictionaries(
    st.text(max_size=4), st.integers() | st.text(max_size=6) | st.lists(st.booleans()), max_size=3
)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(names, arguments), min_size=1, max_size=4),
    st.sampled_from(["index", "index and id", "id", "new ids", "names too"]),
    st.randoms(use_true_random=False),
)
def test_any_cut_into_pieces_gives_the_same_calls(
    wanted: list[tuple[str, Any]], server: str, chance: random.Random
) -> None:
    queues: list[list[dict[str, Any]]] = []
    for number, (name, given_) in enumerate(wanted):
        text = json.dumps(given_, ensure_ascii=chance.random() < 0.5)
        places = sorted(chance.randint(0, len(text)) for _ in range(3))
        parts = [text[i:j] for i, j in zip([0, *places], [*places, len(text)], strict=True)]
        first = piece(name, "", number, f"id{number}")
        queue = [first, *(piece(None, part, number) for part in parts)]
        for serial, one in enumerate(queue):
            if server in ("index and id", "id", "names too"):
                one["id"] = f"id{number}"
            if server == "new ids":
                one["id"] = f"id{number}-{serial}"
            if server == "names too":
                one["function"]["name"] = name
            if server == "id":
                del one["index"]
        queues.append(queue)
    # The first pieces come in order; the others as they like.
    pieces = [queue.pop(0) for queue in queues]
    while queues := [queue for queue in queues if queue]:
        pieces.append(chance.choice(queues).pop(0))
    assert calls_of(*pieces) == wanted


def test_a_message_beside_or_behind_the_deltas_is_not_said_twice() -> None:
    stream = ChatStream()
    full = {"role": "assistant", "content": "ab"}
    for choice in (
        {"index": 0, "delta": {"content": "a"}, "message": {**full, "content": "a"}},
        {"index": 0, "delta": {"content": "b"}, "message": full},
        {"index": 0, "delta": {}, "message": full, "finish_reason": "stop"},
    ):
        stream.take(Event(data=json.dumps({"choices": [choice]})))
    stream.take(Event(data="[DONE]"))
    assert read_reply(stream.whole()).text == "ab"


@pytest.mark.parametrize("depth", [5, 150, 900, 50_000])
def test_arguments_as_an_object_that_is_a_trap_are_told(depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    call = f'{{"index": 0, "id": "i", "function": {{"name": "a", "arguments": {deep}}}}}'
    chunk = f'{{"choices": [{{"index": 0, "delta": {{"tool_calls": [{call}]}}}}]}}'
    stream = ChatStream()
    try:
        stream.take(Event(data=chunk))
    except Malformed:
        assert depth > 150
    else:
        (made,) = runnable(body_of({"tool_calls": [json.loads(call)]}))
        assert (made[1] is not None) == (depth == 5)


@pytest.mark.parametrize("names", [False, True])
def test_the_cost_of_many_pieces_is_no_more_than_their_number(names: bool) -> None:
    calls = Calls()
    calls.take([piece("a", '{"x": [', 0)])
    count = 30_000
    began = time.monotonic()
    for _ in range(count):
        calls.take([piece("a" if names else None, '{"y": "0123456789"}', 0)])
        calls.take([piece("a" if names else None, ",", 0)])
    calls.take([piece(None, "0]}", 0)])
    (made,) = calls.made()
    assert time.monotonic() - began < 20
    assert len(json.loads(made["function"]["arguments"])["x"]) == count + 1
