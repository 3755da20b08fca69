"""Planted bugs in delegation: the books, the stop of a peer, groups; see `planted.py`."""

from __future__ import annotations

from tests.mutants.runner import Mutant

LAW = "17 children-settle"
AGENTS = "tests/agents/"
FAILURES = (AGENTS + "test_failures.py",)
HANDLES = (AGENTS + "test_handles.py",)
STOPPING = (AGENTS + "test_stopping.py",)
DEPTH = (AGENTS + "test_depth.py",)


def planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


DELEGATION: tuple[Mutant, ...] = (
    planted(
        "a dropped handle is not named",
        LAW,
        "agents/ledger.py",
        "        dropped = [handle for handle in left if not handle.excused]\n",
        "        dropped = [handle for handle in left if False]\n",
        HANDLES,
    ),
    planted(
        "a dropped handle is not stopped",
        LAW,
        "agents/ledger.py",
        "            handle.finalise()\n",
        "",
        HANDLES,
    ),
    planted(
        "a body may drop a handle",
        LAW,
        "agents/delegate.py",
        "    on_return(body, lambda: ledger.body_is_over(call))\n",
        "",
        DEPTH,
    ),
    planted(
        "what a body delegates is not its child",
        LAW,
        "agents/delegate.py",
        "below(runtime, call, call, detached=detached), call\n",
        "below(runtime, call, None, detached=detached), call\n",
        DEPTH,
    ),
    planted(
        "a detached call is stopped with its owner",
        LAW,
        "agents/delegate.py",
        "        if not detached:\n",
        "        if True:\n",
        HANDLES,
    ),
    planted(
        "a deferred agent is sent at once",
        LAW,
        "run/submitted.py",
        "            if not one.deferred:\n",
        "            if True:\n",
        HANDLES,
    ),
    planted(
        "a stop is taken for confirmed",
        "5 honest-effect",
        "agents/steps.py",
        "            if isinstance(status, Failure) or status in _OVER:\n"
        '                raise Stopped(f"agent',
        '            if True:\n                raise Stopped(f"agent',
        STOPPING,
    ),
    planted(
        "a stop is not passed on",
        LAW,
        "agents/steps.py",
        "        await self._ask_to_stop()\n",
        "        pass\n",
        STOPPING,
    ),
    planted(
        "a stop forgets what is being submitted",
        LAW,
        "agents/steps.py",
        "        if self._submitting is not None and not self._submitted:\n",
        "        if False:\n",
        STOPPING,
    ),
    planted(
        "a finished peer loses its result to a stop",
        "3 one-ending",
        "agents/steps.py",
        "            if status is Status.SUCCEEDED:\n                return await self._take()\n",
        "",
        STOPPING,
    ),
    planted(
        "a plain function is left behind at a stop",
        "9 on-the-books",
        "agents/steps.py",
        "            if asked or not task.cancelled:\n",
        "            if True:\n",
        STOPPING,
    ),
    planted(
        "a status that fails is asked for ever",
        "6 bounded-stop",
        "agents/steps.py",
        "                if failures >= self._patience.probes:\n",
        "                if False:\n",
        STOPPING,
    ),
    planted(
        "failed questions are counted for ever",
        LAW,
        "agents/steps.py",
        "                failures = 0\n",
        "                pass\n",
        STOPPING,
    ),
    planted(
        "a second question while the first is unanswered",
        "9 on-the-books",
        "agents/steps.py",
        "        if step is None or step.done:\n",
        "        if True:\n",
        STOPPING,
    ),
    planted(
        "a cancelled handle fails",
        LAW,
        "agents/handle.py",
        "        if answer.outcome is Outcome.CANCELLED:\n",
        "        if False:\n",
        FAILURES,
    ),
    planted(
        "an abandoned peer is called stopped",
        "5 honest-effect",
        "agents/handle.py",
        "        return Proof.STOPPED if gone or not self._call.alive else Proof.UNKNOWN\n",
        "        return Proof.STOPPED\n",
        STOPPING,
    ),
    planted(
        "a group in the order of its endings",
        "4 one-answer",
        "agents/group.py",
        "        return [await handle.answered() for handle in self.handles]\n",
        "        return [await handle.answered() for handle in reversed(self.handles)]\n",
        HANDLES,
    ),
    planted(
        "a parent that waits keeps its slot",
        "12 no-leaked-lock",
        "run/parking.py",
        "        if first:\n            self._engine.tell(i.ParkBegan(call=name))\n",
        "",
        DEPTH,
    ),
    planted(
        "a step that raises ends the loop",
        "19 any-payload",
        "work/steps.py",
        "        except BaseException as error:\n            self.error = error\n",
        "        except Exception as error:\n            self.error = error\n",
        STOPPING,
    ),
)
