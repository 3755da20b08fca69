"""An agent of endstop's own: a model with tools, whose bodies are those that are hard to stop.

The user's text is the name of the tool and the file that its body ticks into.
"""

from __future__ import annotations

import time
from typing import Any

from endstop import ModelAgent, tool
from endstop.agents.models import Ask, Say, Scripted
from endstop.work.shell import shell
from tests.wire.ticks import note

# A child that ignores SIGTERM, and a daemon in a session of its own: both tick for a minute.
TREE = """
(trap '' TERM; for n in $(seq 600); do echo "$(date +%s.%N) tick" >> FILE; sleep 0.1; done) &
setsid sh -c 'for n in $(seq 600); do echo "$(date +%s.%N) tick" >> FILE; sleep 0.1; done' &
echo "$(date +%s.%N) begin" >> FILE
wait
"""


@tool(resources=[])
def deaf(file: str) -> None:
    """Work in a thread for a minute, and hear nothing."""
    note(file, "begin")
    for _ in range(600):
        note(file, "tick")
        time.sleep(0.1)


@tool(resources=[], isolation="process")
def apart(file: str) -> None:
    """Work in a process for a minute, and hear nothing."""
    note(file, "begin")
    while True:
        note(file, "tick")
        try:
            time.sleep(0.1)
        except BaseException:
            note(file, "swallowed")


def talk(ask: Ask) -> Any:
    """Calls the tool that the user named."""
    if ask.messages[-1]["role"] != "user":
        return Say(text="That was all.")
    name, _, file = ask.messages[0]["content"].partition(" ")
    if name == "shell":
        return Say(calls=[("shell", {"command": TREE.replace("FILE", file)})])
    return Say(calls=[(name, {"file": file})])


agent = ModelAgent(
    name="native",
    description="Works until it is stopped.",
    model=Scripted(talk),
    tools=[deaf, apart, shell],
)
