"""The outbox of one push config: one change after the other, until the webhook has taken it.

Runs beside everything else, on the server's loop; what waits for the journal waits on a thread.
The cursor on the shelf moves behind what was taken, so that whoever comes after a crash delivers at
least once. Nothing here decides when there is something to deliver: `push.py` does.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from time import time

import httpx2
from a2a.types import StreamResponse

from endstop.a2a.configs import Configs, Entry
from endstop.a2a.envelope import BODY_BYTES, Sealed, envelope, is_terminal
from endstop.a2a.tail import Change, Tail
from endstop.a2a.webhooks import Answer, Courier, Refused, Resolve, look_up, parse_url
from endstop.errors import CallerError, JournalError
from endstop.store.owner import is_alive

CLAIMED_S = 0.25
"""How long to wait at first for another server that delivers the same config."""
LINGER_S = 2.0
"""How long a worker waits for the next change: going on is cheaper than coming back."""
SENDING_MAX = 256
"""Deliveries under way at once; one that waits for its next attempt does not count."""
SENDING_TO_ONE_MAX = 16
"""The same for one webhook host, so that one which never answers takes no more than that."""
SENDING_OF_ONE_MAX = 64
"""The same for the webhooks of one owner, whatever hosts they are on."""
_GONE = 410

log = logging.getLogger("endstop.a2a.push")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How hard deliveries are tried, in seconds.

    An attempt may take `answer_s`. After a failure the next one comes `first_s` later, doubling up
    to `most_s`, or later where the webhook asks for it, within `most_s`; after `attempts` failures
    in a row the config is disabled.
    """

    answer_s: float = 10.0
    first_s: float = 0.5
    most_s: float = 60.0
    attempts: int = 10

    def __post_init__(self) -> None:
        for name in ("answer_s", "first_s", "most_s", "attempts"):
            if not getattr(self, name) > 0:
                raise CallerError(f"Delivery: {name} is {getattr(self, name)}; it is above 0")


class Turns:
    """Bounds how much is sent at once: in all, to one host, and for one owner."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(SENDING_MAX)
        # A name is in here only while something is sent under it, or waits for that.
        self._some: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    async def post(
        self, owner: str, courier: Courier, body: bytes, headers: dict[str, str]
    ) -> Answer:
        """Post in its turn."""
        # Always in this order, and the widest last: nobody holds a wide one and waits for a narrow.
        async with (
            self._turn(f"host {courier.where}", SENDING_TO_ONE_MAX),
            self._turn(f"owner {owner}", SENDING_OF_ONE_MAX),
            self._all,
        ):
            return await courier.post(body, headers)

    @asynccontextmanager
    async def _turn(self, name: str, most: int) -> AsyncIterator[None]:
        turns, users = self._some.setdefault(name, (asyncio.Semaphore(most), []))
        users.append(None)
        try:
            async with turns:
                yield
        finally:
            users.pop()
            if not users:
                del self._some[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the outboxes of one server share; `me` is that server, as an owner."""

    me: str
    delivery: Delivery
    allow_private: bool = False
    secret: str | None = None
    body_bytes: int = BODY_BYTES
    resolve: Resolve = look_up
    linger_s: float = LINGER_S
    turns: Turns = field(default_factory=Turns)
    counts: Counter[str] = field(default_factory=Counter)

    def lease(self) -> float:
        """Until when a claim holds that is made now: longer than an attempt and its pause."""
        return time() + self.delivery.answer_s + self.delivery.most_s + 15.0

    def is_taken(self, entry: Entry) -> bool:
        """Whether another server delivers it, and lives."""
        return (
            entry.claim is not None
            and entry.claim != self.me
            and entry.until_s > time()
            and is_alive(entry.claim)
        )

    def pause_s(self, failures: int, answer: Answer | None) -> float:
        """How long to wait for the next attempt."""
        terms = self.delivery
        pause_s = min(terms.first_s * 2.0 ** min(failures - 1, 30), terms.most_s)
        if answer is not None and answer.retry_after_s is not None:
            pause_s = min(max(pause_s, answer.retry_after_s), terms.most_s)
        # Apart, so that many that failed together do not come back together.
        return pause_s * random.uniform(0.9, 1.1)


