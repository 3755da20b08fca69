"""What people get wrong: one line that says what, where and what to do, and no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.program import SAMPLES, TOOLS, endstop, reply

CHAT = str(SAMPLES / "chat_two_calls.json")

MISTAKES: list[tuple[str, list[str], int, list[str]]] = [
    ("no command", [], 2, ["no command was given", "endstop --help"]),
    ("unknown command", ["exce"], 2, ["exce", "endstop --help"]),
    ("no reply", ["exec"], 2, ["REPLY.json", "endstop exec --help"]),
    ("unknown option", ["exec", CHAT, "--tool", TOOLS], 2, ["--tool", "endstop exec --help"]),
    ("no tools", ["exec", CHAT], 2, ["there are no tools", "--tools"]),
    ("unknown reply", ["exec", "nope.json", "--shell"], 2, ["nope.json cannot be read"]),
    ("reply is a folder", ["exec", "/", "--shell"], 2, ["/ cannot be read: is a directory"]),
    ("wrong format", ["exec", CHAT, "--shell", "--format", "xml"], 2, ["xml", "openai-chat"]),
    ("not that format", ["exec", "list.json", "--shell", "--format", "openai-chat"], 2, ["list"]),
    ("broken JSON", ["exec", "broken.json", "--shell"], 2, ["broken.json", "line 2"]),
    ("an error body", ["exec", "error.json", "--shell"], 2, ["overloaded"]),
    ("an empty reply", ["exec", "empty.json", "--shell"], 2, ["empty.json", "empty"]),
    ("parallel 0", ["exec", CHAT, "--shell", "--parallel", "0"], 2, ["--parallel"]),
    ("deadline 0", ["exec", CHAT, "--shell", "--deadline", "0"], 2, ["--deadline", "above 0"]),
    ("deadline junk", ["exec", CHAT, "--shell", "--deadline", "nan"], 2, ["--deadline"]),
    ("unknown file", ["tools", "nope.py"], 2, ["there is no file nope.py"]),
    ("unknown module", ["tools", "no_such_module"], 2, ["no module 'no_such_module'"]),
    ("a folder", ["tools", "."], 2, [". is a directory"]),
    ("a file without .py", ["tools", "bad-name"], 2, ["names neither"]),
    ("forgot .py", ["tools", "bad-syntax"], 2, ["did you mean bad-syntax.py?"]),
    ("no tool in it", ["tools", "json"], 2, ["json offers no tool", "@tool", "TOOLS"]),
    ("broken Python", ["tools", "bad-syntax.py"], 2, ["bad-syntax.py, line 2", "mend"]),
    ("raises", ["tools", "raises.py"], 2, ["raises.py, line 4", "ValueError: no luck"]),
    ("needs a module", ["tools", "needs.py"], 2, ["needs.py, line 1", "install it"]),
    ("relative import", ["tools", "relative.py"], 2, ["relative.py, line 1", "as a module"]),
    ("exits", ["tools", "exits.py"], 2, ["exits.py, line 2", "__main__"]),
    ("bad contract", ["tools", "contract.py"], 2, ["contract.py, line 3", "effect is one of"]),
    ("TOOLS is no list", ["tools", "wrong_list.py"], 2, ["TOOLS is a dict"]),
    ("TOOLS holds others", ["tools", "wrong_item.py"], 2, ["TOOLS[0] is a int", "@tool"]),
    ("two of one name", ["tools", TOOLS, "twin.py"], 2, ["two tools named 'square'", "twin.py"]),
    ("no journal", ["journal", "nope.db"], 3, ["there is no journal", "nope.db"]),
    ("no journal at all", ["journal", "broken.json"], 3, ["is not a journal"]),
    ("unwritable", ["exec", CHAT, "--shell", "--journal", "no/x.db"], 3, ["no directory"]),
    ("bad config", ["exec", CHAT, "--shell"], 2, ["endstop.toml", "not valid TOML"]),
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    files = {
        "broken.json": '{"choices":\n [,]}',
        "error.json": '{"error": {"message": "overloaded"}}',
        "empty.json": "  \n",
        "list.json": "[]",
        "bad-syntax.py": "x = 1\ndef (:\n",
        "raises.py": "\n\ndef f():\n    raise ValueError('no luck')\n\nf()\n",
        "needs.py": "import no_such_package_anywhere\n",
        "relative.py": "from . import other\n",
        "exits.py": "import sys\nsys.exit(3)\n",
        "contract.py": "from endstop import tool\n\n@tool(effect='sometimes')\ndef f(): ...\n",
        "wrong_list.py": "TOOLS = {}\n",
        "wrong_item.py": "TOOLS = [1]\n",
        "twin.py": "from endstop import tool\n\n@tool\ndef square(): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "words", "name"),
    [(arguments, code, words, name) for name, arguments, code, words in MISTAKES],
    ids=[name for name, *_ in MISTAKES],
)
def test_a_mistake_is_named(
    here: Path, arguments: list[str], code: int, words: list[str], name: str
) -> None:
    if name == "bad config":
        (here / "endstop.toml").write_text("grace_s = = 1\n", encoding="utf-8")
    done = endstop(*arguments, cwd=here)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("endstop: "), done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == "" or not arguments


def test_a_journal_that_may_not_be_read(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    book = tmp_path / "runs.db"
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    endstop("exec", asked, "--tools", TOOLS, "--journal", book)
    book.chmod(0)
    done = endstop("journal", book)
    assert done.returncode == 3
    assert "may not be read" in done.stderr


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    book = tmp_path / "runs.db"
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    for _ in range(2):
        endstop("exec", asked, "--tools", TOOLS, "--journal", book)
    done = endstop("journal", book, "nothing")
    assert done.returncode == 2
    assert "holds no run 'nothing'" in done.stderr
    done = endstop("journal", book, "r")
    assert done.returncode == 2
    assert "write more of the id" in done.stderr


def test_a_warning_of_the_configuration_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "endstop.toml").write_text('grace_s = "soon"\n', encoding="utf-8")
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    done = endstop("exec", asked, "--tools", TOOLS, cwd=tmp_path)
    assert done.returncode == 0
    (line,) = [one for one in done.stderr.splitlines() if "grace_s" in one]
    assert line.startswith("endstop: warning: ")
