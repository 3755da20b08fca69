"""The resource table against a model that knows nothing of nodes, fronts and lines (law 12)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.core import resources
from endstop.core.resources import ResourceTable, path_of, wants_of
from endstop.core.terms import Claim
from endstop.testing.laws import conflict


@dataclass
class Model:
    """Everybody who asked, in order; who may go is found by comparing claims one by one."""

    claims: dict[str, tuple[Claim, ...]] = field(default_factory=dict)

    def clear(self, key: str) -> bool:
        for other, claims in self.claims.items():
            if other == key:
                return True
            if any(conflict(a, b) for a in claims for b in self.claims[key]):
                return False
        raise KeyError(key)

    def all_clear(self) -> set[str]:
        return {key for key in self.claims if self.clear(key)}


FLAT = st.builds(Claim, resource=st.sampled_from(["a", "b", "c"]), shared=st.booleans())
NESTED = st.builds(
    Claim,
    resource=st.sampled_from(
        ["file:/", "file:/a", "file:/a/b", "file:/a/b/c", "file:/ab", "file:/d", "net:/a", "k"]
    ),
    shared=st.booleans(),
)


def moves(claim: st.SearchStrategy[Claim]) -> st.SearchStrategy[list[tuple[int, list[Claim]]]]:
    """Adds (a set of claims) and removes (which of those that are in)."""
    return st.lists(st.tuples(st.integers(0, 8), st.lists(claim, max_size=3)), max_size=30)


def play(steps: list[tuple[int, list[Claim]]], *, exact: bool) -> None:
    table, model = ResourceTable(), Model()
    for number, (which, claims) in enumerate(steps):
        before = {key for key in model.claims if table.is_clear(key)}
        if which < 4 or not model.claims:
            key = f"k{number}"
            model.claims[key] = tuple(claims)
            assert table.add(key, wants_of(tuple(claims))) == table.is_clear(key)
            told = {key} if table.is_clear(key) else set()
        else:
            key = list(model.claims)[which % len(model.claims)]
            del model.claims[key]
            cleared = table.remove(key)
            assert len(cleared) == len(set(cleared)), "told twice"
            told = set(cleared)
            places = list(model.claims)
            assert [places.index(k) for k in cleared] == sorted(places.index(k) for k in cleared)
            before.discard(key)
        now = {key for key in model.claims if table.is_clear(key)}
        assert now - before == told, "exactly those who became clear are told"
        assert before <= now, "who has everything keeps it"
        assert now <= model.all_clear(), "nobody goes before an earlier one it conflicts with"
        if exact:
            assert now == model.all_clear(), "nobody waits for nothing"
        elif model.claims:
            assert next(iter(model.claims)) in now, "the first in line never waits"
    while model.claims:
        key = next(k for k in model.claims if table.is_clear(k))
        del model.claims[key]
        table.remove(key)
    assert len(table) == 0
    assert not table._nodes, "an empty table has no nodes"


@given(moves(FLAT))
def test_flat_names_go_exactly_first_come_first_served(
    steps: list[tuple[int, list[Claim]]],
) -> None:
    play(steps, exact=True)


@given(moves(NESTED))
def test_nested_paths_never_overtake_and_never_strand(steps: list[tuple[int, list[Claim]]]) -> None:
    play(steps, exact=False)


@given(NESTED, NESTED)
def test_two_claims_exclude_each_other_by_their_paths(one: Claim, other: Claim) -> None:
    table = ResourceTable()
    assert table.add("one", wants_of((one,)))
    assert table.add("other", wants_of((other,))) == (not conflict(one, other))


@given(st.lists(NESTED, max_size=3), st.lists(NESTED, max_size=3))
def test_sets_that_conflict_are_never_held_together(one: list[Claim], other: list[Claim]) -> None:
    # The other way round is not promised: a shared claim above an exclusive one of the same key
    # is taken as exclusive.
    table = ResourceTable()
    assert table.add("one", wants_of(tuple(one)))
    together = table.add("other", wants_of(tuple(other)))
    assert not (together and any(conflict(a, b) for a in one for b in other))


@pytest.mark.parametrize("seed", range(200))
def test_children_and_strangers_all_finish(seed: int) -> None:
    """Parents hold, strangers wait for them, children want what either has: nobody hangs."""
    chance = random.Random(seed)
    own = {"p0": ["file:/a", "file:/a/b"], "p1": ["file:/c"]}
    free = ["k", "j"]

    def some(key: str) -> tuple[Claim, ...]:
        # Two parents whose children want what the other one holds wait for each other by any rule.
        parent = key.partition(".")[0]
        names = own.get(parent, [*own["p0"], *own["p1"]])
        if key != parent or parent not in own:
            names = [*names, *free]
        picked = chance.sample(names, chance.randint(1, min(2, len(names))))
        return tuple(Claim(resource=name) for name in picked)

    table = ResourceTable()
    claims: dict[str, tuple[Claim, ...]] = {}
    kin: dict[str, tuple[str, ...]] = {}
    unborn = {f"p{n}": chance.randint(1, 3) for n in range(2)}
    arrivals = [("add", f"{'p' if n < 2 else 's'}{n}") for n in range(7)]
    chance.shuffle(arrivals)
    for _ in range(500):
        holding = [key for key in claims if table.is_clear(key)]
        for one in holding:
            for other in holding:
                if one < other and one not in kin[other] and other not in kin[one]:
                    assert not any(conflict(a, b) for a in claims[one] for b in claims[other])
        may_end = [
            key
            for key in holding
            if not unborn.get(key) and not any(key in above for above in kin.values())
        ]
        may_bear = [key for key in holding if unborn.get(key)]
        choices = [("end", key) for key in may_end] + [("bear", key) for key in may_bear]
        choices += arrivals[:1]
        if not choices:
            break
        what, key = chance.choice(choices)
        if what == "end":
            table.remove(key)
            del claims[key], kin[key]
            continue
        if what == "bear":
            unborn[key] -= 1
            key, above = f"{key}.{unborn[key]}", (key, *kin[key])
        else:
            arrivals.pop(0)
            above = ()
        claims[key], kin[key] = some(key), above
        table.add(key, wants_of(claims[key]), above)
    assert not claims, f"stuck: {claims}"
    assert len(table) == 0


def test_children_of_one_parent_exclude_each_other_first_come_first_served() -> None:
    table = ResourceTable()
    wants = wants_of((Claim(resource="k"),))
    table.add("parent", wants)
    assert table.add("c1", wants, ("parent",))
    assert not table.add("c2", wants, ("parent",))
    assert not table.add("c3", wants, ("parent",))
    assert table.remove("c1") == ["c2"]
    assert table.remove("c2") == ["c3"]


def test_a_child_goes_before_who_waits_for_its_parent_elsewhere() -> None:
    table = ResourceTable()
    table.add("parent", wants_of((Claim(resource="a"),)))
    assert not table.add("stranger", wants_of((Claim(resource="a"), Claim(resource="b"))))
    assert table.add("child", wants_of((Claim(resource="b"),)), ("parent",))
    assert table.remove("parent") == [], "the stranger's other resource is with the child"
    assert table.remove("child") == ["stranger"]


def test_a_child_does_not_go_before_who_waits_for_somebody_else() -> None:
    table = ResourceTable()
    table.add("parent", wants_of((Claim(resource="a"),)))
    table.add("holder", wants_of((Claim(resource="b"),)))
    assert not table.add("stranger", wants_of((Claim(resource="b"),)))
    assert not table.add("child", wants_of((Claim(resource="b"),)), ("parent",))
    assert table.remove("holder") == ["stranger"]
    assert table.remove("stranger") == ["child"]


def test_other_wants_keep_their_place() -> None:
    table = ResourceTable()
    order = ["one", "two", "three"]
    table.add("one", wants_of((Claim(resource="a"),)))
    table.add("two", wants_of((Claim(resource="a"),)))
    table.add("three", wants_of((Claim(resource="b"),)))
    assert table.replace("one", wants_of((Claim(resource="b"),)), order) == ["one", "two"]
    assert not table.is_clear("three"), "it stands behind who wants the same now and came before"


def test_what_is_blocked_is_named() -> None:
    table = ResourceTable()
    table.add("one", wants_of((Claim(resource="file:/a"),)))
    table.add("two", wants_of((Claim(resource="file:/a/b"), Claim(resource="k"))))
    assert list(table.blocked_on("two")) == [("file:/a", ("one",))]
    assert list(table.blocked_on("nobody")) == []


@pytest.mark.parametrize(
    ("resource", "nodes"),
    [
        ("k", ("k",)),
        ("account:42", ("account:42",)),
        ("file:/", ("file:/",)),
        ("file:/a/b", ("file:/", "file:/a", "file:/a/b")),
        ("file:/a//b/", ("file:/", "file:/a", "file:/a/b")),
    ],
)
def test_paths_are_taken_apart(resource: str, nodes: tuple[str, ...]) -> None:
    assert path_of(resource) == nodes


@pytest.mark.parametrize("shared", [False, True])
def test_a_thousand_waiters_cost_a_thousand_steps(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    node = resources._Node
    admits = node.admits

    def counted(self: resources._Node, mode: int, kin: tuple[str, ...] = ()) -> bool:
        nonlocal count
        count += 1
        return admits(self, mode, kin)

    monkeypatch.setattr(node, "admits", counted)

    def cost(waiters: int) -> int:
        nonlocal count
        count = 0
        table = ResourceTable()
        table.add("holder", wants_of((Claim(resource="file:/a"),)))
        wants = wants_of((Claim(resource="file:/a/b", shared=shared), Claim(resource="k")))
        for n in range(waiters):
            table.add(str(n), wants)
        # Every other one gives up, the rest have their turn.
        for n in range(0, waiters, 2):
            table.remove(str(n))
        table.remove("holder")
        for n in range(1, waiters, 2):
            assert table.is_clear(str(n))
            table.remove(str(n))
        assert len(table) == 0
        return count

    few, many = cost(100), cost(1000)
    assert many <= 10.5 * few, f"{few} questions for 100 waiters, {many} for 1000"
