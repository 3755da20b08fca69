"""The planted bugs in tasks: what a run looks like over A2A, and who may do what to it."""

from __future__ import annotations

from tests.mutants.runner import Mutant

TASK = "tests/a2a/test_task.py::"
CANCEL = "tests/a2a/test_cancel.py::"
STREAMS = "tests/a2a/test_streams.py::"
SAYING = "tests/a2a/test_saying.py::"
LIST = "tests/a2a/test_list.py::"


def _planted(name: str, law: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


TASKS: tuple[Mutant, ...] = (
    _planted(
        "a task that is over takes another status",
        "3 one-ending",
        "a2a/task.py",
        "        if apply is None or self.ended is not None:\n",
        "        if apply is None:\n",
        f"{TASK}test_the_end_absorbs_whatever_follows",
    ),
    _planted(
        "what an executor claims is the task's end before the run has one",
        "3 one-ending",
        "a2a/task.py",
        "        if state in TERMINAL:\n            # Only declared",
        "        if False:\n            # Only declared",
        f"{TASK}test_the_status_is_a_reading_of_the_run",
    ),
    _planted(
        "a cancel is answered before the ending is recorded",
        "6 bounded-stop",
        "a2a/stopping.py",
        "        over = await self.until_over(task, self.grace_s + CANCEL_MARGIN_S)\n",
        "        over = True\n",
        f"{CANCEL}test_a_canceled_task_stays_canceled_whatever_its_executor_does[memory-swallow]",
    ),
    _planted(
        "what is published after the end is shown",
        "3 one-ending",
        "a2a/executor.py",
        "        if self._task.declared or self._last is not None:\n"
        "            self._hall.count_late(self._task)",
        "        if False:\n            self._hall.count_late(self._task)",
        f"{CANCEL}test_what_is_published_after_the_end_is_counted_and_shown_to_nobody",
    ),
    _planted(
        "a body that outlives its call has the last word",
        "3 one-ending",
        "a2a/executor.py",
        "        self._last = note\n",
        "        task.declared, self._last = True, note\n",
        f"{SAYING}test_a_body_that_outlives_its_call_ends_nothing",
    ),
    _planted(
        "a question comes before the words that lead to it",
        "15 record-first",
        "a2a/executor.py",
        "        ctx._tell = port.before(ctx._tell)\n",
        "",
        f"{SAYING}test_what_leads_to_a_question_is_recorded_before_it",
    ),
    _planted(
        "nobody is told that the journal takes nothing more of a task",
        "6 bounded-stop",
        "a2a/keeping.py",
        "                tasks.hall.give_up(task, InternalError(BROKEN))\n",
        "                pass\n",
        f"{SAYING}test_whoever_waits_for_a_task_that_cannot_be_recorded_is_told",
    ),
    _planted(
        "what a body says is kept until its loop is free",
        "18 audience-free",
        "a2a/executor.py",
        "            self._hall.post(self.flush)\n",
        "            pass\n",
        f"{SAYING}test_a_body_that_blocks_its_loop_is_heard_meanwhile",
    ),
    _planted(
        "what a body says last is recorded after its end",
        "3 one-ending",
        "a2a/executor.py",
        "            finally:\n                port.flush()\n",
        "            finally:\n                pass\n",
        f"{SAYING}test_what_is_said_while_it_is_stopped_is_kept",
    ),
    _planted(
        "the last words and the end are two steps",
        "15 record-first",
        "a2a/executor.py",
        "            self._say(note, i.CloseRun(run=task.id, outcome=outcome))\n",
        "            self._say(note)\n            self.flush()\n"
        "            self._say(i.CloseRun(run=task.id, outcome=outcome))\n",
        f"{SAYING}test_what_is_said_in_a_row_takes_few_steps",
    ),
    _planted(
        "a task is there before its message",
        "15 record-first",
        "a2a/tasks.py",
        "                run, opening = self.runtime._prepare_run(labels)\n",
        "                run = self.runtime.run(labels=labels)\n",
        f"{SAYING}test_a_task_is_there_with_its_message_or_not_at_all",
    ),
    _planted(
        "a shutdown is called a cancel that somebody asked for",
        "5 honest-effect",
        "a2a/words.py",
        "        case Outcome.CANCELLED if ended.reason is not Reason.SHUTDOWN:\n",
        "        case Outcome.CANCELLED:\n",
        f"{TASK}test_the_status_is_a_reading_of_the_run",
    ),
    _planted(
        "a subscription leaves an update out",
        "18 audience-free",
        "a2a/live.py",
        "                if stream.key is None:\n                    stream.put(update)\n",
        "                if stream.key is None and view.seq % 13:\n"
        "                    stream.put(update)\n",
        f"{STREAMS}test_readers_that_come_and_go_change_nothing_and_see_the_same",
    ),
    _planted(
        "a reader that is too slow is let go without a word",
        "18 audience-free",
        "a2a/streams.py",
        "                        raise self._error\n",
        "                        return None\n",
        f"{STREAMS}test_a_reader_that_does_not_keep_up_is_told_and_may_come_again",
    ),
    _planted(
        "the tasks of others are shown",
        "2 right-target",
        "a2a/tasks.py",
        "        return view.labels.get(OWNER) == self.owned_by(context, tenant)\n",
        "        return True\n",
        f"{LIST}test_tasks_belong_to_their_owner_and_tenant",
    ),
    _planted(
        "words that are no clear answer are a yes",
        "13 one-approval",
        "a2a/answers.py",
        "    if head in YES and not rest:\n",
        "    if head in YES:\n",
        "tests/a2a/test_answers.py::test_what_is_no_clear_answer_is_no_yes",
    ),
    _planted(
        "a message that was sent twice is worked on twice",
        "10 no-blind-retry",
        "a2a/livetask.py",
        "    return known is not None and is_same(known, message)\n",
        "    return False\n",
        "tests/a2a/test_send.py::test_the_same_message_twice_is_worked_on_once",
    ),
    _planted(
        "what a server that is gone left working stays so",
        "16 survives-restart",
        "a2a/keeping.py",
        "        if view.over or _is_parked(view):\n",
        "        if True:\n",
        "tests/a2a/test_restart.py::test_after_a_kill_nothing_stays_working_and_nothing_runs_twice",
    ),
    _planted(
        "a conversation whose server is gone is not gone on with",
        "16 survives-restart",
        "a2a/tasks.py",
        "                self.native.go_on(task)\n",
        "                pass\n",
        "tests/a2a/test_native.py::test_a_conversation_goes_on_with_the_next_server",
    ),
    _planted(
        "a secret answer is recorded with its task",
        "13 one-approval",
        "a2a/answers.py",
        "questions[answer.question].secret:\n",
        "not questions[answer.question].secret:\n",
        "tests/a2a/test_secrets.py::test_a_secret_answer_is_in_no_record",
    ),
    _planted(
        "a yes to something else is recorded before it is refused",
        "13 one-approval",
        "a2a/answers.py",
        "answer.digest != approvals[answer.call].digest:\n",
        "not answer.digest:\n",
        "tests/a2a/test_answers.py::"
        "test_a_yes_to_something_else_is_refused_and_the_call_goes_on_waiting",
    ),
    _planted(
        "what is said after the last words is recorded before them",
        "3 one-ending",
        "a2a/executor.py",
        "            self._shut = True\n",
        "            pass\n",
        f"{SAYING}test_nothing_that_comes_after_the_last_words_is_recorded_before_them",
    ),
    _planted(
        "a last word that comes too late counts as one in time",
        "3 one-ending",
        "a2a/executor.py",
        "        if self._holds_last(words[:kept]):\n",
        "        if self._holds_last(words):\n",
        f"{SAYING}test_a_body_that_outlives_its_call_ends_nothing",
    ),
    _planted(
        "a client that leaves breaks off what it had begun",
        "18 audience-free",
        "a2a/keeping.py",
        "        await asyncio.wait({taking})\n",
        "        await taking\n",
        "tests/a2a/test_parking.py::"
        "test_a_client_that_leaves_while_its_task_is_taken_up_changes_nothing",
    ),
    _planted(
        "a server goes on telling of a task that was taken from it",
        "3 one-ending",
        "a2a/keeping.py",
        "(run is not None and not run.fenced)",
        "(run is not None)",
        "tests/a2a/test_two_servers.py::"
        "test_a_server_whose_task_was_taken_from_it_says_what_is_recorded[go]",
    ),
    _planted(
        "a secret that comes too late is a message like any other",
        "13 one-approval",
        "a2a/secrecy.py",
        "        if confirmed or doubtful <= self._warned:\n",
        "        if True:\n",
        "tests/a2a/test_late_secrets.py::test_an_answer_to_a_question_that_was_withdrawn[unlock]",
    ),
    _planted(
        "what is told after it was read counts twice",
        "15 record-first",
        "a2a/live.py",
        "            if task.ahead or task.early:\n",
        "            if False:\n",
        "tests/a2a/test_parking.py::test_what_is_told_after_it_was_read_counts_once[memory]",
    ),
)
