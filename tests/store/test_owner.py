"""Who drives a run: a process is told from every other, also from one with its pid."""

from __future__ import annotations

import os
import sys

import pytest

from endstop.store.owner import is_alive, parse_owner, this_owner
from tests.store.helpers import python

SCRIPT = """
import sys
from endstop.store.owner import this_owner
print(this_owner(), flush=True)
sys.stdin.readline()
"""


def test_this_process_is_alive() -> None:
    owner = this_owner()
    assert owner.pid == os.getpid()
    assert parse_owner(str(owner)) == owner
    assert is_alive(str(owner))


def test_two_drivers_in_one_process_differ() -> None:
    assert str(this_owner()) != str(this_owner())


def test_a_process_is_alive_until_it_ended_also_before_it_was_waited_for() -> None:
    child = python(SCRIPT)
    assert child.stdout is not None
    text = child.stdout.readline().strip()
    owner = parse_owner(text)
    assert owner is not None
    assert owner.pid == child.pid
    assert is_alive(text)
    child.kill()
    # Waits for the end without taking the child off the kernel's list: it stays a zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(text)
    child.communicate()
    assert not is_alive(text)


def test_another_process_with_the_same_pid_is_not_it() -> None:
    """Law 2 right-target: a bare pid is never trusted."""
    owner = this_owner()
    assert not is_alive(str(owner._replace(started="1")))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names its boots")
def test_nothing_survives_a_reboot() -> None:
    owner = this_owner()
    assert not is_alive(str(owner._replace(boot="00000000-0000-0000-0000-000000000000")))


def test_what_cannot_be_known_counts_as_alive() -> None:
    owner = this_owner()
    assert is_alive(str(owner._replace(host="elsewhere", started="1")))
    assert is_alive(str(owner._replace(boot="-")))
    for text in ("", "x", "a:b:c:d:e", "a:b:1:2", "a:b:1:2:3:4"):
        assert parse_owner(text) is None
        assert is_alive(text)


@pytest.mark.skipif(sys.platform != "linux", reason="the name is set as Linux does it")
def test_a_program_with_brackets_in_its_name_is_recognised() -> None:
    child = python(
        "from pathlib import Path; Path('/proc/self/comm').write_text('a) Z (b')\n" + SCRIPT
    )
    assert child.stdout is not None
    text = child.stdout.readline().strip()
    try:
        assert is_alive(text)
    finally:
        child.communicate("\n", timeout=30)
    assert not is_alive(text)
