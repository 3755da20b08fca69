"""Commands on a pseudo-terminal whose prompts are put to a human, on both drivers."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from endstop.core import events as e
from endstop.work.shell import shell
from tests.driving import OK, House, Street, call, endings, until

GETPASS = (
    f"""{sys.executable} -c "import getpass; print('got', len(getpass.getpass('Password: ')))" """
)


def begin(street: Street, kind: str, command: str, **terms: Any) -> tuple[House, Any, Any]:
    house = street.open(kind, [shell])
    run = house.run("r")
    return house, run, run.begin([call("shell", command=command, pty=True)], **terms)


def test_a_command_has_a_terminal_of_its_own(street: Street, kind: str) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && echo yes; : </dev/tty && echo own; exit 3"
    _, _, going = begin(street, kind, script)
    (result,) = going.result()
    assert endings([result]) == [OK]
    assert (result.value["exit_code"], result.value["output"]) == (3, "yes\nown\n")


def test_a_password_prompt_waits_for_a_human(street: Street, kind: str) -> None:
    house, _, going = begin(street, kind, GETPASS, timeout_s=30.0)
    house.watch.wait(e.QuestionAsked)
    (question,) = house.rt.questions()
    assert (question.text, question.secret) == ("Password:", True)
    (view,) = house.rt.calls()
    assert view.waits_for == "a human's answer: Password:"
    assert question.answer("hunter2", by="anna")
    (result,) = going.result()
    assert endings([result]) == [OK]
    assert result.value["output"] == "Password: \ngot 7\n"
    assert "hunter2" not in repr(house.watch.events)
    assert "hunter2" not in repr(list(house.rt.engine.journal.read("r")))


def test_a_confirmation_is_put_to_a_human(street: Street, kind: str) -> None:
    house, _, going = begin(
        street, kind, "read -p 'Really continue? [y/N] ' a; echo; echo \"got $a\""
    )
    house.watch.wait(e.QuestionAsked)
    (question,) = house.rt.questions()
    assert (question.text, question.secret) == ("Really continue? [y/N]", False)
    assert question.answer("y\x03")
    (result,) = going.result()
    assert result.value["output"].endswith("got y\n"), "a control character was passed on"


def test_two_prompts_one_after_the_other(street: Street, kind: str) -> None:
    script = 'for n in one two; do read -s -p "Password for $n: " a; echo; echo "${#a}"; done'
    house, _, going = begin(street, kind, script)
    for number, text in enumerate(("Password for one:", "Password for two:"), 1):
        house.watch.wait(e.QuestionAsked, count=number)
        (question,) = house.rt.questions()
        assert question.text == text
        assert question.answer("x" * number)
    (result,) = going.result()
    assert result.value["output"] == "Password for one: \n1\nPassword for two: \n2\n"


def test_the_deadline_stands_still_at_a_prompt(street: Street, kind: str) -> None:
    house, _, going = begin(street, kind, "read -s -p 'PIN: ' a; echo done", timeout_s=3.0)
    house.watch.wait(e.QuestionAsked)
    with pytest.raises(TimeoutError):
        going.future.result(3.5)
    assert house.rt.answer("r/0.0", "1234")
    (result,) = going.result()
    assert endings([result]) == [OK]
    assert result.ran_s < 3.0


def test_BH03_a_stop_at_a_prompt_ends_the_command(street: Street, kind: str) -> None:
    house, run, going = begin(street, kind, "read -s -p 'Password: ' a; echo never")
    house.watch.wait(e.QuestionAsked)
    (question,) = house.rt.questions()
    run.cancel()
    assert not question.answer("late")
    (result,) = going.result(5.0)
    assert (str(result.outcome), result.alive) == ("cancelled", False)
    assert result.output["output"] == "Password: "


def test_a_command_that_goes_on_by_itself_withdraws_its_prompt(street: Street, kind: str) -> None:
    house, _, going = begin(street, kind, "read -s -t 1 -p 'Password: ' a; echo; echo nobody")
    house.watch.wait(e.QuestionAsked)
    house.watch.wait(e.QuestionWithdrawn)
    (result,) = going.result()
    assert result.value["output"] == "Password: \nnobody\n"
    assert house.rt.questions() == []


def test_what_only_works_for_a_while_asks_nobody(street: Street, kind: str) -> None:
    script = "printf 'Password file written; building... '; sleep 1; echo done"
    house, _, going = begin(street, kind, script)
    (result,) = going.result()
    assert result.value["output"] == "Password file written; building... done\n"
    assert not house.watch.told(e.QuestionAsked)


@pytest.mark.parametrize("other", [{"stdin": "x"}, {"detach": True}])
def test_a_terminal_takes_no_other_input(street: Street, kind: str, other: Any) -> None:
    house = street.open(kind, [shell])
    (result,) = house.execute(call("shell", command="true", pty=True, **other))
    assert "pty cannot be given together" in result.text
    until(lambda: not house.rt.calls())
