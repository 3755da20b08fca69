"""The process tree: who belongs to a host, who is who, how it is killed and how that is proved.

Standard library only (psutil off Linux), and light: every host loads this file. Nothing here may
signal a process by its bare number: a number is pinned (pidfd), its start time and its belonging
are read again, and only then is the signal sent (law 11 whole-tree).

Theory. A process belongs to a host if a chain of parents leads from it to the host (a host is a
child subreaper, so that a double-forked daemon becomes its child), or it is in the host's session,
or it carries the host's marker in its environment (which also finds it when the host died first).
A sweep looks, kills what it found, waits until that is dead, and looks again until it finds
nothing: what was forked between look and kill is found by the next look. A zombie counts as dead.

Weaker off Linux: no subreaper and no pidfd, so that a double-forked daemon is found by its marker
only, and between the check of an identity and the signal lies a gap of some microseconds.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

MARKER = "ENDSTOP_HOST"
"""The environment variable that every descendant of a host inherits."""

LINUX = sys.platform.startswith("linux")
_PR_SET_CHILD_SUBREAPER = 36
_CMDLINE_MAX = 120
_ROUNDS_BEFORE_GROUPS = 3


class Identity(NamedTuple):
    """One process and no other: its number and when it started (ticks; seconds off Linux)."""

    pid: int
    start: float


class Seen(NamedTuple):
    """A process as the table showed it at one instant."""

    who: Identity
    parent: int
    group: int
    session: int
    dead: bool


class Scope(NamedTuple):
    """What a sweep is about: everything below `root`, in its session, or with its marker.

    The root itself and `spared` are left alone, but not what descends from them.
    """

    root: Identity
    marker: str
    spared: frozenset[Identity] = frozenset()


class Swept(NamedTuple):
    """What a sweep did: the processes it ended and the ones that it could not, by name."""

    ended: tuple[str, ...]
    survivors: tuple[str, ...]


def become_subreaper() -> bool:
    """Adopt every orphan below this process; false where the system has no such thing."""
    if not LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def look_up(pid: int) -> Seen | None:
    """A process as it is now, or None if there is none of that number."""
    if not LINUX:
        return _look_up_with_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return None
    # The name in brackets may hold anything, also spaces and brackets: split after the last one.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    # A process whose first thread has exited shows as a zombie while its other threads run on.
    dead = fields[0] in (b"Z", b"X", b"x") and int(fields[17]) <= 1
    parent, group, session = (int(field) for field in fields[1:4])
    return Seen(Identity(pid, int(fields[19])), parent, group, session, dead)


def _look_up_with_psutil(pid: int) -> Seen | None:
    import psutil

    try:
        found = psutil.Process(pid)
        with found.oneshot():
            dead = found.status() == psutil.STATUS_ZOMBIE
            who = Identity(pid, found.create_time())
            parent = found.ppid()
        session = 0 if dead else os.getsid(pid)
        group = 0 if dead else os.getpgid(pid)
    except (psutil.Error, OSError):
        return None
    return Seen(who, parent, group, session, dead)


def identify(pid: int) -> Identity | None:
    """The identity that this number has now."""
    seen = look_up(pid)
    return None if seen is None else seen.who


def alive(who: Identity) -> bool:
    """Whether this very process still runs; a zombie does not."""
    seen = look_up(who.pid)
    return seen is not None and seen.who == who and not seen.dead


def _pids() -> Iterator[int]:
    if LINUX:
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())
        return
    import psutil

    yield from psutil.pids()


def table() -> dict[int, Seen]:
    """Every process, by number. Not atomic: what it says is checked again before acting on it."""
    seen = ((pid, look_up(pid)) for pid in _pids())
    return {pid: one for pid, one in seen if one is not None}


def descendants(root: Identity, processes: dict[int, Seen] | None = None) -> list[Seen]:
    """Live processes below `root`, parents first; none if the number is no longer `root`'s."""
    processes = table() if processes is None else processes
    top = processes.get(root.pid)
    if top is None or top.who != root:
        return []
    children: dict[int, list[Seen]] = {}
    for one in processes.values():
        children.setdefault(one.parent, []).append(one)
    found: list[Seen] = []
    level = [root.pid]
    while level:
        below = [child for pid in level for child in children.get(pid, ()) if pid != child.who.pid]
        found += below
        level = [child.who.pid for child in below]
    return [one for one in found if not one.dead]


