"""The planted bugs in the loop: after a cancel, at a user's word, and after a crash."""

from __future__ import annotations

from tests.mutants.runner import Mutant

STOPS = ("tests/loop/test_stops.py",)
POINTS = ("tests/loop/test_every_point.py",)
LIMITS = ("tests/loop/test_limits.py",)
USER = ("tests/loop/test_user.py",)
RESUME = ("tests/loop/test_resume.py",)
TURNS = ("tests/loop/test_turns.py",)


def _planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


LOOPING: tuple[Mutant, ...] = (
    _planted(
        "a further model turn after a cancel",
        "1 one-door",
        "agents/asking.py",
        "        if self._over():\n            # Cancelled",
        "        if False:\n            # Cancelled",
        POINTS,
    ),
    _planted(
        "a cancel does not close the model's stream",
        "7 every-wait-listens",
        "agents/news.py",
        "        if self._waiter is not None and not self._waiter.done():\n",
        "        if False:\n",
        STOPS,
    ),
    _planted(
        "what a stopped model says is heard",
        "1 one-door",
        "agents/asking.py",
        "        if not (self._stopped or self.task.done() or self._over()):\n",
        "        if True:\n",
        STOPS,
    ),
    _planted(
        "a model that ignores the cancel is waited for",
        "6 bounded-stop",
        "agents/asking.py",
        "        while not self.task.done() and loop.time() < close_by:\n",
        "        while not self.task.done():\n",
        STOPS,
    ),
    _planted(
        "a reply that was cut off is executed",
        "1 one-door",
        "adapters/openai_chat.py",
        "    return _read_message(message, reason if reason in CUT else None, notes)\n",
        "    return _read_message(message, None, notes)\n",
        LIMITS,
    ),
    _planted(
        "steering counts as a cancel",
        "2 right-target",
        "agents/loop.py",
        "i.Cancel(target=turn.batch, reason=Reason.SUPERSEDED, mode=Mode.DRAIN)",
        "i.Cancel(target=self.run.id, reason=Reason.SUPERSEDED, mode=Mode.DRAIN)",
        USER,
    ),
    _planted(
        "steering stops what runs",
        "14 isolated-siblings",
        "agents/loop.py",
        "reason=Reason.SUPERSEDED, mode=Mode.DRAIN)",
        "reason=Reason.SUPERSEDED)",
        USER,
    ),
    _planted(
        "calls of a reply that was not asked for any more begin",
        "1 one-door",
        "agents/loop.py",
        "        if unheard:\n            # Said",
        "        if False:\n            # Said",
        USER,
    ),
    _planted(
        "what is said while calls are handed in skips none",
        "1 one-door",
        "agents/news.py",
        "    e.BatchOpened,\n",
        "",
        USER,
    ),
    _planted(
        "what is said while the run is closed is lost",
        "15 record-first",
        "core/runs.py",
        "    if run.ended or (said.at_seq is not None and run.seq != said.at_seq):\n",
        "    if run.ended:\n",
        USER,
    ),
    _planted(
        "one call ends the conversation of all",
        "14 isolated-siblings",
        "agents/transcript.py",
        "        return bool(results) and all(\n",
        "        return bool(results) and any(\n",
        LIMITS,
    ),
    _planted(
        "a resumed loop hands its calls in again",
        "10 no-blind-retry",
        "agents/loop.py",
        "                await self._batch(self.run.finish())\n",
        "                assert self.transcript.turn is not None\n"
        "                await self._hand_in(self.transcript.turn.reply.calls, False)\n",
        RESUME,
    ),
    _planted(
        "a resumed loop asks again for a reply that it has",
        "16 survives-restart",
        "agents/transcript.py",
        "            return Step.SUBMIT if turn.batch is None else Step.WAIT\n",
        "            return Step.ASK if turn.batch is None else Step.WAIT\n",
        RESUME,
    ),
    _planted(
        "a call without an ending is left out of the transcript",
        "4 one-answer",
        "agents/transcript.py",
        "        if self.turn is not None and not self.turn.answered:\n            place(",
        "        if False:\n            place(",
        RESUME,
    ),
    _planted(
        "ids that come again stay in the transcript",
        "4 one-answer",
        "agents/transcript.py",
        "    if _AGAIN in taken or not taken.isdisjoint(ids):\n",
        "    if False:\n",
        TURNS,
    ),
    _planted(
        "an agent may call what it was not offered",
        "2 right-target",
        "agents/loop.py",
        "            tools=self.agent.offered,\n",
        "            tools=None,\n",
        TURNS,
    ),
    _planted(
        "what a reply costs is not counted",
        "20 paid-once",
        "agents/loop.py",
        "spent=reply.usage.cost)",
        "spent=None)",
        LIMITS,
    ),
    _planted(
        "the wall does not stand still for a human",
        "8 machine-time",
        "agents/loop.py",
        "            self._used_s += batch.meter.ran_s(self._engine.clock())\n",
        "            self._used_s += self._engine.clock() - batch.meter._started_at\n",
        LIMITS,
    ),
    _planted(
        "a runtime that closes leaves its loops a success",
        "3 one-ending",
        "run/stopping.py",
        "reversed(said) if run.id in self.driven else said:",
        "said:",
        STOPS,
    ),
)
