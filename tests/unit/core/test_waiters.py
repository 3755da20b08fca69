"""Waiters in many seeded orders: nobody is stranded, nobody holds what others need (law 12)."""

from __future__ import annotations

import random

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.terms import How, Isolation, Outcome, Phase
from tests.stories import Story, asked, begin, contract, s, x

C0, C1 = "r/0.0", "r/0.1"
THREAD = contract(isolation=Isolation.THREAD)


def test_bh51_a_cancelled_waiter_strands_nobody() -> None:
    """A holds, B and C wait; release and cancel fall into one tick, in every order."""
    for seed in range(1000):
        chance = random.Random(seed)
        pool = [x("k"), s("k"), x("file:/a"), x("file:/a/b"), s("file:/a")]
        calls = [asked(*chance.sample(pool, chance.randint(1, 3))) for _ in range(4)]
        story = Story()
        story.say(*begin(*calls))
        ids = [f"r/0.{n}" for n in range(4)]
        spared = chance.choice(ids)
        # In one tick: claims, cancels and endings in any order, one call is never cancelled.
        told: list[i.Input] = [i.Claimed(call=c) for c in ids]
        told += [i.Cancel(target=c) for c in ids if c != spared and chance.random() < 0.6]
        told += [i.BodyEnded(call=c, how=How.RETURNED) for c in ids]
        chance.shuffle(told)
        story.say(*told)
        while any(phase is not Phase.SETTLED for phase in story.phases()):
            for c in ids:
                story.say(i.Claimed(call=c), i.BodyEnded(call=c, how=How.RETURNED))
        assert story.ending(spared).outcome is Outcome.SUCCEEDED, seed
        assert len(story.state.resources) == 0
        story.over()


def test_bh53_parents_hold_no_slot_while_their_children_run() -> None:
    peaks = set()
    for seed in range(200):
        chance = random.Random(seed)
        story = Story({Isolation.THREAD: 2})
        story.say(*begin(asked(terms=THREAD), asked(terms=THREAD)))
        parents = {C0: "p", C1: "q"}
        peak = 0
        while story.phases() != [Phase.SETTLED, Phase.SETTLED]:
            may: list[i.Input] = []
            done = {event.call for event in story.told(e.UnparkAsked)}
            for call in list(story.state.calls.values()):
                child = parents.get(call.id)
                if call.phase is Phase.GRANTED:
                    may.append(i.Claimed(call=call.id))
                elif call.phase is Phase.RUNNING and child is None:
                    may.append(i.BodyEnded(call=call.id, how=How.RETURNED))
                elif call.phase is Phase.RUNNING and child not in story.state.runs:
                    assert child is not None
                    calls = (asked(terms=THREAD), asked(terms=THREAD))
                    story.say(
                        i.OpenRun(run=child, parent_call=call.id),
                        i.SubmitBatch(run=child, calls=calls),
                    )
                    may.append(i.ParkBegan(call=call.id))
                elif call.phase is Phase.RUNNING and child is not None:
                    over = all(phase is Phase.SETTLED for phase in story.phases(child))
                    if call.parked and over and call.id not in done:
                        may.append(i.ParkEnded(call=call.id))
                    elif not call.parked and call.id not in done:
                        may.append(i.ParkBegan(call=call.id))
                    elif not call.parked:
                        may.append(i.BodyEnded(call=call.id, how=How.RETURNED))
            assert may, f"seed {seed}: everybody waits for everybody"
            story.say(chance.choice(may))
            busy = [
                c for c in story.state.calls.values() if c.phase is Phase.RUNNING and not c.parked
            ]
            peak = max(peak, len(busy))
        assert peak <= 2
        peaks.add(peak)
        assert story.state.slots[Isolation.THREAD].taken == 0
        assert {story.ending(c).outcome for c in story.state.calls} == {Outcome.SUCCEEDED}
    assert 2 in peaks, "both slots are used"