def members(scope: Scope) -> list[Seen]:
    """Live processes that a sweep of `scope` would end, found by chain and by session."""
    processes = table()
    found = {one.who: one for one in descendants(scope.root, processes)}
    root = processes.get(scope.root.pid)
    for one in processes.values():
        if not one.dead and _in_session(one, scope, root):
            found[one.who] = one
    return [one for who, one in found.items() if who not in scope.spared and who != scope.root]


def marked(marker: str) -> list[Seen]:
    """Live processes that carry `marker`: also those whose host died before them."""
    found = (look_up(pid) for pid in _pids() if pid != os.getpid() and has_marker(pid, marker))
    return [one for one in found if one is not None and not one.dead]


def has_marker(pid: int, marker: str) -> bool:
    """Whether a process inherited `marker`; false if its environment may not be read."""
    wanted = f"{MARKER}={marker}"
    if LINUX:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return wanted.encode() in file.read().split(b"\0")
        except OSError:
            return False
    import psutil

    try:
        return bool(psutil.Process(pid).environ().get(MARKER) == marker)
    except (psutil.Error, OSError):
        return False


def _in_session(one: Seen, scope: Scope, root: Seen | None) -> bool:
    # The number of a session stays taken while it has members. So a stranger can only be in it if
    # the number's owner is no longer the root; a zombie root still is.
    ours = root is not None and root.who == scope.root
    return ours and one.session == scope.root.pid


def belongs(one: Seen, scope: Scope) -> bool:
    """Whether a process is in `scope` now, read from the system again."""
    if has_marker(one.who.pid, scope.marker):
        return True
    if one.session == scope.root.pid and _in_session(one, scope, look_up(scope.root.pid)):
        return True
    step: Seen | None = one
    for _ in range(10_000):
        if step is None or step.parent <= 1:
            return False
        step = look_up(step.parent)
        if step is not None and step.who == scope.root:
            return True
    return False


def send(who: Identity, number: signal.Signals, scope: Scope | None = None) -> bool:
    """Signal this very process, and with a `scope` only if it belongs there; true if it was sent.

    Raises PermissionError for a process that is somebody else's.
    """
    assert who.pid > 1, f"never signal process {who.pid}"
    if not hasattr(os, "pidfd_open"):
        return _send_by_number(who, number, scope)
    try:
        pin = os.pidfd_open(who.pid)
    except OSError:
        return False
    # From here on the number cannot mean another process for `pin`: check, then signal the pin.
    try:
        if not _is_still(who, scope):
            return False
        signal.pidfd_send_signal(pin, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pin)
    return True


def _send_by_number(who: Identity, number: signal.Signals, scope: Scope | None) -> bool:
    if not _is_still(who, scope):
        return False
    try:
        os.kill(who.pid, number)
    except ProcessLookupError:
        return False
    return True


def _is_still(who: Identity, scope: Scope | None) -> bool:
    now = look_up(who.pid)
    if now is None or now.who != who or now.dead:
        return False
    return scope is None or belongs(now, scope)


def command_line(pid: int) -> str:
    """What a process says that it is, cut to one short line."""
    try:
        if LINUX:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(4096).rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
            if not words:
                with open(f"/proc/{pid}/comm", "rb") as file:
                    words = file.read(64).decode(errors="replace").strip()
        else:
            import psutil

            words = " ".join(psutil.Process(pid).cmdline())
    except Exception:
        # Gone meanwhile, or not ours to read: a name is wanted, not a reason to fail.
        return "?"
    words = "".join(c if c.isprintable() else " " for c in words)
    return words if len(words) <= _CMDLINE_MAX else words[: _CMDLINE_MAX - 1] + "…"


