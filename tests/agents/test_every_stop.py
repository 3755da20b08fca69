"""Agents in the simulator: stopped after every event and before many a step, on a virtual clock.

The real engine, the real workers and the real conversation with a peer; only the clock and the
order of what is ready are drawn. After every stop the laws are checked by the simulator, and here
what became of the peer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from endstop import AsyncAgent, DeferredAgent, LocalAgent, ToolCall, agent_tool, delegate_all
from endstop.agents import Agent, Patience, Task
from endstop.testing import Interrupt, simulate, simulate_stops
from endstop.testing.simulator import Driver

DRIVERS: list[Driver] = ["async", "blocking"]
GRACE_S = 2.0


class Peer:
    """A service with tasks of one second, that takes half a second to stop one."""

    def __init__(self) -> None:
        self.tasks: dict[str, str] = {}
        self.cancels: list[str] = []
        self._timers: set[asyncio.TimerHandle] = set()

    def agent(self) -> AsyncAgent:
        """The agent that talks to it."""
        return AsyncAgent(
            name="peer",
            submit=self.submit,
            status=self.status,
            fetch=self.fetch,
            cancel=self.cancel,
            patience=Patience(every_s=0.1, most_every_s=0.2),
            contract={"grace": GRACE_S},
        )

    async def submit(self, task: Task) -> str:
        """Takes its time, also to answer what has arrived."""
        await asyncio.sleep(0.1)
        self.tasks[task.id] = "running"
        self._later(1.0, task.id, "succeeded")
        await asyncio.sleep(0.1)
        return task.id

    def _later(self, delay_s: float, ref: str, status: str) -> None:
        def become() -> None:
            if self.tasks[ref] == "running":
                self.tasks[ref] = status

        self._timers.add(asyncio.get_running_loop().call_later(delay_s, become))

    async def status(self, ref: str) -> str:
        await asyncio.sleep(0.05)
        return self.tasks[ref]

    async def fetch(self, ref: str) -> str:
        await asyncio.sleep(0.05)
        return f"did {ref}"

    async def cancel(self, ref: str) -> None:
        self.cancels.append(ref)
        self._later(0.5, ref, "cancelled")


def ask(*tools: str) -> list[ToolCall]:
    return [ToolCall(model_id=t, tool=t, arguments={"prompt": "go"}) for t in tools]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_peer_is_never_left_running(driver: Driver) -> None:
    """Wherever the stop comes, nothing runs at the peer when its call is answered."""
    peer = Peer()
    endings = set()
    for simulated in simulate_stops(
        [agent_tool(peer.agent())], ask("peer", "peer"), driver=driver, seeds=range(3)
    ):
        for answer in simulated.answers:
            at_peer = peer.tasks.get(answer.call_id)
            endings.add((str(answer.outcome), str(answer.effect), at_peer))
            assert not answer.alive, "the peer stops within the grace"
            if answer.ok:
                assert at_peer == "succeeded"
                assert answer.value == f"did {answer.call_id}"
            else:
                assert at_peer in (None, "cancelled"), "it was left running"
        peer.tasks.clear()
        peer.cancels.clear()
    assert {("succeeded", "done", "succeeded"), ("cancelled", "unknown", "cancelled")} <= endings
    assert ("cancelled", "none", None) in endings, "stopped before it began: nothing was sent"


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_peer_is_never_left_running_by_a_stop_before_a_step(driver: Driver) -> None:
    """Steps of the loop are finer than events: the middle of every wait is among them."""
    endings = set()
    for step in range(1, 200):
        peer = Peer()
        stop = Interrupt(target="run", at_step=step)
        simulated = simulate([agent_tool(peer.agent())], ask("peer"), stop=stop, driver=driver)
        [answer] = simulated.answers
        at_peer = peer.tasks.get(answer.call_id)
        endings.add((str(answer.outcome), str(answer.effect), at_peer))
        assert at_peer == "succeeded" if answer.ok else at_peer in (None, "cancelled")
        # Before the first steps there is no run yet.
        if step > 10 and not simulated.cancels:
            break
    else:
        raise AssertionError("it takes more steps than this test stops before")
    assert len(endings) == 3, endings


def tree(peer: Peer) -> Agent:
    """A local agent above a local agent above a peer and a deferred agent."""

    async def write(task: Task) -> str:
        await asyncio.sleep(0.3)
        return "a text"

    leaf = DeferredAgent(name="leaf", submit=write, contract={"grace": GRACE_S})

    async def middle(task: Task, run: Any) -> Any:
        return await delegate_all([(peer.agent(), "go"), (leaf, "go")])

    inner = LocalAgent(name="inner", fn=middle, contract={"grace": GRACE_S})

    async def top(task: Task, run: Any) -> Any:
        return await delegate_all([(inner, "go"), (leaf, "go")], run=run)

    return LocalAgent(name="top", fn=top, contract={"grace": GRACE_S})


def test_a_tree_is_over_when_its_root_is_wherever_it_is_stopped() -> None:
    """Law 17: one grace for all of it, and nothing below goes on afterwards."""
    peer = Peer()
    stops = 0
    for simulated in simulate_stops([agent_tool(tree(peer))], ask("top"), seeds=range(2)):
        stops += 1
        [answer] = simulated.answers
        assert not answer.alive
        assert "running" not in peer.tasks.values(), "a grandchild was left running"
        if answer.ok:
            child = next(iter(peer.tasks))
            assert answer.value == [[f"did {child}", "a text"], "a text"]
        peer.tasks.clear()
    assert stops > 40
