"""An independent client, @a2a-js/sdk on Node, against ours in every binding."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.wire.cards import BINDINGS
from tests.wire.harness import Server, house

HERE = Path(__file__).parent / "js"
TOKEN = "only-for-this-test"
INSTALL_S = 100


@pytest.fixture(scope="module")
def node() -> str:
    """Node, with the client installed beside the script as its lock file says."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        pytest.skip("needs Node.js 20 or newer and npm, which are not on this machine")
    lock = HERE / "package-lock.json"
    stamp = HERE / "node_modules" / "installed-from"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(
            [npm, "ci", *quiet], cwd=HERE, capture_output=True, text=True, timeout=INSTALL_S
        )
        assert done.returncode == 0, f"npm ci failed:\n{done.stderr}"
        stamp.write_bytes(lock.read_bytes())
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with house("endstop", tmp_path_factory.mktemp("js")) as home:
        yield home.start("sqlite")


def talk(node: str, *arguments: str) -> dict[str, Any]:
    """What the script saw."""
    done = subprocess.run(
        [node, str(HERE / "client.mjs"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert isinstance(seen, dict)
    return seen


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_whole_conversation(node: str, server: Server, binding: str) -> None:
    check(talk(node, server.url, binding))


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_a_whole_conversation_with_a_token(node: str, tmp_path: Path, binding: str) -> None:
    with house("endstop", tmp_path) as home:
        server = home.start("memory", ENDSTOP_TOKEN=TOKEN)
        check(talk(node, server.url, binding, TOKEN))
        with pytest.raises(AssertionError, match=r"401|bearer token"):
            talk(node, server.url, binding, "another")


def check(seen: dict[str, Any]) -> None:
    assert seen["card"] == "wire"
    assert seen["sent"] == {"state": "COMPLETED", "artifacts": ["a0", "a1"]}
    streamed = seen["streamed"]
    assert [event["texts"] for event in streamed if "artifact" in event] == [["part 0"], ["part 1"]]
    states = [event["state"] for event in streamed if "state" in event]
    assert states[-1] == "COMPLETED"
    assert states.count("COMPLETED") == 1
    assert seen["begun"] in ("SUBMITTED", "WORKING")
    assert seen["canceled"]["state"] == "CANCELED"
    assert "Stopped while running" in seen["canceled"]["words"][0]
    assert seen["watched"][-1] == "CANCELED"
    assert seen["watched"].count("CANCELED") == 1
    assert (seen["stored"], seen["again"]) == ("CANCELED", "CANCELED")
    assert seen["asked"] == "INPUT_REQUIRED"
    assert seen["answered"] == {"state": "COMPLETED", "same": True}
    assert seen["listed"] == [True]
    assert seen["refused"] == {"unknown": "TaskNotFoundError", "over": "TaskNotCancelableError"}
