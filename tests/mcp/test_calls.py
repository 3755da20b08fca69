"""Calls to a sound server over stdio: contracts, arguments, results, changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from endstop import (
    BlockingRuntime,
    CallerError,
    ContractError,
    Effect,
    EffectClass,
    Isolation,
    Outcome,
    Reason,
    Runtime,
)
from tests.mcp.desk import McpServer, call, config, one, raw, received, sound, wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    with sound(tmp_path_factory.mktemp("sound"), env={"SECRET_KEY": "hush-hush-1"}) as opened:
        yield opened


def test_hints_become_contracts(server: McpServer) -> None:
    tools = {tool.name: tool.declared for tool in server.tools_now()}
    assert tools["add"].effect is EffectClass.READ_ONLY
    assert tools["put"].effect is EffectClass.IDEMPOTENT
    assert tools["plain"].effect is EffectClass.EFFECTFUL
    assert tools["wipe"].effect is EffectClass.EFFECTFUL
    assert {declared.isolation for declared in tools.values()} == {Isolation.REMOTE}
    assert {declared.approval for declared in tools.values()} == {"never"}


def test_hints_can_be_mistrusted_and_overridden(tmp_path: Path) -> None:
    contract = {"add": {"effect": "once", "timeout": 7}, "*": {"grace": 2}}
    with raw(tmp_path, "hints", trust=False, contract=contract) as server:
        tools = {tool.name: tool.declared for tool in server.tools_now()}
    assert tools["put"].effect is EffectClass.EFFECTFUL
    assert (tools["add"].effect, tools["add"].timeout_s) == (EffectClass.ONCE, 7)
    assert tools["put"].grace_s == tools["add"].grace_s == 2


def test_what_may_destroy_can_ask_first(tmp_path: Path) -> None:
    with raw(tmp_path, "hints", approval="destructive") as server:
        asks = {tool.name: tool.declared.approval for tool in server.tools_now()}
    assert asks["add"] == asks["put"] == "never"
    assert asks["wipe"] == "always"
    assert asks["plain"] == "always", "without a hint the protocol says destructive"


def test_a_contract_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with (
        raw(tmp_path, contract={"echo": {"isolation": "process"}}) as server,
        pytest.raises(ContractError, match="runs at its server"),
    ):
        server.tools_now()


def test_results_are_plain(server: McpServer) -> None:
    assert one(server, "plain", text="grüß dich").value == "grüß dich"
    assert one(server, "add", a=2, b=3).value == {"result": 5}
    picture = one(server, "picture").value["content"]
    assert picture[0] == {"type": "text", "text": "a red square"}
    assert picture[1]["mime"] == "image/png"
    assert picture[1]["data"].startswith("iVBORw") or picture[1]["data"]


def test_an_error_of_the_tool_is_a_failure_in_its_words(server: McpServer) -> None:
    result = one(server, "fail", words="the moon is missing")
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.TOOL_ERROR)
    assert result.effect is Effect.UNKNOWN, "law 5 honest-effect"
    assert "the moon is missing" in (result.error or "")


def test_bad_arguments_never_reach_the_server(tmp_path: Path) -> None:
    with raw(tmp_path, "hints") as server:
        result = one(server, "put", key=["not", "text"])
    assert (result.outcome, result.reason) == (Outcome.REJECTED, Reason.INVALID_ARGUMENTS)
    assert result.effect is Effect.NONE
    assert "`key`" in (result.error or "")
    assert not received(tmp_path, "tools/call"), "law 19 any-payload: nothing ran"


def test_calls_of_one_server_run_beside_each_other(server: McpServer) -> None:
    with BlockingRuntime(server.tools_now(), config=config()) as runtime:
        results = runtime.execute([call("parallel", expected=3, patience_s=20.0) for _ in range(3)])
    assert [result.value for result in results] == [{"result": 3}] * 3


def test_calls_can_be_made_one_after_the_other(tmp_path: Path) -> None:
    with (
        sound(tmp_path, parallel=False) as server,
        BlockingRuntime(server.tools_now(), config=config()) as runtime,
    ):
        results = runtime.execute([call("parallel", expected=2, patience_s=0.3) for _ in range(2)])
    assert [result.value for result in results] == [{"result": 1}] * 2


def test_progress_is_progress_of_the_call(server: McpServer) -> None:
    heard: list[str] = []

    def observe(event: object) -> None:
        message = getattr(event, "message", None)
        if message and type(event).__name__ == "CallProgressed":
            heard.append(message)

    with BlockingRuntime(server.tools_now(), config=config(), observers=[observe]) as runtime:
        assert runtime.execute([call("slow", seconds=0.5)])[0].outcome is Outcome.SUCCEEDED
    assert heard, "some of its steps were heard"
    assert all(message.startswith("step ") for message in heard)


def test_a_server_sees_only_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-do-not-tell")
    with raw(tmp_path, env={"ITS_OWN": "x"}) as server:
        names = json.loads(one(server, "environment").value)
    assert "ITS_OWN" in names
    assert "PATH" in names
    assert "OPENAI_API_KEY" not in names


def test_a_changed_list_is_heard_of(tmp_path: Path) -> None:
    heard: list[McpServer] = []
    with sound(tmp_path, on_change=heard.append) as server:
        before = {tool.name: tool for tool in server.tools_now()}
        one(server, "grow")
        wait_for(lambda: heard, "the change was heard of")
        after = {tool.name: tool for tool in server.tools_now()}
        assert set(after) - set(before) == {"grown"}
        assert after["add"] is before["add"], "what did not change is the same tool"
        assert one(server, "grown").value == "grown"


def test_prefixes_and_originals(server: McpServer) -> None:
    assert "the_add" in [tool.name for tool in server.tools_now(prefix="the_")]
    assert server.originals(prefix="the_")["the_add"] == "add"

    async def tools() -> list[str]:
        return [tool.name for tool in await server.tools(prefix="x_")]

    assert "x_add" in asyncio.run(tools())


def test_what_a_server_says_of_itself_is_passed_on(tmp_path: Path) -> None:
    with raw(tmp_path) as server:
        assert server.instructions == "Be raw."


def test_a_blocked_loop_does_not_hold_up_the_server(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            raw(tmp_path) as server,
            Runtime(await server.tools(), config=config()) as runtime,
        ):
            results = await runtime.execute([call("echo", n=n) for n in range(20)])
            assert [result.value for result in results] == [f'{{"n": {n}}}' for n in range(20)]

    asyncio.run(scene())


def test_a_server_is_opened_once_and_used_while_it_is_open(tmp_path: Path) -> None:
    server = raw(tmp_path)
    with pytest.raises(CallerError, match="not open"):
        server.tools_now()
    with server:
        with pytest.raises(CallerError, match="open already"):
            server.__enter__()
        assert one(server, "echo").value == "{}"
        tools = server.tools_now()
    with BlockingRuntime(tools, config=config()) as runtime:
        assert "closed" in (runtime.execute([call("echo")])[0].error or "")
    with server:
        assert one(server, "echo").value == "{}", "it can be opened again"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: McpServer.stdio(""), "name of a program"),
        (lambda: McpServer.stdio("x", cwd="/no/such/dir"), "no directory"),
        (lambda: McpServer.stdio("x", approval="maybe"), "approval is"),
        (lambda: McpServer.stdio("x", env={"A": "b\0"}), "NUL"),
        (lambda: McpServer.stdio("x", env={"A": 5}), "texts"),
        (lambda: McpServer.http("http://x", headers={"a": "b\r\nc: d"}), "line breaks"),
        (lambda: McpServer.http("ftp://x"), "begins with http"),
        (lambda: McpServer.http("http://"), "begins with http"),
    ],
)
def test_mistakes_are_told(make: object, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        make()  # type: ignore[operator]