class Outbox:
    """The deliveries of one config, while there are some. `more` says that there may be more."""

    def __init__(self, key: str, configs: Configs, tail: Tail, terms: Terms) -> None:
        self._key = key
        self._configs = configs
        self._tail = tail
        self._terms = terms
        # The record as this wrote it last, while the claim on it is ours.
        self._held: Entry | None = None
        self.more = asyncio.Event()

    async def run(self) -> bool:
        """Deliver what there is, then end; returns whether the config is of no more use here.

        Raises JournalError where its record or the task cannot be read.
        """
        pause_s = CLAIMED_S
        while True:
            self.more.clear()
            entry = await self._configs.read(self._key)
            if entry is None or entry.done_at_s is not None:
                return True
            if not await self._page(entry):
                if not self._tail.over:
                    return False
                if await self._configs.finish(self._key, entry):
                    return True
            elif self._terms.is_taken(entry):
                await asyncio.sleep(min(pause_s, max(entry.until_s - time(), 0.01)))
                pause_s = min(2 * pause_s, 5.0)
            elif (claimed := await self._claim(entry)) is not None:
                await self._deliver(claimed)

    async def _page(self, entry: Entry) -> list[Change]:
        return await self._configs.call(self._tail.page, entry.seq)

    async def _claim(self, entry: Entry) -> Entry | None:
        """Become the one that delivers; None where somebody else was faster."""
        new = replace(entry, claim=self._terms.me, until_s=self._terms.lease())
        return new if await self._configs.change(self._key, entry, new) else None

    async def _change(self, new: Entry) -> bool:
        """Write the entry that is held; false where it is not ours any more."""
        assert self._held is not None, "only the holder of a claim writes"
        old, self._held = self._held, None
        if await self._configs.change(self._key, old, new):
            self._held = new
        return self._held is not None

    async def _finish(self, new: Entry) -> bool:
        assert self._held is not None, "only the holder of a claim writes"
        old, self._held = self._held, None
        return await self._configs.finish(self._key, old, new)

    async def _deliver(self, claimed: Entry) -> None:
        """Deliver page after page under a claim; ends when there is no more, or it was changed."""
        courier = Courier(
            parse_url(claimed.config["url"]),
            answer_s=self._terms.delivery.answer_s,
            allow_private=self._terms.allow_private,
            resolve=self._terms.resolve,
        )
        self._held = claimed
        try:
            while self._held is not None and (page := await self._next_page(self._held)):
                await self._deliver_page(courier, page)
        finally:
            held, self._held = self._held, None
            if held is not None:
                with suppress(JournalError):
                    # Also when this server stops: another one need not wait for the lease.
                    released = replace(held, claim=None, until_s=0.0)
                    await self._configs.change(self._key, held, released)
            await courier.aclose()

    async def _next_page(self, entry: Entry) -> list[Change]:
        page = await self._page(entry)
        while not page and not self._tail.over:
            try:
                async with asyncio.timeout(self._terms.linger_s):
                    await self.more.wait()
            except TimeoutError:
                return page
            self.more.clear()
            page = await self._page(entry)
        return page

    async def _deliver_page(self, courier: Courier, page: list[Change]) -> None:
        """Deliver one page; less of it where the entry is not ours any more."""
        number = 0
        for at, (seq, response) in enumerate(page):
            number = number + 1 if at and page[at - 1][0] == seq else 0
            name = f"{self._key}/{seq}" if not number else f"{self._key}/{seq}.{number}"
            taken = await self._post_until_taken(courier, name, response)
            held = self._held
            if not taken or held is None:
                return
            assert seq > held.seq, "only what is behind the cursor is asked for"
            if at + 1 < len(page) and page[at + 1][0] == seq:
                # The cursor moves when everything of a number is delivered.
                continue
            moved = replace(held, seq=seq, failures=0, until_s=self._terms.lease())
            if is_terminal(response):
                await self._finish(moved)
                return
            if not await self._change(moved):
                return

    async def _post_until_taken(
        self, courier: Courier, name: str, response: StreamResponse
    ) -> bool:
        """Try one delivery until the webhook takes it; false where that was given up or changed."""
        terms = self._terms
        while (held := self._held) is not None:
            sealed = envelope(response, held.config, name, terms.secret, terms.body_bytes)
            answer, problem = await self._attempt(courier, held.owner, sealed)
            if problem is None:
                terms.counts["delivered"] += 1
                terms.counts["shortened"] += sealed.shortened
                return True
            terms.counts["failed"] += 1
            failures = held.failures + 1
            tried = replace(held, failures=failures, until_s=terms.lease())
            gone = answer is not None and answer.status == _GONE
            if gone or failures >= terms.delivery.attempts:
                await self._disable(tried, problem)
                return False
            if not await self._change(tried):
                return False
            log.info("push config %s: attempt %d failed: %s", self._key, failures, problem)
            await asyncio.sleep(terms.pause_s(failures, answer))
            # It may have been deleted, or set anew, while nobody looked.
            if await self._configs.read(self._key) != tried:
                self._held = None
        return False

    async def _disable(self, tried: Entry, problem: str) -> None:
        words = f"disabled after {tried.failures} failed attempts in a row, the last: {problem}"
        if await self._finish(replace(tried, disabled=words)):
            self._terms.counts["disabled"] += 1
            log.warning("push config %s: %s", self._key, words)

    async def _attempt(
        self, courier: Courier, owner: str, sealed: Sealed
    ) -> tuple[Answer | None, str | None]:
        """One attempt: the answer, and what is wrong with it in words, or None."""
        where = courier.where
        try:
            answer = await self._terms.turns.post(owner, courier, sealed.body, sealed.headers)
        except TimeoutError:
            return None, f"{where} did not answer within {self._terms.delivery.answer_s:g} s"
        except Refused as error:
            return None, str(error)
        except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            return None, f"{where} cannot be reached: {type(error).__name__}: {str(error)[:200]}"
        if answer.ok:
            return answer, None
        if 300 <= answer.status < 400:
            return answer, f"{where} answered {answer.status}; redirects are not followed"
        return answer, f"{where} answered {answer.status}"
