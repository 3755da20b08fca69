"""The wording of every ending: law 5 honest-effect, one row per way a call can end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.core.events import CallSettled
from endstop.core.terms import CANCEL_REASONS, Effect, Flag, Outcome, Reason, StoppedBy
from endstop.tools import observation
from endstop.tools.observation import CANCELLED_UNSTARTED, observe, wording

NEVER = ["not started", "not executed", "not run", "never ran", "nothing was"]
"""What may not be said of a body that began."""

TIMED = ["timed out", "timeout"]
UNDONE = ["undone", "rolled back", "reverted", "no changes were made"]

UNSTARTED_REASONS = [*observation.WHY_NOT_STARTED, Reason.CANCELLED_BY_USER]


def settled(
    outcome: Outcome,
    reason: Reason,
    effect: Effect = Effect.NONE,
    stopped_by: StoppedBy | None = None,
    **more: object,
) -> CallSettled:
    return CallSettled(
        run="r",
        call="c",
        outcome=outcome,
        reason=reason,
        effect=effect,
        stopped_by=stopped_by,
        alive=stopped_by is StoppedBy.ABANDONED,
        **more,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Row:
    ending: CallSettled
    began: bool | None
    """None where the ending itself does not say."""
    says: tuple[str, ...]


def unstarted_rows() -> list[Row]:
    rows = []
    for reason in UNSTARTED_REASONS:
        outcome = Outcome.CANCELLED if reason in CANCEL_REASONS else Outcome.REJECTED
        words = observation.WHY_NOT_STARTED.get(reason, "cancelled by interrupt")
        rows.append(Row(settled(outcome, reason), began=False, says=(words,)))
    return rows


EFFECT_WORDS = {
    Effect.NONE: "had no effect",
    Effect.DONE: "effect has happened",
    Effect.UNKNOWN: "check before repeating",
}
RUNG_WORDS = {
    StoppedBy.ASKED: "stopped when it was asked",
    StoppedBy.KILLED: "was killed",
    StoppedBy.ABANDONED: "may still be running",
}


def stopped_rows() -> list[Row]:
    causes = [
        *(
            (Outcome.CANCELLED, r, observation.WHY_CANCELLED[r].strip())
            for r in sorted(CANCEL_REASONS)
        ),
        (Outcome.TIMED_OUT, Reason.DEADLINE, "timed out after 3 s"),
        (Outcome.TIMED_OUT, Reason.IDLE, "no sign of progress"),
        (Outcome.TIMED_OUT, Reason.BATCH_DEADLINE, "with its batch"),
        (Outcome.LOST, Reason.DRIVER_LOST, "was gone"),
    ]
    return [
        Row(
            settled(outcome, reason, effect, rung, ran_s=3.0),
            began=True,
            says=(words, RUNG_WORDS[rung], EFFECT_WORDS[effect]),
        )
        for (outcome, reason, words), effect, rung in itertools.product(causes, Effect, StoppedBy)
    ]


def own_end_rows() -> list[Row]:
    rows = [
        Row(settled(Outcome.SUCCEEDED, Reason.OK, Effect.DONE, value="fine"), True, ("fine",)),
        Row(
            settled(
                Outcome.FAILED, Reason.RESULT_UNSERIALISABLE, Effect.DONE, error="result.x: cyclic"
            ),
            True,
            ("ran to its end", "result.x: cyclic", "effect has happened"),
        ),
    ]
    for effect in Effect:
        rows += [
            Row(
                settled(Outcome.FAILED, Reason.TOOL_ERROR, effect, error="ValueError: bad"),
                True,
                ("failed: ValueError: bad", EFFECT_WORDS[effect]),
            ),
            Row(
                settled(Outcome.LOST, Reason.WORKER_LOST, effect),
                True,
                ("its worker ended unexpectedly", EFFECT_WORDS[effect]),
            ),
            Row(
                settled(Outcome.LOST, Reason.DRIVER_LOST, effect),
                None,
                ("was gone", EFFECT_WORDS[effect]),
            ),
        ]
    return rows


ROWS = [*unstarted_rows(), *stopped_rows(), *own_end_rows()]


def label(row: Row) -> str:
    ending = row.ending
    return "-".join([ending.outcome, ending.reason, ending.effect, str(ending.stopped_by)])


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_law_5_honest_effect_words_say_what_the_ending_says(row: Row) -> None:
    text = wording(row.ending)
    low = text.lower()
    for words in row.says:
        assert words.lower() in low, text
    assert not [word for word in UNDONE if word in low], text
    if row.began is not False:
        assert not [word for word in NEVER if word in low], text
        assert "cancelled by interrupt." not in low or "was started" in low, text
    if row.began is not True or row.ending.outcome is not Outcome.TIMED_OUT:
        assert not [word for word in TIMED if word in low], text
    if row.began is not False:
        no_effect = "no effect" in low
        ended_itself = row.ending.outcome is Outcome.SUCCEEDED
        assert ended_itself or no_effect == (row.ending.effect is Effect.NONE), text


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_only_a_success_is_no_error(row: Row) -> None:
    seen = observe(row.ending, call="c", model_id="m", tool="t")
    assert seen.is_error == (row.ending.outcome is not Outcome.SUCCEEDED)
    assert (seen.outcome, seen.reason) == (row.ending.outcome, row.ending.reason)
    assert seen.effect is row.ending.effect


def test_the_rows_cover_every_reason() -> None:
    covered = {row.ending.reason for row in ROWS} | {Reason.ANSWERED_BY_HUMAN}
    # Only a run has a declared ending: no model reads of it.
    assert covered == set(Reason) - {Reason.DECLARED}


def test_a_call_cancelled_before_it_started_says_exactly_this() -> None:
    ending = settled(Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    assert wording(ending) == "Tool call cancelled by interrupt." == CANCELLED_UNSTARTED


def test_endings_that_differ_in_consequence_differ_in_words() -> None:
    texts = [wording(row.ending) for row in unstarted_rows()]
    assert len(set(texts)) == len(texts)
    started = settled(Outcome.CANCELLED, Reason.CANCELLED_BY_USER, Effect.UNKNOWN, StoppedBy.ASKED)
    assert wording(started) not in texts


def test_a_refusal_carries_its_message_once() -> None:
    ending = settled(Outcome.REJECTED, Reason.INVALID_ARGUMENTS, error="`n`: required, but missing")
    assert wording(ending) == "Tool call not started.\n`n`: required, but missing"
    ending = settled(Outcome.REJECTED, Reason.DENIED_BY_POLICY, error="Not on a Friday.")
    assert wording(ending) == "Tool call not started: a policy denied it.\nNot on a Friday."


@pytest.mark.parametrize(
    ("value", "text"),
    [("as it is\n", "as it is\n"), ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'), (None, "null")],
)
def test_a_success_is_its_result(value: object, text: str) -> None:
    ending = settled(Outcome.SUCCEEDED, Reason.OK, Effect.DONE, value=value)
    seen = observe(ending, call="c", model_id="m", tool="t")
    assert (seen.text, seen.is_error, seen.call_id, seen.model_id) == (text, False, "c", "m")


@pytest.mark.parametrize("flag", list(Flag))
def test_a_success_after_a_stop_says_so_beside_its_result(flag: Flag) -> None:
    ending = settled(Outcome.SUCCEEDED, Reason.OK, Effect.DONE, value="done", flags=(flag,))
    text = wording(ending)
    assert text.startswith("done\n\nNote: ")
    assert ("a stop was requested" in text) == (flag is Flag.CANCEL_REQUESTED)
    assert ("past its time limit" in text) == (flag is Flag.OVERRAN)


def test_an_answer_in_place_of_the_tool_is_no_error() -> None:
    ending = settled(Outcome.SUCCEEDED, Reason.ANSWERED_BY_HUMAN, value="Use the other file.")
    seen = observe(ending, call="c", model_id="m", tool="t")
    assert not seen.is_error
    assert "not started" in seen.text
    assert seen.text.endswith("\nUse the other file.")


def test_output_survivors_and_a_failed_cleanup_are_shown() -> None:
    ending = settled(
        Outcome.CANCELLED,
        Reason.CANCELLED_BY_USER,
        Effect.UNKNOWN,
        StoppedBy.KILLED,
        output={"stdout": "line 1\n", "stderr": ""},
        survivors=("daemon (pid 7)",),
        error="OSError: disk full",
    )
    text = wording(ending)
    assert "Output so far:\n[stdout]\nline 1" in text
    assert "stderr" not in text
    assert "could not be stopped: daemon (pid 7)." in text
    assert "While stopping it said: OSError: disk full" in text


@pytest.mark.parametrize("error", ["CancelledError", "Stopped: call c was asked to stop"])
def test_what_the_stop_itself_raised_is_not_reported_as_news(error: str) -> None:
    ending = settled(
        Outcome.CANCELLED, Reason.SHUTDOWN, Effect.UNKNOWN, StoppedBy.ASKED, error=error
    )
    assert error not in wording(ending)


def test_an_abandoned_body_may_yet_have_its_effect() -> None:
    text = wording(settled(Outcome.TIMED_OUT, Reason.DEADLINE, Effect.UNKNOWN, StoppedBy.ABANDONED))
    assert "may yet have one" in text


def test_long_parts_are_bounded() -> None:
    ending = settled(
        Outcome.TIMED_OUT,
        Reason.DEADLINE,
        Effect.UNKNOWN,
        StoppedBy.KILLED,
        error="e" * 1_000_000,
        output="o" * 1_000_000,
        survivors=tuple(f"p{n}" + "x" * 1_000 for n in range(1_000)),
    )
    text = wording(ending)
    assert len(text) < 20_000
    assert "and 990 more" in text


@given(
    outcome=st.sampled_from(Outcome),
    reason=st.sampled_from(Reason),
    effect=st.sampled_from(Effect),
    rung=st.none() | st.sampled_from(StoppedBy),
    ran_s=st.floats(min_value=0, max_value=1e9),
    error=st.none() | st.text(),
)
def test_every_ending_has_words_even_one_that_no_rule_makes(
    outcome: Outcome,
    reason: Reason,
    effect: Effect,
    rung: StoppedBy | None,
    ran_s: float,
    error: str | None,
) -> None:
    ending = settled(outcome, reason, effect, rung, ran_s=ran_s, error=error, value="v")
    text = wording(ending)
    assert text
    text.encode()


def test_bh21_a_stopped_call_is_not_told_as_a_refused_one() -> None:
    denied = wording(settled(Outcome.REJECTED, Reason.DENIED_BY_HUMAN))
    before = wording(settled(Outcome.CANCELLED, Reason.CANCELLED_BY_USER))
    during = wording(
        settled(Outcome.CANCELLED, Reason.CANCELLED_BY_USER, Effect.UNKNOWN, StoppedBy.ASKED)
    )
    assert len({denied, before, during}) == 3
    assert "was started" in during
    assert "Whether it had an effect is unknown" in during
    assert "denied" not in before + during


def test_bh24_a_call_that_never_began_is_not_blamed_for_the_time() -> None:
    wedged = wording(
        settled(Outcome.TIMED_OUT, Reason.BATCH_DEADLINE, Effect.UNKNOWN, StoppedBy.ABANDONED)
    )
    waiting = wording(settled(Outcome.REJECTED, Reason.BATCH_DEADLINE))
    assert "timed out" in wedged
    assert "timed out" not in waiting
    assert waiting.startswith("Tool call not started: ")


def test_bh37_silence_a_no_and_a_withdrawal_are_three_things() -> None:
    silence = wording(settled(Outcome.REJECTED, Reason.APPROVAL_EXPIRED))
    no = wording(settled(Outcome.REJECTED, Reason.DENIED_BY_HUMAN))
    withdrawn = wording(settled(Outcome.CANCELLED, Reason.CANCELLED_BY_USER))
    assert len({silence, no, withdrawn}) == 3
    assert "denied" not in silence
    assert "nobody answered" in silence
