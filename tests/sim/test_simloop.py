"""The simulated loop itself: time, order, bounds, and what it says when nobody can go on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from endstop.testing.simloop import Deadlock, Runaway, SimLoop, SimulationError
from endstop.testing.simthreads import SimThreads, hang


def order(seed: int, *, shuffle: bool) -> list[int]:
    """The order in which ten tasks, ready at once, run."""
    ran: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(10)))

    SimLoop(seed, shuffle=shuffle).run(all_of_them())
    return ran


def test_time_jumps_and_is_exact() -> None:
    async def story() -> list[float]:
        loop = asyncio.get_running_loop()
        seen = [loop.time()]
        await asyncio.sleep(3600)
        seen.append(loop.time())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.25)
        seen.append(loop.time())
        return seen

    began = time.monotonic()
    assert SimLoop().run(story()) == [0.0, 3600.0, 3600.25]
    assert time.monotonic() - began < 5


def test_first_in_first_out_unless_shuffled() -> None:
    assert order(1, shuffle=False) == list(range(10))
    shuffled = [order(seed, shuffle=True) for seed in range(5)]
    assert sorted(shuffled[0]) == list(range(10))
    assert len({tuple(one) for one in shuffled}) > 1
    assert shuffled[3] == order(3, shuffle=True)


def test_timers_of_one_instant_keep_their_order() -> None:
    ran: list[int] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        for number in range(8):
            loop.call_at(1.0, ran.append, number)
        loop.call_at(1.0, ran.append, 99).cancel()
        await asyncio.sleep(2)

    SimLoop().run(story())
    assert ran == list(range(8))


def test_a_deadlock_names_who_waits() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        await asyncio.create_task(waits_for_ever(), name="patience")

    with pytest.raises(Deadlock, match=r"(?s)patience at .*waits_for_ever"):
        SimLoop().run(story())


def test_endless_spinning_and_endless_time_are_bounded() -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    async def sleeps() -> None:
        while True:
            await asyncio.sleep(10)

    with pytest.raises(Runaway, match="more than 500 steps"):
        SimLoop(steps_max=500).run(spins())
    with pytest.raises(Runaway, match="more than 100 s of virtual time"):
        SimLoop(time_max_s=100).run(sleeps())


def test_real_threads_are_refused_and_code_outside_is_waited_for() -> None:
    async def leaves() -> None:
        await asyncio.to_thread(time.sleep, 0)

    with pytest.raises(SimulationError, match="leave the virtual clock"):
        SimLoop().run(leaves())

    loop = SimLoop()

    async def asks_outside() -> float:
        answered = asyncio.Event()
        back = loop.outside()

        def outside() -> None:
            loop.call_soon_threadsafe(answered.set)
            back()

        threading.Thread(target=outside).start()
        asyncio.get_running_loop().call_later(100, lambda: None)
        await answered.wait()
        return loop.time()

    assert loop.run(asks_outside()) == 0.0, "time stood still"


def test_simulated_threads_take_turns_on_the_virtual_clock() -> None:
    loop = SimLoop()
    threads = SimThreads(loop)
    told: list[tuple[float, str]] = []

    def sleeper(name: str, seconds: float) -> None:
        for _ in range(2):
            hang(seconds)
            told.append((loop.time(), name))

    async def story() -> None:
        threads.start(lambda: sleeper("slow", 5.0), "slow")
        threads.start(lambda: sleeper("fast", 2.0), "fast")
        await asyncio.sleep(20)

    loop.run(story())
    assert told == [(2.0, "fast"), (4.0, "fast"), (5.0, "slow"), (10.0, "slow")]
    assert threads.listing() == []


def test_a_thread_that_nobody_wakes_is_listed_and_unwound() -> None:
    loop = SimLoop()
    threads = SimThreads(loop)
    unwound: list[bool] = []

    def waits() -> None:
        try:
            hang(1e9)
        finally:
            unwound.append(True)

    async def story() -> None:
        threads.start(waits, "patient")
        await asyncio.sleep(1)

    loop.run_until_complete(loop.create_task(story()))
    assert threads.listing() == ["thread patient"]
    threads.end()
    loop.let_go()
    assert unwound == [True]


def test_hang_outside_of_a_simulation_says_what_it_needs() -> None:
    with pytest.raises(RuntimeError, match="inside a plain tool"):
        hang(1.0)
