"""Push notifications: configs of tasks, and an outbox off the event path for each.

Theory of operation. The journal is the queue. For every config the shelf holds a cursor, the number
of the last change of the task that was delivered. A worker reads what the task's stream shows
behind it, posts one change after the other, and moves the cursor on. So nothing waits for a
webhook, no queue can grow, stream and push cannot disagree, and after a restart delivery goes on at
the cursor: at least once, in order, the terminal change last.

Of several servers on one journal the one that claims a config, by compare and set, delivers. A
claim ends with its holder's life or its time. Whoever drives a task tells its own `Pusher` of every
change; that others have set configs is noticed within `LOOK_S`, and what was missed by all of that
is found by a sweep.

A worker exists only while something is to be delivered. Nothing here changes a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from time import time

from a2a.types import TaskPushNotificationConfig

from endstop.a2a.configs import KEEP_S, Configs
from endstop.a2a.envelope import BODY_BYTES
from endstop.a2a.outbox import LINGER_S, Delivery, Outbox, Terms
from endstop.a2a.tail import Tail
from endstop.a2a.webhooks import Resolve, check_url, look_up
from endstop.errors import JournalError
from endstop.store.owner import this_owner
from endstop.store.protocol import Journal

__all__ = ["Counted", "Delivery", "Pusher"]

LOOK_S = 0.5
"""How often it is looked whether another server has set or deleted configs."""
SWEEP_S = 60.0
"""How often every config is asked for what nobody told of."""
CLOSE_S = 5.0
"""How long `aclose()` waits for what is being posted to be let go."""

log = logging.getLogger("endstop.a2a.push")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a pusher has done since it began: attempts and changes, and what it knows of now."""

    delivered: int
    failed: int
    disabled: int
    shortened: int
    known: int
    working: int


