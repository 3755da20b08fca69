"""Delegating from a plain test, the same way on both drivers, and agents that do as they are told.

What the prompt of a task says, a `Script` does: it fails in that step, answers with an error or
with a value that contains itself, or works until it is stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from endstop import AsyncAgent, DeferredAgent, HandleCancelled, close_turn, delegate, delegate_all
from endstop.agents import Agent, Failure, Patience, Task
from endstop.agents.ledger import ledger_of
from tests.driving import LIMIT_S, Guest, House, until

QUICK = Patience(submit_s=5, probe_s=5, fetch_s=5, cancel_s=5, every_s=0.002, most_every_s=0.02)


class Desk:
    """One run of a house, and the code of a caller that delegates in it."""

    def __init__(self, house: House, run_id: str = "r", **terms: Any) -> None:
        self.house = house
        self.guest: Guest = house.run(run_id, **terms)
        self.run: Any = self.guest.run

    def delegate(self, agent: Agent, prompt: str = "ok", **terms: Any) -> Any:
        """A handle, at once."""
        return self.house.on_its_thread(lambda: delegate(agent, prompt, run=self.run, **terms))

    def delegate_all(self, requests: Iterable[tuple[Agent, str]], **terms: Any) -> Any:
        """A group, at once."""
        wanted = list(requests)
        return self.house.on_its_thread(lambda: delegate_all(wanted, run=self.run, **terms))

    def take(self, waited: Any, limit_s: float = LIMIT_S) -> Any:
        """Await a handle or a group as its caller does: its value, or what it raises."""
        if self.house.kind == "blocking":
            return waited.result(limit_s)
        return self._there(lambda: waited)

    def answered(self, waited: Any) -> Any:
        """The answer of a handle or of a group, whatever it is."""
        if self.house.kind == "blocking":
            return waited.answered(LIMIT_S)
        return self._there(waited.answered)

    def close_turn(self) -> None:
        """The closing check."""
        if self.house.kind == "blocking":
            close_turn(self.run)
        else:
            self._there(lambda: close_turn(self.run))

    def _there(self, waited: Callable[[], Awaitable[Any]]) -> Any:
        async def wait() -> tuple[Any, HandleCancelled | None]:
            try:
                return await waited(), None
            except HandleCancelled as cancelled:
                # A future between threads would forget who it was.
                return None, cancelled

        value, cancelled = self.house.await_there(wait())
        if cancelled is not None:
            raise cancelled
        return value

    def check_closed(self) -> None:
        """The closing check passes, the books are empty, and the run can end."""
        self.close_turn()
        # A body that was abandoned may still be on its way out.
        until(lambda: ledger_of(self.house.rt).open() == [])
        until(lambda: self.house.rt.calls() == [])
        self.guest.close()
        until(lambda: self.run.id not in self.house.state.runs)


@dataclass
class Script:
    """Agents that do what the prompt says, and remember what was asked of them."""

    native: bool = True
    asked: list[str] = field(default_factory=list)
    stopping: bool = True
    begun: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)
    _status: dict[str, str] = field(default_factory=dict)

    def deferred(self, **terms: Any) -> DeferredAgent:
        """A deferred agent with this script."""
        submit = self._native(self._work) if self.native else self._work
        return DeferredAgent(name="deferred", submit=submit, **terms)

    def peer(self, **terms: Any) -> AsyncAgent:
        """An async agent with this script."""
        terms.setdefault("patience", QUICK)
        steps: dict[str, Any] = {
            "submit": self._take_in,
            "status": self._say,
            "fetch": self._hand_over,
            "cancel": self._stop,
        }
        if self.native:
            steps = {name: self._native(step) for name, step in steps.items()}
        return AsyncAgent(name="peer", **(steps | terms))

    def count(self, step: str) -> int:
        """How often a step was asked for."""
        return self.asked.count(step)

    def _native(self, function: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        async def step(given: Any) -> Any:
            if function == self._work and given.prompt == "works":
                self.asked.append("submit")
                self.begun.set()
                await given.ctx.sleep(60)
            return function(given)

        return step

    def _work(self, task: Task) -> Any:
        self.asked.append("submit")
        match task.prompt:
            case "submit":
                raise RuntimeError("the submit failed")
            case "works":
                self.begun.set()
                while not task.cancelled and not self.freed.is_set():
                    time.sleep(0.002)
                task.check()
            case _:
                pass
        return answer(task.prompt)

    def _take_in(self, task: Task) -> str:
        self.asked.append("submit")
        if task.prompt == "submit":
            raise RuntimeError("the submit failed")
        self._status[task.id] = "running"
        return f"{task.id} {task.prompt}"

    def _say(self, ref: str) -> Any:
        self.asked.append("status")
        call, _, prompt = ref.partition(" ")
        if prompt == "status":
            raise RuntimeError("the status failed")
        if prompt == "works":
            self.begun.set()
            if self.freed.is_set():
                self._status[call] = "succeeded"
            return self._status[call]
        # Not over at the first question: what is asked once only is not probed.
        before, self._status[call] = self._status[call], "succeeded"
        return before

    def _hand_over(self, ref: str) -> Any:
        self.asked.append("fetch")
        prompt = ref.partition(" ")[2]
        if prompt == "fetch":
            raise RuntimeError("the fetch failed")
        return answer(prompt)

    def _stop(self, ref: str) -> None:
        self.asked.append("cancel")
        if self.stopping:
            self._status[ref.partition(" ")[0]] = "cancelled"


def answer(prompt: str) -> Any:
    """The value that a task ends with."""
    match prompt:
        case "error":
            return Failure("the model refused")
        case "cycle":
            loop: list[Any] = []
            loop.append(loop)
            return {"handle": loop}
        case _:
            return f"did {prompt}"
