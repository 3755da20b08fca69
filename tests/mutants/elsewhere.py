"""Planted bugs between machines: remote agents, push notifications, the shelf; see `planted.py`."""

from __future__ import annotations

from tests.mutants.runner import Mutant

LINES = "tests/remote/test_lines.py::"
PUSH = "tests/a2a/test_push.py::"
URLS = ("tests/a2a/test_push_urls.py",)
SHELF = ("tests/store/test_shelf.py",)


def planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


ELSEWHERE: tuple[Mutant, ...] = (
    planted(
        "a cancel is not sent to a remote agent",
        "17 children-settle",
        "agents/remote_following.py",
        "            view.apply_task(await self._wire.cancel(view.task_id, limit_s))\n",
        "            pass\n",
        (LINES + "test_an_agent_that_takes_the_cancel_and_works_on_has_not_stopped",),
    ),
    planted(
        "a stop that is owed to a remote agent waits for its stream",
        "7 every-wait-listens",
        "agents/remote_following.py",
        "            if view.over or owed:\n",
        "            if view.over:\n",
        (
            "tests/remote/test_stopping.py::test_a_stop_that_is_owed_comes_before_the_stream[endstop]",
        ),
    ),
    planted(
        "a cancel that a remote agent took counts as its end",
        "5 honest-effect",
        "agents/remote_following.py",
        "            # Taken: asking again would say nothing new.\n",
        "            view.over or view.end(Status.CANCELLED)\n",
        (LINES + "test_an_agent_that_takes_the_cancel_and_works_on_has_not_stopped",),
    ),
    planted(
        "a task that may have arrived counts as stopped",
        "5 honest-effect",
        "agents/remote_following.py",
        "                if error.kind in _UNKNOWN and self._is_stopped:\n",
        "                if False:\n",
        (LINES + "test_a_stop_while_nobody_knows_whether_the_task_was_taken_proves_nothing",),
    ),
    planted(
        "a task that may have arrived is sent again",
        "10 no-blind-retry",
        "agents/remote_following.py",
        "            if error.kind is not Kind.UNSENT or self._is_stopped or late:\n",
        "            if self._is_stopped or late:\n",
        (LINES + "test_what_may_have_arrived_is_not_sent_again",),
    ),
    planted(
        "a remote agent's question is asked again after its answer",
        "13 one-approval",
        "agents/remote_view.py",
        " and self.shown != self.answered",
        "",
        (LINES + "test_a_question_that_is_shown_once_more_is_not_asked_twice",),
    ),
    planted(
        "another task's answer is taken",
        "2 right-target",
        "agents/remote_wire.py",
        "    if task.id != task_id:\n",
        "    if False:\n",
        (LINES + "test_another_task_than_was_asked_for_is_nonsense",),
    ),
    planted(
        "a delivery that failed counts as taken",
        "15 record-first",
        "a2a/outbox.py",
        "            if problem is None:\n",
        "            if True:\n",
        (PUSH + "test_one_that_fails_is_tried_again_and_nothing_overtakes",),
    ),
    planted(
        "a living server's claim is ignored",
        "3 one-ending",
        "a2a/outbox.py",
        "            elif self._terms.is_taken(entry):\n",
        "            elif False:\n",
        (PUSH + "test_a_claim_of_a_server_that_died_is_taken_over",),
    ),
    planted(
        "a webhook's redirect is followed",
        "2 right-target",
        "a2a/webhooks.py",
        "            follow_redirects=False,\n",
        "            follow_redirects=True,\n",
        (PUSH + "test_a_redirect_is_not_followed",),
    ),
    planted(
        "a webhook's address is not judged when it is used",
        "2 right-target",
        "a2a/webhooks.py",
        "    if not allow_private:\n",
        "    if False:\n",
        URLS,
    ),
    planted(
        "a webhook is looked up a second time",
        "2 right-target",
        "a2a/webhooks.py",
        "            target.at(address),\n",
        "            target.at(target.name),\n",
        URLS,
    ),
    planted(
        "a push config is shown to everybody",
        "2 right-target",
        "a2a/configs.py",
        "        return entry if entry is not None and entry.owner == owner else None\n",
        "        return entry\n",
        (PUSH + "test_configs_belong_to_their_owner",),
    ),
    planted(
        "a signature says nothing of its time",
        "2 right-target",
        "a2a/signing.py",
        'at.encode("ascii") + b"." + body',
        "body",
        (PUSH + "test_a_signature_is_of_the_body_and_of_its_time",),
    ),
    planted(
        "a swap in memory compares nothing",
        "3 one-ending",
        "store/shelf.py",
        "            if self._spaces.get(space, {}).get(key) != before:\n",
        "            if False:\n",
        SHELF,
    ),
    planted(
        "a swap in a file compares outside its transaction",
        "3 one-ending",
        "store/sqlite_shelf.py",
        """            if _text(connection, space, key) != before:
                return False
""",
        "",
        SHELF,
    ),
)
