"""The scripted model: it says what it was given, in every format, and says when it has run out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from endstop.adapters import read_reply
from endstop.agents.models import Ask, Delta, ModelError, ModelReply, Say, Scripted, Usage
from endstop.errors import CallerError

FORMATS = ["openai-chat", "openai-responses", "anthropic-messages"]
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]


def ask(model: Scripted, *, times: int = 1) -> tuple[ModelReply, list[Delta]]:
    """The last of `times` replies and the deltas of all."""

    async def scenario() -> tuple[ModelReply, list[Delta]]:
        deltas: list[Delta] = []
        for _ in range(times - 1):
            await model.reply(Ask(messages=HELLO), deltas.append)
        return await model.reply(Ask(messages=HELLO), deltas.append), deltas

    return asyncio.run(scenario())


@pytest.mark.parametrize("format", FORMATS)
def test_text_and_calls_are_read_as_from_a_real_provider(format: str) -> None:
    line = Say(text="Let me look.", calls=[("search", {"q": "é"}), ("now", {})], thinking="hm")
    reply, deltas = ask(Scripted([line], format=format))
    read = read_reply(reply.body, format)
    assert read.text == "Let me look."
    assert [(call.tool, call.arguments) for call in read.calls] == [
        ("search", {"q": "é"}),
        ("now", {}),
    ]
    assert not read.truncated
    assert "".join(delta.text for delta in deltas) == "Let me look."
    assert len([delta for delta in deltas if delta.text]) == 3
    assert deltas[0] == Delta(thinking="hm")
    assert not reply.usage.reported


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_reply_executes_nothing(format: str) -> None:
    reply, _ = ask(Scripted([Say(calls=[("pay", {"amount": 1})], cut=True)], format=format))
    read = read_reply(reply.body)
    assert read.truncated
    assert all(call.problem for call in read.calls)


def test_lines_of_every_kind() -> None:
    whole = ModelReply(body={"choices": [{"message": {"role": "assistant", "content": "a"}}]})
    body = {"choices": [{"message": {"role": "assistant", "content": "b"}}]}

    async def thinks(asked: Ask) -> str:
        await asyncio.sleep(0)
        return f"heard {asked.messages[-1]['content']}"

    said = Say(text="d", usage=Usage(input_tokens=3, output_tokens=2))
    model = Scripted([whole, body, thinks, said, lambda _: "e"])
    texts = []
    for _ in range(5):
        reply, _ = ask(model)
        texts.append(read_reply(reply.body).text)
    assert texts == ["a", "b", "heard hello", "d", "e"]
    assert model.left == 0
    assert len(model.asks) == 5


def test_a_script_that_has_run_out_says_so() -> None:
    model = Scripted(["one", "two"], name="demo")
    with pytest.raises(ModelError, match=r"'demo' has run out: it has 2 replies.*ask 3") as caught:
        ask(model, times=3)
    assert caught.value.kind == "bad_request"


def test_a_function_never_runs_out() -> None:
    model = Scripted(lambda asked: f"{len(asked.messages)}")
    reply, _ = ask(model, times=50)
    assert read_reply(reply.body).text == "1"


def test_errors_are_raised_as_given() -> None:
    wanted = ModelError("overloaded", "too many", status=529, retry_after_s=2.0)
    with pytest.raises(ModelError) as caught:
        ask(Scripted([wanted]))
    assert caught.value is wanted


def test_what_was_asked_is_kept_as_it_was() -> None:
    model = Scripted(["a"])
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]

    async def scenario() -> None:
        await model.reply(Ask(messages=messages, system="be kind"), lambda _: None)
        messages[0]["content"] = "changed"
        messages.append({})

    asyncio.run(scenario())
    assert model.asks[0].messages == [{"role": "user", "content": "hello"}]
    assert model.asks[0].system == "be kind"


def test_ids_are_unique_in_a_conversation_that_another_script_goes_on_with() -> None:
    seen: set[str] = set()
    messages = list(HELLO)
    for _ in range(3):
        model = Scripted([Say(calls=[("a", {}), ("b", {})])])
        asked = Ask(messages=messages)
        reply = read_reply(asyncio.run(model.reply(asked, lambda _: None)).body)
        seen |= {call.model_id for call in reply.calls}
        messages += reply.stored()
    assert len(seen) == 6


def test_a_cancel_ends_a_reply_between_two_words() -> None:
    async def scenario() -> list[Delta]:
        deltas: list[Delta] = []
        first = asyncio.Event()

        def show(delta: Delta) -> None:
            deltas.append(delta)
            first.set()

        model = Scripted([Say(text="a b c", delay_s=0.001), Say(text="never", delay_s=3600.0)])
        await model.reply(Ask(messages=HELLO), show)
        task = asyncio.create_task(model.reply(Ask(messages=HELLO), show))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return deltas

    assert "".join(delta.text for delta in asyncio.run(scenario())) == "a b c"


@pytest.mark.parametrize(
    ("given", "words"),
    [("one", "write Scripted"), (Say(text="x"), "write Scripted"), ({"a": 1}, "write Scripted")],
)
def test_one_reply_instead_of_a_list_is_refused(given: Any, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        Scripted(given)


def test_other_bad_input_is_refused_in_words() -> None:
    with pytest.raises(CallerError, match="unknown format 'xml'"):
        Scripted([], format="xml")
    with pytest.raises(CallerError, match="a reply is int"):
        ask(Scripted([3]))  # type: ignore[list-item]
