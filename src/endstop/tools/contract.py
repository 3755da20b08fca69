"""Tools: a declaration and the configuration become the contract that the core reads.

All limits are decided here, once per tool and way of running; the core only counts. Nothing here
may raise over a bad value: it is named in a warning and the next source decides.
"""

from __future__ import annotations

from endstop.config import TOOL_TIMEOUT_S, Off, Timeouts, log, read_seconds
from endstop.core.terms import Contract
from endstop.tools.declared import Declared

CONTRACTS_MAX = 64
WARNED_MAX = 1024

_warned: set[str] = set()


def resolve(
    declared: Declared,
    *,
    timeouts: Timeouts,
    sequential: bool,
    call_timeout_s: object = None,
) -> Contract:
    """The contract of one call, every time resolved (law 8 machine-time).

    Running time: the call's, else the tool's, else `timeouts.tools.sequential_call` or
    `concurrent_batch` by `sequential` (the first inherits the second, "off" included), else
    420 s. 0, less, or "off" means no limit; None says nothing; what is no limit at all (NaN, a
    boolean, junk) is named in a warning once and says nothing. Huge values become the longest
    wait that the platform knows.

    The same tool, timeouts and way of running give the same object.
    """
    call_s = _said(call_timeout_s, "the call's timeout")
    key = (id(timeouts), sequential, call_s)
    cached = declared.contracts.get(key)
    if cached is not None:
        return cached[1]
    deadline = _deadline(declared, timeouts, sequential, call_s)
    contract = Contract(
        effect=declared.effect,
        isolation=declared.isolation,
        exclusive=declared.exclusive,
        commits=declared.commits,
        deadline_s=None if deadline == "off" else deadline,
        idle_s=declared.idle_s,
        grace_s=timeouts.grace_s if declared.grace_s is None else declared.grace_s,
        commit_s=timeouts.commit_s,
        kill_s=timeouts.kill_s,
        start_s=timeouts.start_s,
        retries=declared.retries,
        backoff=declared.backoff,
        reconciles=declared.reconciles,
        reattaches=declared.reattaches,
    )
    if len(declared.contracts) >= CONTRACTS_MAX:
        declared.contracts.clear()
    # The timeouts are kept with the contract: while they live, nothing else has their id.
    declared.contracts[key] = (timeouts, contract)
    return contract


def _deadline(
    declared: Declared, timeouts: Timeouts, sequential: bool, call_s: float | Off | None
) -> float | Off:
    tools = timeouts.tools
    sources: list[tuple[object, str]] = [
        (call_s, "the call's timeout"),
        (declared.timeout_s, "the tool's timeout"),
    ]
    if sequential:
        sources.append((tools.sequential_call, "timeouts.tools.sequential_call"))
    sources.append((tools.concurrent_batch, "timeouts.tools.concurrent_batch"))
    for value, source in sources:
        said = _said(value, source)
        if said is not None:
            return said
    return TOOL_TIMEOUT_S


def _said(value: object, source: str) -> float | Off | None:
    if value is None:
        return None
    try:
        return read_seconds(value)
    except ValueError as problem:
        _warn_once(f"{source} = {value!r:.80} is not used: {problem}")
        return None


def _warn_once(message: str) -> None:
    if message in _warned:
        return
    if len(_warned) >= WARNED_MAX:
        _warned.clear()
    _warned.add(message)
    log.warning("%s", message)
