"""Planted bugs at the edges of the core: workers, journals, watchers, payloads."""

from __future__ import annotations

from tests.mutants.runner import Mutant

QUIET = "tests/drivers/test_quiet_laws.py"
RECOVERY = "tests/unit/core/test_recovery.py"
AUDIENCE = "tests/unit/test_audience.py"
PAYLOAD = "tests/unit/test_payload.py"
TREE = "tests/process/test_whole_tree.py"
OWNERSHIP = "tests/process/test_ownership.py"
LOOPS = "tests/drivers/test_own_loops.py"
THREADS = "tests/drivers/test_body_threads.py"


def planted(name: str, law: str, file: str, old: str, new: str, test: str) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=(test,))


EDGES: tuple[Mutant, ...] = (
    planted(
        "bodies are sent to a blocked loop",
        "6 bounded-stop",
        "work/loops.py",
        "        awake = [place for place in self._places if not place.late]\n",
        "        awake = list(self._places)\n",
        LOOPS,
    ),
    planted(
        "blocked loops without end",
        "9 on-the-books",
        "work/loops.py",
        "        if len(self._places) < self._terms.most:\n",
        "        if True:\n",
        LOOPS,
    ),
    planted(
        "what a stopped body left on threads is forgotten",
        "5 honest-effect",
        "work/coroutine.py",
        "                await body.threads.over()\n",
        "                pass\n",
        THREADS,
    ),
    planted(
        "one effect key for all",
        "10 no-blind-retry",
        "run/plans.py",
        "        self.call = self.effect_key = call\n",
        '        self.call, self.effect_key = call, "key"\n',
        QUIET,
    ),
    planted(
        "an idempotent call without a record did not begin",
        "10 no-blind-retry",
        "core/recovery.py",
        "        return call in self._begun or "
        "(effect is EffectClass.IDEMPOTENT and not self._clean)\n",
        "        return call in self._begun\n",
        RECOVERY,
    ),
    planted(
        "orphans belong to nobody",
        "11 whole-tree",
        "work/tree.py",
        "    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)\n",
        "    return bool(libc)\n",
        TREE,
    ),
    planted(
        "a number is enough",
        "11 whole-tree",
        "work/tree.py",
        "    if now is None or now.who != who or now.dead:\n",
        "    if now is None or now.dead:\n",
        OWNERSHIP,
    ),
    planted(
        "a body begins before its grant is recorded",
        "15 record-first",
        "run/recording.py",
        "    EffectClass.EFFECTFUL: Durability.PROCESS,\n",
        "    EffectClass.EFFECTFUL: Durability.BUFFERED,\n",
        QUIET,
    ),
    planted(
        "an ending is told before it is recorded",
        "15 record-first",
        "run/recording.py",
        "    return type(event) in _WAITS\n",
        "    return False\n",
        QUIET,
    ),
    planted(
        "a body that is over keeps its task",
        "9 on-the-books",
        "work/coroutine.py",
        "        body.task = None\n",
        "        pass\n",
        "tests/drivers/test_freed.py::"
        "test_an_async_runtime_leaves_nothing_to_the_collector[own-loop-look]",
    ),
    planted(
        "a run that is forgotten keeps its batches",
        "9 on-the-books",
        "run/forgetting.py",
        "                batch.calls = []\n            run.batches = []\n",
        "                pass\n",
        "tests/drivers/test_freed.py",
    ),
    planted(
        "an observer's failure is ours",
        "18 audience-free",
        "run/audience.py",
        "    except BaseException:\n        # SystemExit too",
        "    except ArithmeticError:\n        # SystemExit too",
        AUDIENCE,
    ),
    planted(
        "who left is still told",
        "18 audience-free",
        "run/audience.py",
        "        self._observers = tuple(one for one in self._observers if one is not observer)\n",
        "        pass\n",
        QUIET,
    ),
    planted(
        "an exit in a body goes through",
        "19 any-payload",
        "work/coroutine.py",
        "        except BaseException as error:\n            end = raised(call, error)\n",
        "        except Exception as error:\n            end = raised(call, error)\n",
        QUIET,
    ),
    planted(
        "no number is a number",
        "19 any-payload",
        "core/payload.py",
        "        if isfinite(value):\n",
        "        if True:\n",
        PAYLOAD,
    ),
)
