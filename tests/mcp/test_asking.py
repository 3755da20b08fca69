"""A server's questions become questions of the call that it asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from endstop import CallResult, Outcome, Runtime, StoppedBy
from endstop.adapters.mcp.elicit import Elicitor
from endstop.adapters.mcp.live import Live
from endstop.core.events import QuestionAsked, QuestionWithdrawn
from tests.mcp.desk import McpServer, call, config, raw, received, sound


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    with sound(tmp_path_factory.mktemp("sound")) as opened:
        yield opened


withdrawn: list[str] = []


def answered(
    server: McpServer, answers: list[str | None], calls: int = 1, tool: str = "ask"
) -> tuple[Any, list[Any]]:
    """Run `ask`, answer its questions one by one (None: stop the run instead)."""
    asked: list[QuestionAsked] = []
    withdrawn.clear()

    async def scene() -> list[CallResult]:
        queue: asyncio.Queue[QuestionAsked] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def observe(event: object) -> None:
            if isinstance(event, QuestionWithdrawn):
                withdrawn.append(event.question)
            if isinstance(event, QuestionAsked):
                loop.call_soon_threadsafe(queue.put_nowait, event)

        async with (
            Runtime(await server.tools(), config=config(), observers=[observe]) as runtime,
            runtime.run() as run,
        ):
            work = run.execute([call(tool) for _ in range(calls)])
            running = asyncio.get_running_loop().create_task(work)
            for answer in answers:
                question = await asyncio.wait_for(queue.get(), 20)
                asked.append(question)
                if answer is None:
                    await run.cancel()
                else:
                    assert runtime.answer(question.question, answer)
            return list(await asyncio.wait_for(running, 15))

    return asyncio.run(scene()), asked


def test_a_form_is_asked_field_by_field(server: McpServer) -> None:
    (result,), asked = answered(server, ["wide", "640", "blue"])
    assert result.value == "blue 640", "what is no number is asked again"
    assert "Which size?" in asked[0].text
    assert "MCP server sound asks" in asked[0].text
    assert "whole number" in asked[1].text


def test_a_human_can_decline(server: McpServer) -> None:
    (result,), _ = answered(server, ["decline"])
    assert result.value == "they said decline"


def test_a_stop_withdraws_the_question(server: McpServer) -> None:
    (result,), asked = answered(server, [None])
    # The server hears that nobody answered, beside that its call is stopped: whichever came first.
    assert result.outcome is Outcome.CANCELLED or result.value == "they said cancel"
    assert asked[0].question in withdrawn, "law 7 every-wait-listens"


def test_it_is_not_guessed_which_call_asks(server: McpServer) -> None:
    results, asked = answered(server, [], calls=2)
    assert not asked
    assert {result.outcome for result in results} == {Outcome.FAILED}


def test_a_server_of_the_newest_protocol_asks_in_its_answer(tmp_path: Path) -> None:
    with raw(tmp_path, "modern") as server:
        (result,), asked = answered(server, ["12"], tool="needs_input")
    assert "How large?" in asked[0].text
    said = json.loads(result.value)
    assert said["given"]["q"] == {"action": "accept", "content": {"size": 12}}
    assert said["state"] == "state-1"


def test_a_stop_while_it_asks_sends_nothing_more(tmp_path: Path) -> None:
    with raw(tmp_path, "modern") as server:
        (result,), _ = answered(server, [None], tool="needs_input")
    assert (result.outcome, result.stopped_by) == (Outcome.CANCELLED, StoppedBy.ASKED)
    assert len(received(tmp_path, "tools/call")) == 1, "law 1 one-door"


def test_outside_of_a_call_nobody_is_asked() -> None:
    async def scene() -> None:
        live = Live(name="x", secrets=())
        params = types.ElicitRequestFormParams(message="hello", requested_schema={})
        answer = await Elicitor(live).asked(None, params)  # type: ignore[arg-type]
        assert isinstance(answer, types.ErrorData)
        assert "outside of a call" in answer.message

    asyncio.run(scene())


class Ctx:
    """A human who answers from a list."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, text: str, choices: Any = ()) -> str:
        self.asked.append((text, tuple(choices)))
        return self.answers.pop(0)


class Running:
    stopping = False

    def __init__(self, ctx: Ctx) -> None:
        self.ctx = ctx
        self.asks: set[Any] = set()


def put(params: Any, *answers: str) -> tuple[Any, Ctx]:
    ctx = Ctx(*answers)

    async def scene() -> Any:
        live = Live(name="x", secrets=())
        live.exchanges.add(Running(ctx))  # type: ignore[arg-type]
        return await Elicitor(live).asked(None, params)  # type: ignore[arg-type]

    return asyncio.run(scene()), ctx


def form(properties: Any, **more: Any) -> types.ElicitRequestFormParams:
    schema = {"type": "object", "properties": properties, **more}
    return types.ElicitRequestFormParams(message="please", requested_schema=schema)


def test_fields_of_every_kind() -> None:
    fields = {
        "sure": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "share": {"type": "number", "maximum": 1},
        "note": {"type": "string"},
    }
    answer, ctx = put(form(fields), "true", "blue", "2", "0.5", "")
    assert answer.action == "accept"
    assert answer.content == {"sure": True, "colour": "blue", "share": 0.5}
    assert ctx.asked[0][1] == ("true", "false", "decline")
    assert ctx.asked[1][1] == ("red", "blue", "decline")


def test_a_visit_is_shown_and_never_made() -> None:
    params = types.ElicitRequestURLParams(
        message="log in", url="https://example.com/login", elicitation_id="e"
    )
    answer, ctx = put(params, "accept")
    assert answer.action == "accept"
    assert "https://example.com/login" in ctx.asked[0][0]


@pytest.mark.parametrize(
    "params",
    [
        form({str(n): {"type": "string"} for n in range(30)}),
        form({"deep": {"type": "object"}}),
        form({"odd": 5}),
        form(7),
        form({"many": {"type": "string", "enum": list("x" * 500)}}),
    ],
)
def test_what_is_no_plain_form_is_refused(params: Any) -> None:
    answer, _ = put(params, *["x"] * 10)
    assert isinstance(answer, types.ErrorData)