def name(who: Identity) -> str:
    """A process in words, for results and listings."""
    return f"pid {who.pid} ({command_line(who.pid)})"


def ask_to_end(scope: Scope) -> int:
    """SIGTERM to everything in `scope`, and SIGCONT so that a stopped process can hear it."""
    sent = 0
    done: set[Identity] = set()
    # A second and third look find what was forked during the one before.
    for _ in range(3):
        found = [one.who for one in members(scope) if one.who not in done]
        if not found:
            break
        done.update(found)
        for who in found:
            try:
                sent += send(who, signal.SIGTERM, scope)
                send(who, signal.SIGCONT, scope)
            except PermissionError:
                continue
    return sent


def sweep(scope: Scope, bound_s: float, *, prove: bool = True, hard: bool = False) -> Swept:
    """Kill everything in `scope` and prove that nothing is left, within `bound_s` seconds.

    Without `prove`, markers are not looked for; a later sweep must do that. With `hard`, process
    groups are killed from the first round on.
    """
    deadline = time.monotonic() + bound_s
    ended: dict[Identity, str] = {}
    rounds = 0
    while True:
        found = members(scope)
        if not found and prove:
            # The proof: nobody below, nobody in the session, and nobody with the marker.
            spared = {scope.root, *scope.spared}
            found = [one for one in marked(scope.marker) if one.who not in spared]
        if not found:
            return Swept(tuple(ended.values()), ())
        if rounds > 1 and time.monotonic() >= deadline:
            left = {one.who for one in found}
            gone = tuple(text for who, text in ended.items() if who not in left)
            return Swept(gone, tuple(name(who) for who in left))
        rounds += 1
        for one in found:
            label = ended.get(one.who) or name(one.who)
            try:
                if send(one.who, signal.SIGKILL, scope):
                    ended[one.who] = label
            except PermissionError:
                # Somebody else's now: it will be named as a survivor.
                continue
        if hard or rounds > _ROUNDS_BEFORE_GROUPS:
            for group in _kill_groups(scope, found):
                ended.setdefault(group, f"process group {group.pid}")
        wait_dead([one.who for one in found], deadline)


def _kill_groups(scope: Scope, found: list[Seen]) -> Iterator[Identity]:
    """Kill whole process groups: what forks and exits faster than one can look is caught so.

    A group is signalled only if it was ours in the last look and shows nobody but ours in this. It
    may show nobody at all; its number cannot mean another group while it has members, so that the
    only way to err is that it died out and all numbers were used up once between two looks.
    """
    processes = table()
    ours = {one.who for one in descendants(scope.root, processes)}
    root = processes.get(scope.root.pid)
    ours.update(one.who for one in processes.values() if _in_session(one, scope, root))
    ours -= {scope.root, *scope.spared}
    for group in {one.group for one in found if one.group > 1}:
        inside = [one.who for one in processes.values() if one.group == group and not one.dead]
        if ours.issuperset(inside) and not _is_spared(group, scope):
            try:
                os.killpg(group, signal.SIGKILL)
            except OSError:
                continue
            yield Identity(group, 0)


def _is_spared(group: int, scope: Scope) -> bool:
    spared = (look_up(who.pid) for who in (scope.root, *scope.spared))
    return any(one is not None and one.group == group for one in spared)


def wait_dead(whom: list[Identity], deadline: float) -> bool:
    """Wait until all of these are dead, at most until `deadline` (monotonic); true if they are."""
    for who in whom:
        while alive(who):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            _wait_exit(who, min(left, 0.05))
    return True


def _wait_exit(who: Identity, limit_s: float) -> None:
    if not hasattr(os, "pidfd_open"):
        time.sleep(min(limit_s, 0.002))
        return
    try:
        pin = os.pidfd_open(who.pid)
    except OSError:
        return
    try:
        waiter = select.poll()
        waiter.register(pin, select.POLLIN)
        waiter.poll(max(1, int(limit_s * 1000)))
    finally:
        os.close(pin)
