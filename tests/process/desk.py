"""A small stand-in for the core: it grants claims and commits, and remembers what it was told."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

from endstop.core.inputs import (
    BodyEnded,
    Claimed,
    CommitEntered,
    Input,
    Progressed,
    StartFailed,
)
from endstop.core.terms import Contract, Isolation
from endstop.tools.tool import Tool, tool_from_schema
from endstop.work.process import ProcessWorker
from endstop.work.protocol import Job

WAIT_S = 30.0


class Desk:
    """What a worker tells, in order; refuses the claims and commits that it was told to refuse."""

    def __init__(self) -> None:
        self.told: list[Input] = []
        self.refused: set[str] = set()
        self.no_commit: set[str] = set()
        self.changed = threading.Condition()

    def tell(self, told: Input) -> bool:
        with self.changed:
            self.told.append(told)
            self.changed.notify_all()
            match told:
                case Claimed(call=call):
                    return call not in self.refused
                case CommitEntered(call=call):
                    return call not in self.no_commit
                case _:
                    return True

    def wait(self, check: Callable[[Input], bool], within_s: float = WAIT_S) -> Input:
        """The first input told, now or later, for which `check` is true."""
        deadline = time.monotonic() + within_s
        with self.changed:
            seen = 0
            while True:
                for told in self.told[seen:]:
                    if check(told):
                        return told
                seen = len(self.told)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"not told within {within_s} s; told: {self.told[-5:]}")
                self.changed.wait(left)

    def of(self, call: str, kind: type[Any] = object) -> list[Any]:
        with self.changed:
            return [
                t for t in self.told if getattr(t, "call", None) == call and isinstance(t, kind)
            ]

    def end(self, call: str, within_s: float = WAIT_S) -> BodyEnded:
        told = self.wait(
            lambda t: isinstance(t, BodyEnded | StartFailed) and t.call == call, within_s
        )
        assert isinstance(told, BodyEnded), told
        return told

    def no_end_for(self, call: str, seconds: float) -> None:
        """Nothing ends this call within so many seconds."""
        with self.changed:
            over = self.changed.wait_for(
                lambda: any(isinstance(t, BodyEnded) and t.call == call for t in self.told), seconds
            )
        assert not over, self.told[-3:]

    def failure(self, call: str, within_s: float = WAIT_S) -> StartFailed:
        told = self.wait(
            lambda t: isinstance(t, BodyEnded | StartFailed) and t.call == call, within_s
        )
        assert isinstance(told, StartFailed), told
        return told

    def progress(self, call: str, text: str = "", within_s: float = WAIT_S) -> Progressed:
        told = self.wait(
            lambda t: isinstance(t, Progressed) and t.call == call and text in t.message, within_s
        )
        assert isinstance(told, Progressed)
        return told

    def claimed(self, call: str, within_s: float = WAIT_S) -> None:
        self.wait(lambda t: isinstance(t, Claimed) and t.call == call, within_s)


def _elsewhere() -> None:
    raise AssertionError("a tool of another process was called here")


def tool_at(name: str, address: str) -> Tool:
    """A tool that this process knows by its address only."""
    made = tool_from_schema(name, {"type": "object", "properties": {}}, _elsewhere)
    object.__setattr__(made, "address", address)
    return made


class Bench:
    """A worker and its desk, with short ways to run calls on them."""

    def __init__(self, **options: Any) -> None:
        self.desk = Desk()
        self.worker = ProcessWorker(self.desk.tell, **options)
        self._count = 0

    def start(
        self,
        tool: Tool,
        *,
        grace_s: float = 5.0,
        kill_s: float = 2.0,
        start_s: float | None = 30.0,
        context: contextvars.Context | None = None,
        call: str | None = None,
        refuse: bool = False,
        **arguments: Any,
    ) -> str:
        self._count += 1
        call = call or f"c{self._count}"
        if refuse:
            self.desk.refused.add(call)
        self.worker.start(
            Job(
                call=call,
                run="r1",
                tool=tool,
                arguments=arguments,
                kwargs=arguments,
                contract=Contract(
                    isolation=Isolation.PROCESS,
                    grace_s=grace_s,
                    kill_s=kill_s,
                    start_s=start_s,
                    deadline_s=None,
                ),
                context=context or contextvars.copy_context(),
                effect_key=f"key-{call}",
            )
        )
        return call

    def run(self, tool: Tool, **arguments: Any) -> BodyEnded:
        return self.desk.end(self.start(tool, **arguments))

    def close(self) -> bool:
        self.worker.close()
        return self.worker.join(WAIT_S)
