"""The planted bugs in what other processes may ask, and in taking runs over."""

from __future__ import annotations

from tests.mutants.runner import Mutant

INBOX = ("tests/control/test_inbox.py",)
ERRANDS = ("tests/control/test_errands.py",)


def _planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


CONTROL: tuple[Mutant, ...] = (
    _planted(
        "a cancel from outside of another run is carried out",
        "2 right-target",
        "run/errands.py",
        "            if request.target != request.run and "
        'not request.target.startswith(f"{request.run}/"):\n',
        "            if False:\n",
        ERRANDS,
    ),
    _planted(
        "a run that is taken over is not fenced off",
        "3 one-ending",
        "store/taking.py",
        "            _append(connection, path, owner, run, events)\n",
        "",
        INBOX,
    ),
    _planted(
        "a blocked driver is not helped",
        "6 bounded-stop",
        "run/errands.py",
        "            engine.tick()\n",
        "            pass\n",
        ERRANDS,
    ),
    _planted(
        "an answer from outside counts for whatever is asked",
        "13 one-approval",
        "run/errands.py",
        "        if pending is not None and seen != pending:\n",
        "        seen = pending\n        if False:\n",
        ERRANDS,
    ),
    _planted(
        "a rule from outside has no end",
        "13 one-approval",
        "run/errands.py",
        "            return Remember(same=same, for_s=for_s)\n",
        "            return Remember(same=same)\n",
        ERRANDS,
    ),
    _planted(
        "a request is answered again",
        "13 one-approval",
        "store/queries.sql",
        "UPDATE requests SET answer = ?, answered_at = ? WHERE id = ? AND answer IS NULL\n",
        "UPDATE requests SET answer = ?, answered_at = ? WHERE id = ?\n",
        INBOX,
    ),
    _planted(
        "an answer that was taken is called back",
        "13 one-approval",
        "store/queries.sql",
        "WHERE id = ? AND answer IS NULL AND taken_by IS NULL\n",
        "WHERE id = ? AND answer IS NULL\n",
        INBOX,
    ),
    _planted(
        "a run is taken from a driver that lives",
        "16 survives-restart",
        "store/taking.py",
        " and is_alive(before):",
        " and not is_alive(before):",
        INBOX,
    ),
    _planted(
        "whoever lost a run goes on with it",
        "16 survives-restart",
        "run/errands.py",
        "                    engine._fence(run, error)\n",
        "                    pass\n",
        ERRANDS,
    ),
    _planted(
        "a rule that was revoked elsewhere still holds",
        "13 one-approval",
        "run/errands.py",
        "        landed = runtime.revoke(request.target, by=request.by)\n",
        "        landed = True\n",
        ("tests/control/test_rules.py",),
    ),
    _planted(
        "a rule that was revoked meanwhile lets one more through",
        "13 one-approval",
        "run/resuming.py",
        "    runtime._errands.catch_up()\n",
        "",
        ("tests/control/test_rules.py",),
    ),
)
