"""Planted bugs in the server: its door, its patience, its way down."""

from __future__ import annotations

from tests.mutants.runner import Mutant

HOSTILE = "tests/server/test_hostile.py"
LIFE = "tests/server/test_life.py"
BINDINGS = "tests/server/test_bindings.py"


def planted(name: str, law: str, file: str, old: str, new: str, test: str) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=(test,))


SERVING: tuple[Mutant, ...] = (
    planted(
        "a silent client keeps its connection",
        "18 audience-free",
        "server/connection.py",
        "        self._head = self.loop.call_later(self.limits.header_s, self._refuse, "
        "_TOO_SLOW)\n",
        "        self._head = None\n",
        f"{HOSTILE}::test_law_18_slow_heads_and_bodies_do_not_stay",
    ),
    planted(
        "a server goes down without a word to its readers",
        "16 survives-restart",
        "server/serve.py",
        "        self._guarded.go_down()\n",
        "",
        f"{LIFE}::test_law_16_a_signal_ends_streams_honestly_and_leaves_nothing_working",
    ),
    planted(
        "a second signal changes nothing",
        "6 bounded-stop",
        "server/serve.py",
        "        if self._asked == 2 and self._runtime is not None:\n",
        "        if self._asked == 0 and self._runtime is not None:\n",
        f"{LIFE}::test_law_6_bounded_stop_a_second_signal_does_not_wait",
    ),
    planted(
        "any token will do",
        "2 right-target",
        "server/auth.py",
        "            if hmac.compare_digest(digest, known):\n",
        "            if known:\n",
        BINDINGS,
    ),
)