class Pusher:
    """Keeps push configs and delivers to them; see this module.

    `tell(task_id)` must be called whenever a task that is driven here has changed, from any thread.
    `allow_private` also takes webhooks on private, loopback and link-local addresses. `secret`
    signs what goes to configs that have no secret of their own. Belongs to the loop that calls
    `start()`.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        allow_private: bool = False,
        secret: str | None = None,
        delivery: Delivery | None = None,
        body_bytes: int = BODY_BYTES,
        resolve: Resolve = look_up,
        look_s: float = LOOK_S,
        sweep_s: float = SWEEP_S,
        linger_s: float = LINGER_S,
    ) -> None:
        self._journal = journal
        self._look_s = look_s
        self._sweep_s = sweep_s
        self._terms = Terms(
            me=str(this_owner()),
            delivery=delivery or Delivery(),
            allow_private=allow_private,
            secret=secret,
            body_bytes=body_bytes,
            resolve=resolve,
            linger_s=linger_s,
        )
        self._configs = Configs(
            journal, lambda url: check_url(url, allow_private=allow_private, resolve=resolve)
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        # Keys of configs by task; read from any thread, changed on the loop alone.
        self._known: dict[str, frozenset[str]] = {}
        self._boxes: dict[str, tuple[Outbox, asyncio.Task[None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        # When the last event came that a sweep has looked at, by config.
        self._swept: dict[str, float | None] = {}
        # Those whose deliveries broke off: the next sweep looks into them, whatever came.
        self._broken: set[str] = set()

    # --- configs ----------------------------------------------------------------------------------

    async def set(
        self, owner: str, config: TaskPushNotificationConfig, *, after_seq: int = 0
    ) -> TaskPushNotificationConfig:
        """Keep a config for `config.task_id`; returns it with its id.

        The task must exist and belong to `owner`, which is the caller's to check. What the task's
        stream shows behind `after_seq` is delivered; a config that is there already goes on where
        it was, also one that was disabled. Raises the SDK's InvalidParamsError for a config or URL
        that cannot be used, TaskNotFoundError for another owner's.
        """
        key, entry = await self._configs.set(owner, config, after_seq)
        self._know(key)
        self._wake(key)
        return entry.shown

    async def get(
        self, owner: str, task_id: str, config_id: str = ""
    ) -> TaskPushNotificationConfig | None:
        """A config of this owner, or None; without an id the task's first one."""
        entry = await self._configs.get(owner, task_id, config_id)
        return None if entry is None else entry.shown

    async def list(self, owner: str, task_id: str) -> Sequence[TaskPushNotificationConfig]:
        """The configs of a task that belong to this owner, oldest first; a few at most."""
        return [entry.shown for entry in await self._configs.list(owner, task_id)]

    async def delete(self, owner: str, task_id: str, config_id: str) -> bool:
        """Forget a config; false where this owner has none of that id. Ends its deliveries."""
        deleted = await self._configs.delete(owner, task_id, config_id)
        if deleted:
            # Wakes whoever waits to try again, and finds it gone.
            self._told(task_id)
        return deleted

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what is undelivered, and look after it from now on."""
        assert self._loop is None, "a pusher is started once"
        self._loop = asyncio.get_running_loop()
        self._looking = self._loop.create_task(self._look_after())

    def tell(self, task_id: str) -> None:
        """A task that is driven here has changed. From any thread; costs next to nothing."""
        loop = self._loop
        if task_id in self._known and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._told, task_id)

    async def aclose(self) -> None:
        """Stop delivering; what is undelivered stays in its place. Idempotent."""
        self._loop = None
        tasks = [task for _, task in self._boxes.values()]
        if self._looking is not None:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self._configs.close()

    def statistics(self) -> Counted:
        """What was done since the start."""
        counts = self._terms.counts
        return Counted(
            delivered=counts["delivered"],
            failed=counts["failed"],
            disabled=counts["disabled"],
            shortened=counts["shortened"],
            known=sum(map(len, self._known.values())),
            working=len(self._boxes),
        )

    # --- who is to be told ------------------------------------------------------------------------

    def _know(self, key: str) -> None:
        task_id = _task_of(key)
        self._known[task_id] = self._known.get(task_id, frozenset()) | {key}

    def _forget(self, key: str) -> None:
        task_id = _task_of(key)
        left = self._known.get(task_id, frozenset()) - {key}
        self._broken.discard(key)
        if left:
            self._known[task_id] = left
        else:
            self._known.pop(task_id, None)

    def _told(self, task_id: str) -> None:
        for key in self._known.get(task_id, ()):
            self._wake(key)

    def _wake(self, key: str) -> None:
        if self._loop is None:
            return
        if key in self._boxes:
            self._boxes[key][0].more.set()
            return
        box = Outbox(key, self._configs, Tail(self._journal, _task_of(key)), self._terms)
        self._boxes[key] = box, self._loop.create_task(self._work(key, box))

    async def _work(self, key: str, box: Outbox) -> None:
        try:
            if await box.run():
                self._forget(key)
        except Exception as error:  # noqa: BLE001 - one that breaks must not take others along
            self._broke(key, error)
        finally:
            del self._boxes[key]
            if box.more.is_set():
                # Told between its last look and now.
                self._wake(key)

    def _broke(self, key: str, error: Exception) -> None:
        self._broken.add(key)
        words = "push config %s: deliveries stopped until the next sweep: %s"
        # The journal's failures say what they are; anything else is a bug.
        log.warning(words, key, error, exc_info=not isinstance(error, JournalError))

    async def _look_after(self) -> None:
        sweep_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                if await self._configs.changed():
                    await self._learn()
                if loop.time() >= sweep_at:
                    sweep_at = loop.time() + self._sweep_s
                    await self._sweep()
            except Exception as error:
                self._configs.look_again()
                problem = not isinstance(error, JournalError)
                log.warning("push configs cannot be read: %s", error, exc_info=problem)
            await asyncio.sleep(self._look_s)

    async def _learn(self) -> None:
        """Know every config there is; one that is new here may have something pending."""
        entries = await self._configs.open()
        for key, entry in entries.items():
            if entry.done_at_s is not None:
                await self._configs.put_away(key, entry)
            elif key not in self._known.get(_task_of(key), ()):
                self._know(key)
                self._wake(key)
        for key in self._keys():
            # One that was set here meanwhile may be too young for the listing.
            if key not in entries and await self._configs.read(key) is None:
                self._forget(key)

    async def _sweep(self) -> None:
        """Wake those that have something pending which nobody told of; few are looked into."""
        await self._configs.forget()
        swept: dict[str, float | None] = {}
        for key in self._keys():
            at_s = await self._configs.call(self._journal.last_at, _task_of(key))
            if key in self._boxes:
                continue
            swept[key] = at_s
            same = key in self._swept and self._swept[key] == at_s
            if same and key not in self._broken:
                # Nothing came since the last time: no need to read the task again.
                continue
            self._broken.discard(key)
            try:
                if await self._is_pending(key, at_s):
                    self._wake(key)
            except Exception as error:  # noqa: BLE001 - the others are looked into all the same
                self._broke(key, error)
        self._swept = swept

    async def _is_pending(self, key: str, at_s: float | None) -> bool:
        entry = await self._configs.read(key)
        if entry is None:
            return False
        if at_s is None and time() - entry.made_at_s > KEEP_S:
            # The journal has forgotten the task: nothing will ever be delivered.
            await self._configs.drop(key, entry)
            return False
        tail = Tail(self._journal, _task_of(key))
        return bool(await self._configs.call(tail.page, entry.seq)) or tail.over

    def _keys(self) -> Sequence[str]:
        return [key for keys in self._known.values() for key in keys]


def _task_of(key: str) -> str:
    return key.partition("/")[0]
