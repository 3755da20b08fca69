"""`endstop tools`, `endstop config`, `--version` and `--help`; and where tools may come from."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path

import pytest

import endstop as library
from tests.cli.program import PROGRAM, TOOLS, endstop, environment, reply

PACKAGE = {
    "pack/__init__.py": "",
    "pack/helper.py": "from endstop import tool\n\n@tool(isolation='process')\n"
    "def doubled(text: str) -> str:\n    '''Double it.'''\n    return text * 2\n",
    "pack/offer.py": "from pack.helper import doubled\n\nTOOLS = (doubled,)\n",
    "beside.py": "def shout(text):\n    return text.upper()\n",
    "mine.py": "from beside import shout\nfrom endstop import tool\n\n"
    "@tool(isolation='process')\ndef loud(text: str) -> str:\n"
    "    '''Say it louder.'''\n    return shout(text)\n",
}


def lay_out(folder: Path) -> None:
    for name, text in PACKAGE.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


def test_tools_are_listed_for_people() -> None:
    done = endstop("tools", TOOLS)
    assert done.returncode == 0, done.stderr
    for words in (
        "read_file  (",
        "path: string. The file to read.",
        "effect: read-only",
        "resources: file:{path} (shared)",
        "isolation: process",
        "cost: 0.04 USD",
        "approval: always",
        'by: string, default "word"',
    ):
        assert words in done.stdout


def test_tools_are_listed_for_programs() -> None:
    listed = json.loads(endstop("tools", TOOLS, "--json").stdout)
    by_name = {tool["name"]: tool for tool in listed}
    pay = by_name["pay"]
    assert pay["contract"]["approval"] == "always"
    assert pay["contract"]["cost"] == "2 EUR"
    assert pay["contract"]["timeout_s"] == 420.0
    assert pay["parameters"]["required"] == ["to", "amount"]
    assert by_name["next_train"]["parameters"]["properties"].keys() == {"from", "to"}
    assert by_name["square"]["address"].endswith("sample_tools.py:square")


def test_a_file_brings_what_lies_beside_it_also_into_processes(tmp_path: Path) -> None:
    lay_out(tmp_path)
    asked = reply(tmp_path / "reply.json", ("loud", {"text": "hey"}))
    done = endstop("exec", asked, "--tools", tmp_path / "mine.py", "--json")
    assert json.loads(done.stdout)["calls"][0]["value"] == "HEY", done.stdout


def test_a_module_of_the_working_directory_offers_its_list(tmp_path: Path) -> None:
    lay_out(tmp_path)
    asked = reply(tmp_path / "reply.json", ("doubled", {"text": "ab"}), ("loud", {"text": "x"}))
    sources = ("--tools", "pack.offer", "--tools", "mine.py")
    done = endstop("exec", asked, *sources, "--json", cwd=tmp_path)
    assert [call["value"] for call in json.loads(done.stdout)["calls"]] == ["abab", "X"]


def test_the_configuration_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "endstop.toml").write_text("grace_s = 2.5\n", encoding="utf-8")
    shown = endstop("config", cwd=tmp_path, ENDSTOP_KILL_S="7").stdout
    assert str(tmp_path / "endstop.toml") in shown
    assert "grace_s = 2.5   (default: 5)" in shown
    told = json.loads(endstop("config", "--json", cwd=tmp_path, ENDSTOP_KILL_S="7").stdout)
    assert (told["values"]["grace_s"], told["values"]["kill_s"]) == (2.5, 7.0)
    assert told["source"] == str(tmp_path / "endstop.toml")


def test_the_version() -> None:
    assert endstop("--version").stdout == f"endstop {library.__version__}\n"


def test_help_documents_the_exit_codes_and_comes_quickly() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*PROGRAM, "exec", "--help"], capture_output=True, text=True, env=environment(), check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for code in ("0 every call", "1 some call", "2 bad usage", "3 the journal", "130", "143"):
        assert code in " ".join(done.stdout.split())
    # CPU, not wall time: the machine may be busy. The promise is half a second.
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert spent < 1.0


def test_importing_the_commands_loads_no_rich() -> None:
    code = "import sys, endstop.cli.main; sys.exit('rich.console' in sys.modules)"
    assert subprocess.run([PROGRAM[0], "-c", code], env=environment(), check=False).returncode == 0


def test_a_source_that_is_named_twice_is_loaded_once() -> None:
    done = endstop("tools", TOOLS, TOOLS, "--json")
    names = [tool["name"] for tool in json.loads(done.stdout)]
    assert len(names) == len(set(names))


def test_a_terminal_that_lacks_characters_gets_escapes(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    book = tmp_path / "runs.db"
    options = {"PYTHONIOENCODING": "latin-1"}
    done = endstop("exec", asked, "--tools", TOOLS, "--journal", book, **options)
    assert done.returncode == 0, done.stderr
    assert "\\u2713 succeeded" in done.stderr
    assert "succeeded" in endstop("journal", book, "last", **options).stdout
    assert "\\xb7" in endstop("exec", "--help", PYTHONIOENCODING="ascii").stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(tmp_path: Path, closed: str) -> None:
    """Nor does the journal get its number, so that what is printed would be written into it."""
    book = tmp_path / "runs.db"
    asked = reply(tmp_path / "reply.json", ("noisy", {"text": "hello"}))
    command = [*PROGRAM, "exec", str(asked), "--tools", TOOLS, "--journal", str(book)]
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *command],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (">&-" in closed.replace("2>&-", "")) == (done.stdout == "")
    assert "1 succeeded" in endstop("journal", book).stdout
