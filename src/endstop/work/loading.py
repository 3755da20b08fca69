"""Whether this process is loading a tool file, to run one of its tools for another process.

A file that starts its runtime at the top level would start it again in every worker process that
loads it, and run its calls again there: bodies would run twice, without end. So a runtime refuses
to be made meanwhile (law 1 one-door), and the call is told why its tool could not be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from endstop.errors import CallerError

_loading: list[str] = []


@contextmanager
def loading(where: str) -> Iterator[None]:
    """What is made inside is made by the tool file `where` while it is loaded."""
    _loading.append(where)
    try:
        yield
    finally:
        _loading.pop()


def refuse_while_loading() -> None:
    """Raise CallerError if a worker process is loading a tool file here."""
    if _loading:
        raise CallerError(
            f"{_loading[-1]} starts a runtime when it is loaded, and a worker process loads it to"
            ' find a tool: put what the program does under `if __name__ == "__main__":`'
        )
