"""The shell tool: results, stops, floods, detached jobs."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from endstop.core.inputs import Progressed
from endstop.core.terms import How
from endstop.errors import NotFound
from endstop.work import tree
from endstop.work.excerpt import Excerpt
from endstop.work.shell import shell
from tests.process import bodies
from tests.process.conftest import Family
from tests.process.desk import Bench


def test_a_command_returns_its_code_and_output(bench: Bench, tmp_path: Path) -> None:
    end = bench.run(
        shell,
        command='cat; echo "$WORD" >&2; pwd; exit 3',
        cwd=str(tmp_path),
        env={"WORD": "hello"},
        stdin="given\n",
    )
    assert end.how is How.RETURNED
    assert end.value["exit_code"] == 3
    assert end.value["output"] == f"given\nhello\n{tmp_path}\n"
    assert end.value["total_bytes"] == len(end.value["output"])
    assert end.value["seconds"] < 20


def test_a_command_without_input_reads_none(bench: Bench) -> None:
    assert bench.run(shell, command="cat; echo done").value["output"] == "done\n"


def test_a_large_input_does_not_block(bench: Bench) -> None:
    end = bench.run(shell, command="sleep 0.2; wc -c", stdin="x" * 3_000_000)
    assert end.value["output"].strip() == "3000000"


def test_a_directory_that_is_none_is_named(bench: Bench) -> None:
    end = bench.run(shell, command="true", cwd="/no/such/place")
    assert end.how is How.RAISED
    assert end.error is not None
    assert "/no/such/place" in end.error


def test_output_is_cut_in_the_middle_and_counted(bench: Bench) -> None:
    end = bench.run(shell, command="seq 1 200000", output_limit=1000)
    value = end.value
    assert value["output"].startswith("1\n2\n")
    assert value["output"].endswith("199999\n200000\n")
    assert "bytes omitted" in value["output"]
    assert len(value["output"]) < 1100
    assert value["total_bytes"] == sum(len(str(n)) + 1 for n in range(1, 200001))


def test_output_comes_as_progress_while_it_runs(bench: Bench) -> None:
    call = bench.start(shell, command="echo first; sleep 60")
    bench.desk.progress(call, "first")
    bench.worker.kill(call)
    end = bench.desk.end(call)
    assert end.output["output"] == "first\n"


def test_progress_is_limited_in_rate_and_size(bench: Bench) -> None:
    end = bench.run(shell, command="timeout 1 yes 0123456789", output_limit=2000)
    told = bench.desk.of(end.call, Progressed)
    assert 2 <= len(told) <= 10 * max(2, end.value["seconds"]) + 2
    assert max(len(one.message) for one in told) <= 1000


def test_BH30_a_descendant_that_holds_the_pipe_holds_nothing_up(bench: Bench) -> None:
    call = bench.start(shell, command="echo begun; sleep 30 & exec sleep 60")
    bench.desk.progress(call, "begun")
    began = time.monotonic()
    bench.worker.kill(call)
    end = bench.desk.end(call)
    assert time.monotonic() - began < 2.0
    assert end.how is How.STOPPED
    assert end.output["output"] == "begun\n"
    assert end.survivors == ()


def test_BH30_a_command_that_ends_does_not_wait_for_who_holds_its_pipe(bench: Bench) -> None:
    began = time.monotonic()
    end = bench.run(shell, command="sleep 60 & setsid sleep 61 & echo over")
    assert time.monotonic() - began < 10
    assert end.how is How.RETURNED
    assert end.value["output"] == "over\n"
    stopped = bench.desk.progress(end.call, "left running").message
    assert "sleep 60" in stopped
    assert "sleep 61" in stopped


def test_a_stop_ends_the_command_at_once_and_is_not_its_result(bench: Bench) -> None:
    command = "trap 'echo cleaned; exit 0' TERM; echo begun; sleep 60 & wait"
    call = bench.start(shell, command=command, grace_s=20.0)
    bench.desk.progress(call, "begun")
    began = time.monotonic()
    bench.worker.ask(call)
    end = bench.desk.end(call)
    assert time.monotonic() - began < 3.0
    # It ended with status 0, because of us.
    assert end.how is How.STOPPED
    assert end.value is None
    assert end.output["output"] == "begun\ncleaned\n"
    assert end.output["exit_code"] == 0


def test_a_command_has_the_whole_grace_to_clean_up(bench: Bench) -> None:
    command = "trap 'sleep 1.5; echo cleaned; exit 0' TERM; echo begun; sleep 60 & wait"
    call = bench.start(shell, command=command, grace_s=4.0)
    bench.desk.progress(call, "begun")
    bench.worker.ask(call)
    end = bench.desk.end(call)
    assert end.how is How.STOPPED
    assert "cleaned" in end.output["output"]


def test_a_command_that_ends_by_itself_after_a_stop_has_returned(bench: Bench) -> None:
    end = bench.run(shell, command="echo done")
    bench.worker.ask(end.call)
    assert end.how is How.RETURNED


def rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("no VmHWM")


def test_BH74_memory_is_flat_under_a_flood_and_others_go_on(bench: Bench) -> None:
    assert bench.run(bodies.add, a=1, b=1).value == 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = "head -c 600000000 /dev/zero; echo; echo the end; sleep 60"
    call = bench.start(shell, command=flood)
    waits = []
    deadline = time.monotonic() + 60
    while True:
        began = time.monotonic()
        bench.run(bodies.add, a=1, b=1)
        waits.append(time.monotonic() - began)
        told = bench.desk.of(call, Progressed)
        if any("the end" in one.message for one in told):
            break
        assert time.monotonic() < deadline
    sight = bench.worker.look(call)
    assert sight is not None
    assert sight.pid is not None
    runner_kb = rss_kb(sight.pid)
    bench.worker.kill(call)
    end = bench.desk.end(call)
    assert end.output["total_bytes"] == 600_000_000 + len("\nthe end\n")
    assert end.output["output"].endswith("the end\n")
    assert len(end.output["output"]) < 100_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"parent grew {grown} kB, runner peak {runner_kb} kB, calls {len(waits)}")
    assert grown < 50_000
    assert runner_kb < 200_000
    assert sorted(waits)[len(waits) // 2] < 0.1


@pytest.mark.parametrize("stream", [1, 2])
def test_BH74_a_body_that_floods_its_streams_is_drained(bench: Bench, stream: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = bench.run(bodies.flood, megabytes=300, stream=stream)
    assert end.value == "written"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    for host in bench.worker._calls.pool.hosts:
        assert rss_kb(host.who.pid) < 100_000


def test_BH32_a_detached_job_survives_its_call_and_is_listed(bench: Bench, family: Family) -> None:
    line = f"exec python3 -S {Path(bodies.__file__).with_name('family.py')} setsid {family.folder}"
    end = bench.run(shell, command=line, detach=True)
    assert end.how is How.RETURNED
    deadline = time.monotonic() + 20
    while len(family.members()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (job,) = bench.worker.jobs()
    assert job.call == end.call
    assert job.pid == end.value["pid"]
    assert job.id == end.value["job"]
    assert job.command.startswith("exec python3")
    # The host of its call is killed; other calls come and go.
    other = bench.start(bodies.stubborn)
    bench.desk.progress(other, "ready")
    bench.worker.kill(other)
    bench.worker.kill(end.call)
    bench.desk.end(other)
    assert len(family.alive()) == 2
    with pytest.raises(NotFound):
        bench.worker.stop_job("no-such-job")
    assert bench.worker.stop_job(job.id) == ()
    assert family.alive() == []
    assert bench.worker.jobs() == ()
    with pytest.raises(NotFound):
        bench.worker.stop_job(job.id)


def test_BH32_a_detached_job_survives_the_worker(family: Family) -> None:
    bench = Bench(slots=1)
    line = f"exec python3 -S {Path(bodies.__file__).with_name('family.py')} child {family.folder}"
    assert bench.run(shell, command=line, detach=True).how is How.RETURNED
    deadline = time.monotonic() + 20
    while not family.members():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (job,) = bench.worker.jobs()
    assert bench.close()
    assert len(family.alive()) == 1
    assert bench.worker.stop_job(job.pid) == ()
    assert family.alive() == []


def test_a_detached_job_that_ends_is_listed_no_more(bench: Bench) -> None:
    bench.run(shell, command="true", detach=True)
    deadline = time.monotonic() + 10
    while bench.worker.jobs():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_that_cannot_start_is_an_error(bench: Bench) -> None:
    end = bench.run(shell, command="true", detach=True, stdin="x")
    assert end.how is How.RAISED
    assert end.error is not None
    assert "stdin" in end.error


def test_the_shell_declares_what_it_is() -> None:
    assert shell.name == "shell"
    assert set(shell.parameters["properties"]) == {
        "command",
        "cwd",
        "env",
        "stdin",
        "detach",
        "output_limit",
        "terminal",
        "pty",
    }
    (claim,) = shell.claims({"command": "true"})
    assert claim.resource.startswith("terminal:")


def test_an_excerpt_keeps_head_and_tail_in_flat_memory() -> None:
    kept = Excerpt(100)
    for number in range(100_000):
        kept.add(b"%d," % number)
    text = kept.text()
    assert text.startswith("0,1,2,")
    assert text.endswith("99999,")
    assert kept.total == sum(len(b"%d," % n) for n in range(100_000))
    assert f"{kept.omitted} bytes omitted" in text
    assert kept.omitted == kept.total - 100
    assert len(kept._tail) <= 200


@pytest.mark.parametrize("size", [0, 1, 50, 99, 100, 101, 150, 1000])
@pytest.mark.parametrize("piece", [1, 7, 60, 1000])
def test_an_excerpt_loses_nothing_below_its_limit(size: int, piece: int) -> None:
    data = bytes(65 + n % 26 for n in range(size))
    kept = Excerpt(100)
    for begin in range(0, size, piece):
        kept.add(data[begin : begin + piece])
    assert kept.total == size
    assert kept.omitted == max(0, size - 100)
    if size <= 100:
        assert kept.text() == data.decode()
    else:
        assert kept.text().startswith(data[:50].decode())
        assert kept.text().endswith(data[-50:].decode())


def test_the_process_table_can_be_read() -> None:
    me = tree.look_up(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert me.session == os.getsid(0)
    assert me.group == os.getpgrp()
    assert not me.dead
    assert tree.look_up(2**22 + 1) is None
