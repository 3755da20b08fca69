"""The garbage collector of a process that does nothing but serve.

Python looks through its youngest objects every 700 allocations, which a server makes several times
for each message, and finds nothing there: what a request leaves is freed by counting. For a program
of the user's own this would not be ours to change.
"""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 10_000, 20, 20


def collect_less() -> None:
    """Leave what was loaded out of every later collection, and collect a tenth as often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
