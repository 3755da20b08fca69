"""Push notifications over real sockets: in order, signed, retried, off the event path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from a2a.types import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from endstop.a2a.configs import CONFIGS_MAX, OPEN, Configs, Entry
from endstop.a2a.push import Delivery, Pusher
from endstop.a2a.signing import SIGNATURE, TIMESTAMP, sign, verify
from endstop.a2a.tail import Change, Tail
from endstop.errors import JournalError
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Journal
from endstop.store.shelf import MemoryShelf
from endstop.store.sqlite import SqliteJournal
from tests.a2a.webhook import WAIT_S, Got, Story, Webhook, answer, webhook

QUICK = Delivery(answer_s=5.0, first_s=0.01, most_s=0.05, attempts=4)

Scenario = Callable[..., Coroutine[Any, Any, None]]


def loop_test(scenario: Scenario) -> Callable[..., None]:
    @wraps(scenario)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(scenario(*arguments, **named), 3 * WAIT_S))

    return run


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    made: Journal = (
        MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db")
    )
    yield made
    made.close()


@asynccontextmanager
async def pushing(journal: Journal, **terms: Any) -> AsyncIterator[Pusher]:
    terms = {"allow_private": True, "delivery": QUICK, "look_s": 0.02, "linger_s": 0.05} | terms
    pusher = Pusher(journal, **terms)
    await pusher.start()
    try:
        yield pusher
    finally:
        await pusher.aclose()


def config(url: str, task_id: str = "t1", **fields: Any) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(task_id=task_id, url=url, **fields)


@loop_test
async def test_every_change_is_delivered_in_order_and_the_ending_last(journal: Journal) -> None:
    story = Story(journal)
    async with webhook() as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url))
        await hook.until(lambda: hook.shown == ["task SUBMITTED"])
        for step in (
            lambda: story.works("one"),
            lambda: story.says("user"),
            lambda: story.adds("a"),
            lambda: story.works("two"),
            lambda: story.adds("b"),
        ):
            step()
            pusher.tell("t1")
        await hook.until(lambda: len(hook.taken) == 5)
        story.ends()
        pusher.tell("t1")
        await hook.until(lambda: len(hook.taken) == 6)
        assert hook.shown == [
            "task SUBMITTED",
            "WORKING",
            "artifact a",
            "WORKING",
            "artifact b",
            "COMPLETED",
        ]
        texts = [
            got.body["statusUpdate"]["status"]["message"]["parts"][0]["text"]
            for got in hook.taken
            if got.shown == "WORKING"
        ]
        assert texts == ["one", "two"]
        await at_rest(pusher)
        assert pusher.statistics().known == 0, "a task that is over costs nothing"
        assert pusher.statistics().delivered == 6
        assert await pusher.get("alice", "t1"), "its config can still be read"


async def at_rest(pusher: Pusher) -> None:
    async with asyncio.timeout(WAIT_S):
        while pusher.statistics().working:
            await asyncio.sleep(0.01)


@loop_test
async def test_a_config_that_is_set_late_gets_what_follows(journal: Journal) -> None:
    story = Story(journal)
    story.works("before")
    async with webhook() as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url), after_seq=story.seq)
        story.adds("a")
        story.ends()
        pusher.tell("t1")
        await hook.until(lambda: len(hook.taken) == 2)
        assert hook.shown == ["artifact a", "COMPLETED"]
        # Set on a task that is over: nothing is owed, and it can be read.
        await pusher.set("alice", config(hook.url, id="late"), after_seq=story.seq)
        await at_rest(pusher)
        assert len(hook.taken) == 2
        assert {one.id for one in await pusher.list("alice", "t1")} >= {"late"}


@loop_test
async def test_what_is_posted_proves_its_sender(journal: Journal) -> None:
    story = Story(journal)
    async with webhook() as hook, pushing(journal, secret="the server's") as pusher:
        await pusher.set("a", config(hook.url, id="token", token="s3cret"))
        bearer = AuthenticationInfo(scheme="Bearer", credentials="cr3d")
        await pusher.set("a", config(hook.url, id="bearer", authentication=bearer))
        await pusher.set("a", config(hook.url, id="plain"))
        story.ends()
        pusher.tell("t1")
        await hook.until(lambda: len(hook.taken) == 6)
        by_config: dict[str, list[Got]] = {}
        for got in hook.taken:
            name = got.headers["x-endstop-delivery"].split("/")[1]
            by_config.setdefault(name, []).append(got)
        secrets = {"token": "s3cret", "bearer": "cr3d", "plain": "the server's"}
        for name, secret in secrets.items():
            first, last = by_config[name]
            for got in (first, last):
                assert got.headers["content-type"] == "application/a2a+json"
                assert verify(got.headers, got.raw, secret, now_s=time.time())
                assert not verify(got.headers, got.raw + b" ", secret, now_s=time.time())
                assert not verify(got.headers, got.raw, "other", now_s=time.time())
                assert not verify(got.headers, got.raw, secret, now_s=time.time() + 301)
        assert by_config["token"][0].headers["x-a2a-notification-token"] == "s3cret"
        assert by_config["bearer"][0].headers["authorization"] == "Bearer cr3d"
        assert "authorization" not in by_config["token"][0].headers
        assert (
            not {"x-a2a-notification-token", "authorization"} & by_config["plain"][0].headers.keys()
        )


def test_a_signature_is_of_the_body_and_of_its_time() -> None:
    headers = sign(b"{}", "s3cret", 1_000)
    assert verify(headers, b"{}", "s3cret", now_s=1_001.5)
    assert verify(headers, b"{}", "s3cret", now_s=1_001.5, max_age_s=2)
    assert not verify(headers, b"{}", "s3cret", now_s=1_001.5, max_age_s=1)
    assert not verify(headers, b"{ }", "s3cret", now_s=1_000)
    assert not verify(headers, b"{}", "S3cret", now_s=1_000)
    assert not verify(headers, b"{}", "", now_s=1_000)
    assert not verify(headers | {TIMESTAMP: "1001"}, b"{}", "s3cret", now_s=1_001)
    for odd in ("", "x", "-1", "1e3", "\u0661\u0662", "9" * 400):
        assert not verify(headers | {TIMESTAMP: odd}, b"{}", "s3cret", now_s=1_000)
    for odd in ("", "sha256=", "sha1=" + headers[SIGNATURE][7:], headers[SIGNATURE][7:], "\ud800"):
        assert not verify(headers | {SIGNATURE: odd}, b"{}", "s3cret", now_s=1_000)
    assert not verify({}, b"{}", "s3cret", now_s=1_000)


@loop_test
async def test_one_that_fails_is_tried_again_and_nothing_overtakes(journal: Journal) -> None:
    failures = iter([500, 503, 429])

    async def fails(hook: Webhook, got: Got) -> bytes:
        if got.shown == "artifact a" and (status := next(failures, None)):
            return answer(status, "Retry-After: 0")
        return answer(204)

    story = Story(journal)
    story.adds("a")
    story.ends()
    async with webhook(fails) as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url))
        await hook.until(lambda: len(hook.taken) == 3)
        tries = [got.headers["x-endstop-delivery"] for got in hook.got]
        assert hook.shown == ["task SUBMITTED", "artifact a", "COMPLETED"]
        assert [got.shown for got in hook.got].count("artifact a") == 4
        assert len(set(tries)) == 3, "every attempt at one change has the same name"
        assert pusher.statistics().failed == 3
        assert hook.connections == 1, "a connection is used again"


@loop_test
async def test_a_config_that_only_fails_is_disabled_until_it_is_set_again(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    down = True

    async def flaky(hook: Webhook, got: Got) -> bytes:
        return answer(500 if down else 200)

    story = Story(journal)
    async with webhook(flaky) as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url + "?key=hidden", id="c", token="hidden"))
        await at_rest(pusher)
        assert len(hook.got) == QUICK.attempts
        assert pusher.statistics().disabled == 1
        assert "disabled after 4 failed attempts in a row" in caplog.text
        assert "answered 500" in caplog.text
        assert "hidden" not in caplog.text, "neither a URL's path nor a secret is logged"
        story.ends()
        pusher.tell("t1")
        await at_rest(pusher)
        assert len(hook.got) == QUICK.attempts
        down = False
        assert await pusher.get("alice", "t1", "c")
        await pusher.set("alice", config(hook.url, id="c"))
        await hook.until(lambda: len(hook.taken) == 2)
        assert hook.shown == ["task SUBMITTED", "COMPLETED"], "nothing was lost meanwhile"


@loop_test
async def test_one_that_is_gone_is_not_asked_again(journal: Journal) -> None:
    async def gone(hook: Webhook, got: Got) -> bytes:
        return answer(410)

    Story(journal).ends()
    async with webhook(gone) as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url))
        await at_rest(pusher)
        assert len(hook.got) == 1
        assert pusher.statistics().disabled == 1


@loop_test
async def test_a_webhook_that_never_answers_delays_nobody_else(journal: Journal) -> None:
    async def silent(hook: Webhook, got: Got) -> bytes:
        await asyncio.sleep(WAIT_S * 10)
        return answer(200)

    story = Story(journal)
    terms = Delivery(answer_s=0.5, first_s=0.01, most_s=0.01, attempts=2)
    async with (
        webhook(silent) as wedged,
        webhook() as hook,
        pushing(journal, delivery=terms) as pusher,
    ):
        for number in range(8):
            await pusher.set("alice", config(wedged.url, id=f"w{number}"))
        await wedged.until(lambda: len(wedged.got) == 8)
        began = time.monotonic()
        await pusher.set("alice", config(hook.url, id="ok"))
        for number in range(10):
            story.adds(f"a{number}")
            pusher.tell("t1")
        assert time.monotonic() - began < WAIT_S / 4, "telling waits for nobody"
        story.ends()
        pusher.tell("t1")
        await hook.until(lambda: hook.shown[-1:] == ["COMPLETED"])
        assert time.monotonic() - began < WAIT_S / 2
        assert len(hook.taken) == 12
        await at_rest(pusher)
        assert pusher.statistics().disabled == 8


@loop_test
async def test_an_answer_without_an_end_is_cut_off(journal: Journal) -> None:
    async def endless(hook: Webhook, got: Got) -> bytes:
        return answer(200, body=b"x" * 10_000_000)

    Story(journal).ends()
    async with webhook(endless) as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url))
        await at_rest(pusher)
        assert hook.shown == ["task SUBMITTED", "COMPLETED"]


@loop_test
async def test_a_redirect_is_not_followed(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    async with webhook() as inner:

        async def redirects(hook: Webhook, got: Got) -> bytes:
            return answer(307, f"Location: {inner.url}")

        Story(journal).ends()
        async with webhook(redirects) as hook, pushing(journal) as pusher:
            await pusher.set("alice", config(hook.url))
            await at_rest(pusher)
            assert len(hook.got) == QUICK.attempts
            assert inner.got == []
            assert "redirects are not followed" in caplog.text


@loop_test
async def test_a_change_that_is_too_large_is_told_without_its_contents(journal: Journal) -> None:
    story = Story(journal)
    story.adds("big", "x" * 5_000)
    story.works("y" * 5_000)
    story.ends()
    async with webhook() as hook, pushing(journal, body_bytes=2_000) as pusher:
        await pusher.set("alice", config(hook.url))
        await hook.until(lambda: len(hook.taken) == 4)
        assert hook.shown == ["task SUBMITTED", "artifact big", "WORKING", "COMPLETED"]
        big, status = hook.taken[1].body["artifactUpdate"], hook.taken[2].body["statusUpdate"]
        assert all(len(got.raw) < 2_000 for got in hook.taken)
        assert "parts" not in big["artifact"]
        assert "too large for a push notification" in big["metadata"]["endstop/leftOut"]
        assert "too large for a push notification" in status["metadata"]["endstop/leftOut"]
        assert pusher.statistics().shortened == 2


@loop_test
async def test_configs_belong_to_their_owner(journal: Journal) -> None:
    Story(journal)
    async with webhook() as hook, pushing(journal) as pusher:
        first = await pusher.set("alice", config(hook.url + "1", token="t"))
        second = await pusher.set("alice", config(hook.url + "2", id="mine"))
        again = await pusher.set("alice", config(hook.url + "1", token="u"))
        assert first.id
        assert again.id == first.id, "the same webhook is told once"
        assert second.id == "mine"
        assert await pusher.list("alice", "t1") == [again, second]
        assert await pusher.get("alice", "t1", "mine") == second
        assert await pusher.get("alice", "t1") == again
        assert await pusher.get("alice", "t1", "other") is None
        assert await pusher.get("alice", "t2", "mine") is None
        assert await pusher.get("bob", "t1", "mine") is None
        assert await pusher.list("bob", "t1") == []
        assert not await pusher.delete("bob", "t1", "mine")
        with pytest.raises(TaskNotFoundError):
            await pusher.set("bob", config(hook.url, id="mine"))
        assert not await pusher.delete("alice", "t1", ""), "no id is nobody's"
        assert await pusher.delete("alice", "t1", "mine")
        assert not await pusher.delete("alice", "t1", "mine")
        assert await pusher.list("alice", "t1") == [again]


@loop_test
async def test_odd_ids_and_secrets_are_refused_or_not_found(journal: Journal) -> None:
    Story(journal)
    async with pushing(journal) as pusher:
        url = "http://127.0.0.1:9/"
        for odd in (
            config(url, id="x" * 200),
            config(url, id="a\nb"),
            config(url, task_id=""),
            config(url, task_id="a/b"),
            config(url, token="a\r\nX-Evil: 1"),
            config(url, token="é"),
            config(url, token="x" * 5_000),
            config(url, authentication=AuthenticationInfo(scheme="B", credentials="a\nb")),
            config(""),
        ):
            with pytest.raises(InvalidParamsError) as refused:
                await pusher.set("alice", odd)
            assert refused.value.message
        for task_id, config_id in (("", "x"), ("a/b", "x"), ("t1", "x" * 600), ("\0", "x")):
            assert await pusher.get("alice", task_id, config_id) is None
            assert await pusher.list("alice", task_id) == []
            assert not await pusher.delete("alice", task_id, config_id)
        for number in range(CONFIGS_MAX):
            await pusher.set("alice", config(url, id=f"c{number}"))
        with pytest.raises(InvalidParamsError, match="delete one first"):
            await pusher.set("alice", config(url, id="one more"))


@loop_test
async def test_a_deleted_config_is_told_nothing_more(journal: Journal) -> None:
    async def fails(hook: Webhook, got: Got) -> bytes:
        return answer(500)

    Story(journal)
    slow = Delivery(answer_s=5.0, first_s=0.2, most_s=0.2, attempts=100)
    async with webhook(fails) as hook, pushing(journal, delivery=slow) as pusher:
        await pusher.set("alice", config(hook.url, id="c"))
        await hook.until(lambda: len(hook.got) == 1)
        assert await pusher.delete("alice", "t1", "c")
        await at_rest(pusher)
        assert len(hook.got) <= 2, "the one that was under way, at most"
        assert pusher.statistics().known == 0


@loop_test
async def test_what_was_undelivered_is_delivered_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    down = True

    async def flaky(hook: Webhook, got: Got) -> bytes:
        return answer(500 if down and got.shown != "task SUBMITTED" else 200)

    patient = Delivery(answer_s=5.0, first_s=5.0, most_s=30.0, attempts=100)
    async with webhook(flaky) as hook:
        first = SqliteJournal(path)
        story = Story(first)
        async with pushing(first, delivery=patient) as pusher:
            await pusher.set("alice", config(hook.url, token="kept"))
            story.adds("a")
            story.ends()
            pusher.tell("t1")
            await hook.until(lambda: len(hook.got) == 2)
        first.close()
        down = False
        second = SqliteJournal(path)
        async with pushing(second) as pusher:
            await hook.until(lambda: len(hook.taken) == 3)
            assert hook.shown == ["task SUBMITTED", "artifact a", "COMPLETED"]
            assert hook.taken[-1].headers["x-a2a-notification-token"] == "kept"
            await at_rest(pusher)
        second.close()


@loop_test
async def test_of_two_servers_on_one_journal_one_delivers(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with webhook() as hook:
        one, two = SqliteJournal(path), SqliteJournal(path)
        story = Story(one)
        async with pushing(one) as first, pushing(two) as second:
            # Set at the one that does not drive the task; seen and changed at both.
            made = await second.set("alice", config(hook.url, token="t"))
            assert await first.get("alice", "t1", made.id) == made
            await hook.until(lambda: len(hook.taken) == 1)
            async with asyncio.timeout(WAIT_S):
                while not first.statistics().known:
                    await asyncio.sleep(0.01)
            for number in range(30):
                story.adds(f"a{number}")
                first.tell("t1")
                second.tell("t1")
            story.ends()
            first.tell("t1")
            await hook.until(lambda: hook.shown[-1] == "COMPLETED")
            await at_rest(first)
            await at_rest(second)
            wanted = ["task SUBMITTED", *(f"artifact a{n}" for n in range(30)), "COMPLETED"]
            assert hook.shown == wanted, "in order, and nothing twice while both live"
            total = first.statistics().delivered + second.statistics().delivered
            assert total == len(wanted)
        one.close()
        two.close()


@loop_test
async def test_a_claim_of_a_server_that_died_is_taken_over(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "runs.db")
    shelf = journal.shelf()
    Story(journal).ends()
    async with webhook() as hook:
        async with pushing(journal, look_s=60.0) as pusher:
            await at_rest(pusher)
            made = await pusher._configs.set("alice", config(hook.url), 0)
        key = made[0]
        record = shelf.get(OPEN, key)
        assert record is not None
        # As a process of this machine that is not there any more would have left it.
        host, boot, _, started, number = str(pusher._terms.me).split(":")
        dead = f"{host}:{boot}:999999999:{started}:{number}"
        shelf.put(OPEN, key, record | {"claim": dead, "until_s": time.time() + 3_600})
        async with pushing(journal):
            await hook.until(lambda: len(hook.taken) == 2)
        live = f"elsewhere:{boot}:1:{started}:{number}"
        shelf.put(OPEN, key, record | {"claim": live, "until_s": time.time() + 0.4})
        async with pushing(journal):
            await asyncio.sleep(0.1)
            assert len(hook.taken) == 2, "one that may live keeps it for its time"
            await hook.until(lambda: len(hook.taken) == 4)
    journal.close()


@loop_test
async def test_what_another_server_deleted_is_told_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    one, two = SqliteJournal(path), SqliteJournal(path)
    story = Story(one)
    async with webhook() as hook, pushing(one) as first, pushing(two) as second:
        await first.set("alice", config(hook.url, id="c"))
        await hook.until(lambda: len(hook.taken) == 1)
        await at_rest(first)
        assert await second.delete("alice", "t1", "c")
        async with asyncio.timeout(WAIT_S):
            while first.statistics().known or second.statistics().known:
                await asyncio.sleep(0.01)
        story.ends()
        first.tell("t1")
        await at_rest(first)
        assert len(hook.taken) == 1
    one.close()
    two.close()


@loop_test
async def test_the_configs_are_listed_when_others_changed_them_and_not_for_ones_own(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0
    listing = Configs.open

    async def counting(configs: Configs) -> dict[str, Entry]:
        nonlocal listed
        listed += 1
        return await listing(configs)

    monkeypatch.setattr(Configs, "open", counting)
    Story(journal)
    async with webhook() as hook, pushing(journal, look_s=0.01) as pusher:
        async with asyncio.timeout(WAIT_S):
            while not listed:
                await asyncio.sleep(0.01)
        for number in range(5):
            await pusher.set("alice", config(hook.url, id=f"c{number}"))
            await asyncio.sleep(0.03)
        await hook.until(lambda: len(hook.taken) == 5)
        assert listed == 1


@loop_test
async def test_a_sweep_finds_what_nobody_told_of(journal: Journal) -> None:
    story = Story(journal)
    async with webhook() as hook, pushing(journal, sweep_s=0.1) as pusher:
        await pusher.set("alice", config(hook.url))
        await hook.until(lambda: len(hook.taken) == 1)
        await at_rest(pusher)
        story.ends()
        await hook.until(lambda: hook.shown == ["task SUBMITTED", "COMPLETED"])


@loop_test
async def test_deliveries_that_broke_off_go_on_with_the_next_sweep(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = 3
    page = Tail.page

    def breaks(tail: Tail, after: int) -> list[Change]:
        nonlocal broken
        found = page(tail, after)
        if found and broken:
            broken -= 1
            raise (JournalError("the file is on fire") if broken % 2 else ValueError("odd"))
        return found

    Story(journal).ends()
    monkeypatch.setattr(Tail, "page", breaks)
    async with webhook() as hook, pushing(journal, sweep_s=0.05) as pusher:
        await pusher.set("alice", config(hook.url))
        await hook.until(lambda: hook.shown == ["task SUBMITTED", "COMPLETED"])
        assert broken == 0
        await at_rest(pusher)
    assert "the file is on fire" in caplog.text
    assert "deliveries stopped until the next sweep" in caplog.text


@loop_test
async def test_a_sweep_forgets_a_config_whose_task_the_journal_has_forgotten(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    Story(journal)
    monkeypatch.setattr("endstop.a2a.push.KEEP_S", 0.0)
    async with webhook() as hook, pushing(journal, sweep_s=0.05) as pusher:
        await pusher.set("alice", config(hook.url, task_id="nowhere", id="a"))
        await pusher.set("alice", config(hook.url, id="b"))
        async with asyncio.timeout(WAIT_S):
            while await pusher.list("alice", "nowhere"):
                await asyncio.sleep(0.02)
        assert await pusher.list("alice", "t1")


@loop_test
async def test_webhooks_of_one_owner_do_not_take_every_turn(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endstop.a2a.outbox.SENDING_OF_ONE_MAX", 2)

    async def silent(hook: Webhook, got: Got) -> bytes:
        await asyncio.sleep(WAIT_S * 10)
        return answer(200)

    Story(journal)
    async with webhook(silent) as wedged, webhook() as hook, pushing(journal) as pusher:
        for number in range(4):
            await pusher.set("mallory", config(wedged.url, id=f"w{number}"))
        await wedged.until(lambda: len(wedged.got) == 2)
        await pusher.set("alice", config(hook.url, id="ok"))
        await hook.until(lambda: len(hook.taken) == 1)
        assert len(wedged.got) == 2


@loop_test
async def test_a_task_with_many_changes_is_delivered_whole(journal: Journal) -> None:
    story = Story(journal)
    for number in range(250):
        story.adds(f"a{number}")
    story.ends()
    async with webhook() as hook, pushing(journal) as pusher:
        await pusher.set("alice", config(hook.url))
        await hook.until(lambda: hook.shown[-1:] == ["COMPLETED"])
        assert hook.shown == [
            "task SUBMITTED",
            *(f"artifact a{number}" for number in range(250)),
            "COMPLETED",
        ]


@loop_test
async def test_more_tasks_than_are_remembered_are_delivered_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is over is kept for readers within a bound, and is in nobody's way beyond it."""
    made = MemoryJournal()
    shelf = MemoryShelf(records_max=3)
    monkeypatch.setattr(made, "shelf", lambda: shelf)
    async with webhook() as hook, pushing(made) as pusher:
        for number in range(8):
            story = Story(made, f"t{number}")
            await pusher.set("alice", config(hook.url, f"t{number}"))
            story.ends()
            pusher.tell(f"t{number}")
            await hook.until(lambda number=number: hook.shown.count("COMPLETED") == number + 1)
            await at_rest(pusher)
        assert pusher.statistics().known == 0
        assert await pusher.get("alice", "t0")
        assert await pusher.get("alice", "t7") is None
