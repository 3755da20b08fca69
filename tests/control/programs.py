"""Programs that drive runs in the tests of this folder, and looking into their journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from endstop.store.protocol import Recorded
from endstop.store.sqlite import SqliteJournal
from tests.cli.program import PATIENCE_S, TOOLS, endstop, reply, start

Calls = tuple[str, dict[str, Any]]


class Driver:
    """`endstop exec` as a program of its own, on a journal."""

    def __init__(self, folder: Path, *calls: Calls, grace_s: float = 0.5) -> None:
        self.journal = folder / "runs.db"
        self.process = start(
            "exec",
            reply(folder / "reply.json", *calls),
            "--tools",
            TOOLS,
            "--tools",
            Path(__file__).with_name("asking_tools.py"),
            "--journal",
            self.journal,
            "--approval-timeout",
            600,
            "--json",
            ENDSTOP_GRACE_S=str(grace_s),
        )
        self.run = ""

    def begin(self) -> Driver:
        """Wait until its run can be read in the journal."""
        self.run = self._run()
        return self

    def _run(self) -> str:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.journal.is_file():
                done = endstop("runs", "--journal", self.journal, "--json")
                if done.returncode == 0 and (found := json.loads(done.stdout)["runs"]):
                    return str(found[-1]["run"])
            assert self.process.poll() is None, self.process.communicate()
        raise AssertionError("no run was opened")

    def until(self, event: type[Any], call: str = "") -> Recorded:
        """Wait until an event of a call, or of the run, can be read in the journal."""
        name = f"{self.run}/{call}" if call else self.run
        end = time.monotonic() + PATIENCE_S
        while True:
            for one in self.events():
                found = getattr(one.event, "call", one.event.run)
                if isinstance(one.event, event) and found == name:
                    return one
            assert time.monotonic() < end, f"{event.__name__} of {name} never came"
            time.sleep(0.01)

    def events(self) -> list[Recorded]:
        """What the journal says of the run."""
        journal = SqliteJournal(self.journal, readonly=True)
        try:
            return list(journal.read(self.run))
        finally:
            journal.close()

    def ask(self, *arguments: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run another `endstop` on the same journal."""
        return endstop(*arguments, "--journal", self.journal, stdin=stdin)

    def kill(self) -> None:
        """End the program as a crash would."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def freeze(self) -> None:
        """Let the program do nothing, and not end."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def over(self) -> tuple[int, Any, str]:
        """Its exit code, the document that it printed, and what it said."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, json.loads(out) if out else None, err


@contextmanager
def driving(folder: Path, *calls: Calls, grace_s: float = 0.5) -> Iterator[Driver]:
    """A program that drives these calls, gone when this is left."""
    driver = Driver(folder, *calls, grace_s=grace_s)
    try:
        yield driver.begin()
    finally:
        process = driver.process
        if process.poll() is None:
            driver.thaw()
            process.kill()
            process.wait(PATIENCE_S)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
