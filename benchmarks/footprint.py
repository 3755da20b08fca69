"""What endstop weighs: to import, to install, and in memory."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tomllib
import tracemalloc
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import endstop
from benchmarks.noop import Counter
from benchmarks.rows import Row, plain
from endstop import Runtime, ToolCall, tool

IMPORT_MS, INSTALL_MB, DISTRIBUTIONS = 150.0, 20.0, 18
NEVER_LOADED = ("typer", "rich", "sqlite3", "griffe")
FORBIDDEN = ("typer", "rich")

_IMPORT = f"""
import json, sys, time
began = time.process_time()
import endstop
took = time.process_time() - began
print(json.dumps([took, [name for name in {NEVER_LOADED!r} if name in sys.modules]]))
"""


def import_time(quick: bool) -> Iterator[Row]:
    """CPU of `import endstop`, compiled, in a fresh interpreter whose own start is not counted."""
    rounds = 3 if quick else 15
    best_ms, loaded = float("inf"), set()
    with TemporaryDirectory(prefix="endstop-bench-") as cache:
        # Installers compile to bytecode; a checkout may be told not to. The first turn compiles.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(rounds + 1):
            done = subprocess.run(
                [sys.executable, "-c", _IMPORT],
                check=True,
                capture_output=True,
                text=True,
                env=environment,
            )
            took_s, found = json.loads(done.stdout)
            loaded |= set(found)
            if turn:
                best_ms = min(best_ms, took_s * 1e3)
    yield plain(
        "import",
        "sync",
        1,
        best_ms,
        "ms CPU",
        target=IMPORT_MS,
        rounds=rounds,
        note=f"loaded of {', '.join(NEVER_LOADED)}: {', '.join(sorted(loaded)) or 'none'}",
    )
    yield plain(
        "import-loads-cli", "sync", 1, len(loaded & set(FORBIDDEN)), "modules", target=0, rounds=1
    )


# --- install ------------------------------------------------------------------------------------


def base_requirements() -> list[str]:
    """What the base install of endstop requires: of the installed one, or of this checkout."""
    try:
        return metadata.distribution("endstop").requires or []
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parent.parent / "pyproject.toml"
        found: list[str] = tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]
        return found


def closure(requirements: list[str]) -> dict[str, metadata.Distribution]:
    """Every distribution that is installed with these, by name, for this interpreter."""
    # Comes with pytest; only this row needs it.
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(text, "") for text in requirements]
    while queue:
        text, extra = queue.pop()
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        distribution = found.setdefault(name, metadata.distribution(name))
        for asked in ("", *wanted.extras):
            if (name, asked) not in seen:
                seen.add((name, asked))
                queue += [(one, asked) for one in distribution.requires or []]
    return found


def size_of(distribution: metadata.Distribution) -> int:
    """Bytes on disk of what its record lists, without compiled bytecode."""
    total = 0
    for file in distribution.files or []:
        if file.suffix == ".pyc":
            continue
        place = Path(str(file.locate()))
        if place.is_file():
            total += place.stat().st_size
    return total


def own_size() -> int:
    """Bytes of the package itself."""
    package = Path(endstop.__file__).parent
    files = (f for f in package.rglob("*") if f.is_file() and f.suffix != ".pyc")
    return sum(file.stat().st_size for file in files)


def install_size(quick: bool) -> Iterator[Row]:
    """The base install, command line included, with everything that it pulls in."""
    found = closure(base_requirements())
    sizes = {name: size_of(distribution) for name, distribution in found.items()}
    sizes["endstop"] = own_size()
    largest = sorted(sizes, key=lambda name: -sizes[name])
    shown = ", ".join(f"{name} {sizes[name] / 1e6:.1f}" for name in largest)
    yield plain(
        "install-size",
        "sync",
        1,
        sum(sizes.values()) / 1e6,
        "MB",
        target=INSTALL_MB,
        note=f"without .pyc: {shown}",
    )
    yield plain("install-count", "sync", 1, len(sizes), "dists", target=DISTRIBUTIONS)


# --- memory -------------------------------------------------------------------------------------

MEASURED = 1000


def held_kb() -> float:
    """Kilobytes that Python objects hold now, garbage not counted."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e3


def memory(quick: bool) -> Iterator[Row]:
    """What 1,000 calls keep: finished in an open run, after it is closed, and waiting."""
    for name, kb, note in asyncio.run(_memory()):
        yield plain(
            name,
            "async",
            MEASURED,
            kb,
            "KB/1000",
            journal="memory",
            effect="effectful",
            executed=MEASURED,
            note=note,
        )


async def _memory() -> list[tuple[str, float, str]]:
    ran, gate = Counter(), asyncio.Event()

    @tool(resources=())
    async def note(text: str) -> str:
        ran.bump()
        return text

    @tool(name="hold", resources=("tool:shared-by-all",))
    async def hold(text: str) -> None:
        await gate.wait()

    def calls(name: str) -> list[ToolCall]:
        return [
            ToolCall(model_id=f"call_{i}", tool=name, arguments={"text": f"text of {i}"})
            for i in range(MEASURED)
        ]

    async with Runtime([note, hold]) as rt:
        async with rt.run() as run:
            await run.execute(calls("note"))
        ran.take()
        tracemalloc.start()
        try:
            start = held_kb()
            async with rt.run() as run:
                batch = await run.execute(calls("note"))
                if ran.take() != MEASURED or not all(result.ok for result in batch):
                    raise AssertionError("not every call ran")
                finished = held_kb() - start
            del run, batch
            closed = held_kb() - start
            start = held_kb()
            async with rt.run() as run:
                waiting = asyncio.create_task(run.execute(calls("hold")))
                while len(rt.calls()) < MEASURED:
                    await asyncio.sleep(0)
                waits = held_kb() - start
                await run.cancel()
                await waiting
        finally:
            tracemalloc.stop()
    return [
        ("memory-finished", finished, "in an open run: calls, results, arguments and the journal"),
        ("memory-closed", closed, "after the run is closed: the journal in memory"),
        ("memory-waiting", waits, "999 behind one that holds their resource, in an open run"),
    ]
