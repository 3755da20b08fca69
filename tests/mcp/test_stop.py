"""Stopping the calls of MCP servers: the notice is sent, and only proof counts as an end."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from endstop import AsyncContext, BlockingRuntime, Effect, Outcome, Reason, Runtime, StoppedBy
from tests.mcp.desk import (
    GRACE_S,
    McpServer,
    McpTerms,
    alive,
    call,
    config,
    family,
    marks,
    raw,
    received,
    sound,
    stopped,
    wait_for,
)


def begun(tmp_path: Path, tool: str) -> bool:
    return f"{tool} began" in marks(tmp_path)


def test_a_stop_sends_the_notice_with_the_id_of_the_request(tmp_path: Path) -> None:
    async def scene() -> None:
        async with raw(tmp_path) as server:
            await stopped(server, call("refuse"), lambda: begun(tmp_path, "refuse"))

    asyncio.run(scene())
    (asked,) = received(tmp_path, "tools/call")
    (notice,) = received(tmp_path, "notifications/cancelled")
    assert notice["params"]["requestId"] == asked["id"]
    assert notice["params"]["reason"], "the server may show why"


def test_a_server_that_confirms_is_stopped_by_asking(tmp_path: Path) -> None:
    async def scene() -> None:
        async with raw(tmp_path) as server:
            result, took = await stopped(server, call("refuse"), lambda: begun(tmp_path, "refuse"))
            assert (result.outcome, result.reason) == (Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
            assert (result.effect, result.stopped_by) == (Effect.UNKNOWN, StoppedBy.ASKED)
            assert took < GRACE_S + 0.1, "law 6 bounded-stop"

    asyncio.run(scene())


def test_a_server_that_finishes_all_the_same_has_succeeded(tmp_path: Path) -> None:
    async def scene() -> None:
        async with raw(tmp_path) as server:
            result, _ = await stopped(server, call("late"), lambda: begun(tmp_path, "late"))
            assert (result.outcome, result.effect) == (Outcome.SUCCEEDED, Effect.DONE), "law 5"
            assert result.value == "done all the same"

    asyncio.run(scene())


def test_a_silent_server_is_abandoned_and_its_effect_is_unknown(tmp_path: Path) -> None:
    async def scene() -> None:
        async with raw(tmp_path) as server:
            result, took = await stopped(server, call("silent"), lambda: begun(tmp_path, "silent"))
            assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.UNKNOWN), "law 5"
            assert result.stopped_by is StoppedBy.ABANDONED
            assert GRACE_S - 0.05 <= took <= GRACE_S + 1.0, "law 6 bounded-stop"
            # The server itself goes on, for the next call.
            async with Runtime(await server.tools(), config=config()) as runtime:
                assert (await runtime.execute([call("echo", a=1)]))[0].value == '{"a": 1}'

    asyncio.run(scene())
    assert len(received(tmp_path, "initialize")) == 1, "it was not started anew"


def test_an_unconfirmed_stop_can_kill_the_whole_server(tmp_path: Path) -> None:
    terms = McpTerms(unconfirmed="kill", confirm_s=0.1)

    async def scene() -> None:
        async with raw(tmp_path, terms=terms) as server:
            wanted = call("family", hang=True)
            result, took = await stopped(server, wanted, lambda: len(family(tmp_path)) == 3)
            assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.UNKNOWN)
            assert result.stopped_by is StoppedBy.ASKED, "its death is proved: nothing is abandoned"
            assert not any(alive(pid) for pid in family(tmp_path).values()), "law 11 whole-tree"
            assert took < GRACE_S
            # The next call has a new server.
            async with Runtime(await server.tools(), config=config()) as runtime:
                assert (await runtime.execute([call("echo", a=1)]))[0].value == '{"a": 1}'

    asyncio.run(scene())


def test_a_server_that_works_for_others_is_not_killed(tmp_path: Path) -> None:
    terms = McpTerms(unconfirmed="kill", confirm_s=0.05)

    async def scene() -> None:
        async with (
            raw(tmp_path, terms=terms) as server,
            Runtime(await server.tools(), config=config()) as runtime,
            runtime.run() as other,
            runtime.run() as run,
        ):
            going_on = asyncio.ensure_future(other.execute([call("slow_echo", seconds=1.5)]))
            running = asyncio.ensure_future(run.execute([call("silent")]))
            both = lambda: begun(tmp_path, "silent") and begun(tmp_path, "slow_echo")  # noqa: E731
            await asyncio.to_thread(wait_for, both, "both calls began")
            await run.cancel()
            assert (await running)[0].stopped_by is StoppedBy.ABANDONED
            assert (await going_on)[0].value == "echoed", "law 14 isolated-siblings"

    asyncio.run(scene())


def test_a_deadline_stops_like_a_cancel(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            raw(tmp_path) as server,
            Runtime(await server.tools(), config=config()) as runtime,
        ):
            (result,) = await runtime.execute([call("refuse")], timeout_s=0.3)
            assert (result.outcome, result.effect) == (Outcome.TIMED_OUT, Effect.UNKNOWN)

    asyncio.run(scene())
    assert len(received(tmp_path, "notifications/cancelled")) == 1


def test_a_call_that_waits_for_a_lost_server_sends_nothing_once_stopped(tmp_path: Path) -> None:
    terms = McpTerms(pause_s=30.0, most_pause_s=30.0)

    async def scene() -> None:
        async with (
            raw(tmp_path, terms=terms) as server,
            Runtime(await server.tools(), config=config()) as runtime,
        ):
            (crashed,) = await runtime.execute([call("crash")])
            assert crashed.outcome is Outcome.FAILED
            async with runtime.run() as run:
                running = asyncio.ensure_future(run.execute([call("echo")]))
                await asyncio.sleep(0.2)
                at = time.monotonic()
                await run.cancel()
                (result,) = await running
                assert time.monotonic() - at < GRACE_S, "law 7 every-wait-listens"
                assert result.stopped_by is StoppedBy.ASKED

    asyncio.run(scene())
    assert [one["params"]["name"] for one in received(tmp_path, "tools/call")] == ["crash"]


@pytest.mark.serial
def test_a_sound_server_stops_its_work(tmp_path: Path) -> None:
    async def scene() -> None:
        async with sound(tmp_path) as server:
            result, _ = await stopped(
                server, call("slow", seconds=30), lambda: "slow began" in marks(tmp_path)
            )
            assert (result.outcome, result.effect) == (Outcome.CANCELLED, Effect.UNKNOWN)
            await asyncio.to_thread(
                wait_for, lambda: "slow cancelled" in marks(tmp_path), "its work was cancelled"
            )

    asyncio.run(scene())
    assert "slow ended" not in marks(tmp_path)


def test_a_closed_server_ends_the_calls_that_still_run(tmp_path: Path) -> None:
    async def scene(server: McpServer) -> None:
        await server.__aenter__()
        async with Runtime(await server.tools(), config=config()) as runtime:
            running = asyncio.ensure_future(runtime.execute([call("silent")]))
            await asyncio.to_thread(wait_for, lambda: begun(tmp_path, "silent"), "it began")
            await server.__aexit__(None, None, None)
            (result,) = await running
            assert (result.outcome, result.effect) == (Outcome.FAILED, Effect.UNKNOWN)

    asyncio.run(scene(raw(tmp_path)))


def test_a_late_end_after_everything_is_closed_is_no_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with raw(tmp_path) as server:
        with BlockingRuntime(server.tools_now(), config=config()) as runtime:
            (result,) = runtime.execute([call("silent")], timeout_s=0.2)
        assert (result.outcome, result.stopped_by) == (Outcome.TIMED_OUT, StoppedBy.ABANDONED)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


def test_a_server_that_does_not_read_holds_up_nothing(tmp_path: Path) -> None:
    async def scene() -> float:
        async with raw(tmp_path, "stops_reading") as server:
            wait_for(lambda: "deaf now" in marks(tmp_path), "it reads no more")
            wanted = call("echo", much="x" * 400_000)
            result, took = await stopped(server, wanted, lambda: time.sleep(0.3) or True)
            assert (result.outcome, result.stopped_by) == (
                Outcome.CANCELLED,
                StoppedBy.ABANDONED,
            )
            assert took < GRACE_S + 1.0, "law 6 bounded-stop"
            at = time.monotonic()
        return time.monotonic() - at

    assert asyncio.run(scene()) < 8.0, "law 6 bounded-stop"


def test_stops_at_any_instant_leave_one_answer_each(tmp_path: Path) -> None:
    chance = random.Random(7)

    async def scene() -> None:
        async with (
            raw(tmp_path) as server,
            Runtime(await server.tools(), config=config()) as runtime,
        ):
            for _ in range(40):
                async with runtime.run() as run:
                    names = ["echo", "slow_echo", "late", "refuse"]
                    wanted = [call(name, seconds=0.01) for name in names]
                    running = asyncio.ensure_future(run.execute(wanted))
                    await asyncio.sleep(chance.random() * 0.03)
                    await run.cancel()
                    results = await running
                    assert [result.tool for result in results] == names, "law 4 one-answer"
                    ended = {result.outcome for result in results}
                    assert ended <= {Outcome.SUCCEEDED, Outcome.CANCELLED}
                    for result in results:
                        known = result.outcome is Outcome.SUCCEEDED
                        assert (result.effect is Effect.DONE) == known, "law 5 honest-effect"
            assert not list(runtime.calls()), "law 9 on-the-books: nothing is left"
            (after,) = await runtime.execute([call("echo", n=1)])
            assert after.value == '{"n": 1}'

    asyncio.run(scene())
    asked = {one["id"] for one in received(tmp_path, "tools/call")}
    notices = [one["params"]["requestId"] for one in received(tmp_path, "notifications/cancelled")]
    assert set(notices) <= asked, "law 2 right-target"
    assert len(notices) == len(set(notices)), "one notice for each"


def test_what_nobody_waits_for_is_dropped(tmp_path: Path) -> None:
    async def scene() -> None:
        async with raw(tmp_path, terms=McpTerms(linger_s=GRACE_S + 0.3)) as server:
            result, _ = await stopped(server, call("silent"), lambda: begun(tmp_path, "silent"))
            assert result.stopped_by is StoppedBy.ABANDONED
            link = server._linked()
            assert link.live is not None
            exchanges = link.live.exchanges
            await asyncio.to_thread(wait_for, lambda: not exchanges, "law 9 on-the-books")
            # The end of the loop is no stop of the ladder's, but it is passed on as well.
            body = server.tools_now()[0].fn(
                arguments={}, ctx=AsyncContext(call_id="c", effect_key="c", tell=lambda told: True)
            )
            running = asyncio.ensure_future(body)
            await asyncio.to_thread(wait_for, lambda: exchanges, "it runs")
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled()
            await asyncio.to_thread(wait_for, lambda: not exchanges, "law 9 on-the-books")

    asyncio.run(scene())
    assert len(received(tmp_path, "notifications/cancelled")) == 2
