"""A process that has imported everything and forks one child per scene, in milliseconds.

It says `PID` for each scene, the child says `reached` when it is in its phase. Nothing but forking
happens here, so that no thread is ever forked along.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import endstop.work.process  # noqa: F401 - imported once, for all children
from tests.kill.scene import Scene, play


def main() -> None:
    """Fork a child for every scene that comes in, until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        told = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _child(Scene(**told))
        print(json.dumps({"pid": pid}), flush=True)


def _child(scene: Scene) -> None:
    said = False

    def reached() -> None:
        nonlocal said
        if not said:
            said = True
            os.write(1, b'{"reached": true}\n')

    try:
        play(scene, reached)
        os.write(1, b'{"reached": false}\n')
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
