"""The resource table: who holds what, who waits for what, in which order.

Pure: it knows neither calls nor time, only keys that want named things. It is used twice: once per
runtime for what is held, and once per batch for the order in which conflicting calls may queue.

Theory of operation
-------------------
Every resource is a node with a front and a line. The front are the keys that are clear of this
node: compatible with each other. The line are the others, first come first served: a key enters
the front only when it is compatible with the whole front and nobody stands before it. A key whose
nodes are all clear has everything it asked for: all or nothing, and nothing is taken one by one, so
two keys that want the same two things in opposite order cannot lock each other out (law 12).

Paths nest by the old trick of intentions: a key that wants `file:/a/b` leaves an intention at
`file:/` and `file:/a`. Intentions are compatible with each other and not with a claim on the node
itself, so `file:/a` excludes everything below it at the cost of the depth of the path.

A key enters a front once and leaves once, so the cost is linear in the keys and their nodes; a
waiter is a dictionary entry, never a thread.

A key may work for another one, its kin, which waits for it. Then first come first served is not
enough: who waits for the kin, be it for another resource, would wait for the key as well, and the
key for them. So the key goes before exactly those, also where they stand in a front already; they
have nothing yet, since nobody has anything before it has everything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from endstop.core.terms import Claim

Key = str
Want = tuple[str, int]

SHARED_BELOW, EXCLUSIVE_BELOW, SHARED, EXCLUSIVE = range(4)
"""The modes in which a node is wanted: two intentions, two claims on the node itself."""

_EXCLUDES: tuple[tuple[int, ...], ...] = (
    (EXCLUSIVE,),
    (SHARED, EXCLUSIVE),
    (EXCLUSIVE_BELOW, EXCLUSIVE),
    (SHARED_BELOW, EXCLUSIVE_BELOW, SHARED, EXCLUSIVE),
)


def path_of(resource: str) -> tuple[str, ...]:
    """The nodes above a resource and the resource itself, from the top: `k:/`, `k:/a`, `k:/a/b`."""
    kind, colon, name = resource.partition(":")
    if not colon or not name.startswith("/"):
        return (resource,)
    nodes = [f"{kind}:/"]
    for part in name.split("/"):
        if part:
            nodes.append(f"{nodes[-1].rstrip('/')}/{part}")
    return tuple(nodes)


@lru_cache(maxsize=4096)
def wants_of(claims: tuple[Claim, ...]) -> tuple[Want, ...]:
    """The nodes that a set of claims needs, each once, in its strongest mode."""
    strongest: dict[str, int] = {}
    for claim in claims:
        *above, node = path_of(claim.resource)
        own, below = (SHARED, SHARED_BELOW) if claim.shared else (EXCLUSIVE, EXCLUSIVE_BELOW)
        for name, mode in [*((name, below) for name in above), (node, own)]:
            before = strongest.get(name, mode)
            mixed = {before, mode} == {SHARED, EXCLUSIVE_BELOW}
            strongest[name] = EXCLUSIVE if mixed else max(before, mode)
    return tuple(strongest.items())


class _Node:
    """One resource: the keys that are clear of it, and the line behind them."""

    __slots__ = ("counts", "front", "line")

    def __init__(self) -> None:
        self.front: dict[Key, int] = {}
        self.counts = [0, 0, 0, 0]
        self.line: OrderedDict[Key, int] = OrderedDict()

    def admits(self, mode: int, kin: Collection[Key] = ()) -> bool:
        """Whether the front lets `mode` in, not counting what `kin` holds."""
        counts = self.counts
        if kin:
            counts = list(counts)
            for key in kin:
                if key in self.front:
                    counts[self.front[key]] -= 1
        return not any(counts[other] for other in _EXCLUDES[mode])

    def enter(self, key: Key, mode: int) -> None:
        assert key not in self.front, "a key is in a front at most once"
        self.front[key] = mode
        self.counts[mode] += 1

    def leave(self, key: Key) -> None:
        mode = self.front.pop(key, None)
        if mode is None:
            del self.line[key]
        else:
            self.counts[mode] -= 1


class _Entry:
    """What one key wants, and in how many nodes it still stands in line."""

    __slots__ = ("blocked", "kin", "number", "wants")

    def __init__(self, number: int, wants: tuple[Want, ...], kin: Collection[Key]) -> None:
        self.number = number
        self.wants = wants
        self.kin = kin
        self.blocked = 0


class ResourceTable:
    """Grants sets of named resources to keys, all or nothing, first come first served."""

    __slots__ = ("_added", "_entries", "_nodes")

    def __init__(self) -> None:
        self._added = 0
        self._nodes: dict[str, _Node] = {}
        self._entries: dict[Key, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, key: Key, wants: tuple[Want, ...], kin: Collection[Key] = ()) -> bool:
        """Put `key` in line for `wants`; true if it is clear of all of them at once.

        `kin` are keys that wait for it: what they hold does not exclude it, and it goes before
        every key that waits for one of them, since such a key cannot get on before it (law 12).
        """
        assert key not in self._entries, f"{key} is in the table already"
        self._added += 1
        entry = self._entries[key] = _Entry(self._added, wants, kin)
        waiting: set[Key] | None = None
        for name, mode in wants:
            node = self._nodes.get(name)
            if node is None:
                node = self._nodes[name] = _Node()
            if not node.line and node.admits(mode, kin):
                node.enter(key, mode)
                continue
            behind: list[Key] = []
            if kin:
                if waiting is None:
                    waiting = self._waiting_for(kin)
                behind = self._step_back(node, mode, waiting)
            if len(behind) == len(node.line) and node.admits(mode, kin):
                node.enter(key, mode)
            else:
                node.line[key] = mode
                entry.blocked += 1
            for other in behind:
                node.line.move_to_end(other)
        return entry.blocked == 0

    def _waiting_for(self, kin: Collection[Key]) -> set[Key]:
        """The keys that cannot become clear before one of `kin` is gone, over any detour."""
        seen = set(kin)
        todo = [key for key in kin if key in self._entries]
        while todo:
            key = todo.pop()
            for name, mode in self._entries[key].wants:
                node = self._nodes[name]
                stuck, ahead = False, key in node.front
                for other, wanted in node.line.items():
                    excluded = ahead and wanted in _EXCLUDES[mode]
                    stuck = stuck or (excluded and key not in self._entries[other].kin)
                    if stuck:
                        # Who waits, waits with everybody who waits for it.
                        late = {other, *self._entries[other].kin} - seen
                        seen |= late
                        todo += [key for key in late if key in self._entries]
                    stuck = stuck or other == key
        waiting = seen.difference(kin)
        return {key for key in waiting if key in self._entries and self._entries[key].blocked}

    def _step_back(self, node: _Node, mode: int, waiting: set[Key]) -> list[Key]:
        """Take out of the front who only waits and is in the way; returns who stands behind."""
        back = [k for k, m in node.front.items() if k in waiting and m in _EXCLUDES[mode]]
        behind = [k for k in node.line if k in waiting]
        for key in back:
            assert self._entries[key].blocked > 0, "who has everything never steps back"
            node.line[key] = node.front[key]
            node.counts[node.front.pop(key)] -= 1
            self._entries[key].blocked += 1
        return [*back, *behind]

    def remove(self, key: Key) -> list[Key]:
        """Take `key` out, wherever it stands; returns the keys that became clear by it, in order.

        Removing a waiter is the same move as releasing a holder, so a cancel and a release in one
        tick cannot strand who stands behind (law 12 no-leaked-lock).
        """
        entry = self._entries.pop(key, None)
        if entry is None:
            return []
        cleared: list[Key] = []
        for name, _ in entry.wants:
            node = self._nodes[name]
            node.leave(key)
            self._advance(node, cleared)
            if not node.front and not node.line:
                del self._nodes[name]
        if len(cleared) > 1:
            cleared.sort(key=lambda other: self._entries[other].number)
        return cleared

    def _advance(self, node: _Node, cleared: list[Key]) -> None:
        while node.line:
            key, mode = next(iter(node.line.items()))
            entry = self._entries[key]
            if not node.admits(mode, entry.kin):
                return
            del node.line[key]
            node.enter(key, mode)
            entry.blocked -= 1
            assert entry.blocked >= 0, "a key is cleared once per node"
            if entry.blocked == 0:
                cleared.append(key)

    def is_clear(self, key: Key) -> bool:
        """Whether `key` is in the table and waits for nothing in it."""
        entry = self._entries.get(key)
        return entry is not None and entry.blocked == 0

    def blocked_on(self, key: Key) -> Iterator[tuple[str, tuple[Key, ...]]]:
        """The nodes that `key` still waits for, each with the keys that are clear of it now."""
        entry = self._entries.get(key)
        for name, _ in entry.wants if entry else ():
            node = self._nodes[name]
            if key in node.line:
                yield name, tuple(node.front)

    def replace(self, key: Key, wants: tuple[Want, ...], order: Iterable[Key]) -> list[Key]:
        """Give `key` other wants without losing its place in `order`; returns who became clear.

        Only needed where arguments are rewritten while a call waits its turn; costs a pass over the
        keys in `order`, which must name every key of the table.
        """
        was_clear = {other for other in self._entries if self.is_clear(other)}
        wanted = {other: entry.wants for other, entry in self._entries.items()} | {key: wants}
        kept = [other for other in order if other in self._entries]
        assert len(kept) == len(self._entries), "the order names every key"
        self._nodes.clear()
        self._entries.clear()
        clear = [other for other in kept if self.add(other, wanted[other])]
        return [other for other in clear if other not in was_clear or other == key]
