"""The threads of a coroutine body on a worker loop belong to its call, and are never joined."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from typing import Any

import pytest

from endstop import Context, current, tool
from endstop.core import events as e
from endstop.work import bodythreads
from tests.driving import OK, House, Street, call, endings, quick, until

shade: contextvars.ContextVar[str] = contextvars.ContextVar("shade", default="none")


def apart(street: Street, tools: Any, **options: Any) -> House:
    """An async runtime whose bodies run on worker loops."""
    return street.open("async", tools, bodies="own-loop", **options)


def test_law_6_bounded_stop_a_thread_that_outlasts_its_grace_is_abandoned(street: Street) -> None:
    door, begun = street.door(), threading.Event()

    def blocking() -> None:
        begun.set()
        door.wait()

    @tool(resources=["x:1"])
    async def task() -> str:
        await asyncio.to_thread(blocking)
        return "completed"

    house = apart(street, [task], config=quick(grace_s=0.1))
    run = house.run()
    going = run.begin([call("task")])
    assert begun.wait(20)
    run.cancel()
    (result,) = going.result()
    assert (str(result.outcome), str(result.effect)) == ("cancelled", "unknown")
    assert str(result.stopped_by) == "abandoned"
    # Law 9 on-the-books: it is listed, and where it is, until it really ends.
    (view,) = house.rt.calls()
    assert view.abandoned
    assert "thread" in view.where
    assert any("in blocking" in line for line in view.stack)
    assert not house.watch.told(e.LateEnd)
    door.open()
    house.watch.wait(e.LateEnd)
    until(lambda: not house.rt.calls())


def test_a_thread_that_ends_within_grace_is_stopped(street: Street) -> None:
    begun, over = threading.Event(), threading.Event()

    def blocking(ctx: Context) -> None:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        threading.Event().wait(0.1)
        over.set()

    @tool(resources=[])
    async def task() -> str:
        await asyncio.to_thread(blocking, current())
        return "completed"

    house = apart(street, [task], config=quick(grace_s=20))
    run = house.run()
    going = run.begin([call("task")])
    assert begun.wait(20)
    run.cancel()
    (result,) = going.result()
    assert over.is_set(), "the call was over before its thread was"
    assert (str(result.outcome), str(result.stopped_by)) == ("cancelled", "asked")
    assert house.rt.calls() == []


def test_threads_give_results_errors_and_the_context(street: Street) -> None:
    names: set[str] = set()

    def raising() -> None:
        raise KeyError("gone")

    def working(number: int) -> str:
        names.add(threading.current_thread().name)
        return f"{number} {shade.get()}"

    @tool(resources=[])
    async def task() -> str:
        shade.set("blue")
        with pytest.raises(KeyError):
            await asyncio.to_thread(raising)
        found = [await asyncio.to_thread(working, number) for number in range(3)]
        found += await asyncio.gather(*(asyncio.to_thread(working, n) for n in (3, 4)))
        return ", ".join(found)

    house = apart(street, [task])
    (result,) = house.execute(call("task"))
    assert result.value == "0 blue, 1 blue, 2 blue, 3 blue, 4 blue"
    assert names == {"endstop-body-thread"}


def test_what_waits_for_a_thread_never_runs_after_a_cancel(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodythreads, "MOST", 1)
    door, begun, ran = street.door(), threading.Event(), threading.Event()

    @tool(resources=[])
    async def holds() -> None:
        await asyncio.to_thread(lambda: (begun.set(), door.wait()))

    @tool(resources=[])
    async def waits() -> None:
        await asyncio.to_thread(ran.set)

    house = apart(street, [holds, waits], config=quick(grace_s=20))
    first, second = house.run("first"), house.run("second")
    holding = first.begin([call("holds")])
    assert begun.wait(20)
    waiting = second.begin([call("waits")])
    house.watch.wait(e.CallStarted, "second/0.0")
    until(lambda: house.rt.calls()[-1].where)
    second.cancel()
    assert str(waiting.result()[0].stopped_by) == "asked"
    door.open()
    assert endings(holding.result()) == [OK]
    assert not ran.is_set()


PROGRAM = """
import asyncio, threading
from endstop import Config, Runtime, ToolCall, tool
begun = threading.Event()
@tool(resources=[])
async def task() -> None:
    await asyncio.to_thread(lambda: (begun.set(), threading.Event().wait(60)))
async def main() -> None:
    config = Config.load(directory="/", environ={}, grace_s=0.1)
    async with Runtime([task], bodies="own-loop", config=config) as rt:
        run = rt.run()
        call = ToolCall(model_id="1", tool="task", arguments={})
        going = asyncio.ensure_future(run.execute([call]))
        await asyncio.to_thread(begun.wait)
        await run.cancel()
        print((await going)[0].stopped_by, flush=True)
asyncio.run(main())
"""


def test_law_6_bounded_stop_no_thread_holds_up_the_end_of_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "abandoned\n"), done.stderr
