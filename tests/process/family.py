"""A process that starts one kind of descendant, for tests: `python family.py KIND FOLDER`.

Standard library only. Everything that is meant to live writes a file named by its process number
into FOLDER, with its start time, and carries FOLDER in its command line, so that a test can find it
again whatever it did to its environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

LIFE_S = 60.0
RABBIT_S = 10.0


def here(folder: str) -> None:
    with open("/proc/self/stat", "rb") as file:
        start = file.read().rsplit(b") ", 1)[1].split()[19].decode()
    path = os.path.join(folder, str(os.getpid()))
    with open(path + ".new", "w") as file:
        file.write(start)
    os.rename(path + ".new", path)


def live(folder: str) -> None:
    here(folder)
    time.sleep(LIFE_S)
    os._exit(0)


def again(kind: str, folder: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", __file__, kind, folder], **options)  # type: ignore[call-overload, no-any-return]


def daemonise(folder: str) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            live(folder)
        os._exit(0)
    os.wait()


def rabbit(folder: str) -> None:
    """Fork and exit, again and again: whoever looks finds a process that is gone already."""
    here(folder)
    ends = time.monotonic() + RABBIT_S
    while time.monotonic() < ends:
        if os.fork() != 0:
            os._exit(0)
    os._exit(0)


def storm(folder: str) -> None:
    """Fork as fast as it goes, all children alive, up to a bound."""
    here(folder)
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(LIFE_S)
            os._exit(0)
    time.sleep(LIFE_S)


def main(kind: str, folder: str) -> None:
    match kind:
        case "child":
            live(folder)
        case "grandchild":
            again("child", folder)
            live(folder)
        case "setsid":
            again("child", folder, start_new_session=True)
            live(folder)
        case "daemon":
            daemonise(folder)
            live(folder)
        case "term_ignorer":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            live(folder)
        case "pipe_holder":
            again("child", folder, start_new_session=True)
            print("holding", flush=True)
            live(folder)
        case "rabbit":
            rabbit(folder)
        case "storm":
            storm(folder)
        case "stopped":
            here(folder)
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(LIFE_S)
        case "scrubbed_child":
            again("child", folder, env={})
            live(folder)
        case "scrubbed_daemon":
            again("daemon", folder, env={})
            live(folder)
        case "scrubbed":
            again("child", folder, env={}, start_new_session=True)
            live(folder)
        case _:
            raise SystemExit(f"unknown kind {kind!r}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
