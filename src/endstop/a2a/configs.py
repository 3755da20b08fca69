"""Push-notification configs: checked when they are given, kept on the journal's shelf.

One record per config, with everything that is known of its deliveries: the cursor, who delivers it
now, what failed. All servers on one journal read and write the same records, each change by compare
and set. Nothing here posts anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from time import time
from typing import Any, TypeVar

from a2a.types import TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict

from endstop.a2a.webhooks import Refused, Target
from endstop.errors import JournalError
from endstop.store.protocol import Journal
from endstop.store.shelf import KEY_CHARS, away

T = TypeVar("T")

OPEN = "a2a.push"
DONE = "a2a.push.done"
META = "a2a.push.meta"
_GENERATION = "generation"

CONFIGS_MAX = 16
"""Configs of one task."""
ID_CHARS = 128
SECRET_CHARS = 2_048
"""Characters of a token, of credentials and of a scheme."""
KEEP_S = 24 * 3600.0
"""How long a config can be read once nothing more is sent to it."""
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A config and its deliveries.

    `seq` is the last sequence number of the task that was delivered; `claim` the server that
    delivers, until `until_s` (wall time) at the latest; `failures` count in a row. With `done_at_s`
    nothing more is sent: the task is over, or, with `disabled`, which says why, too much failed.
    """

    owner: str
    config: dict[str, Any]
    seq: int = 0
    failures: int = 0
    claim: str | None = None
    until_s: float = 0.0
    disabled: str | None = None
    made_at_s: float = field(default_factory=time)
    done_at_s: float | None = None

    @property
    def shown(self) -> TaskPushNotificationConfig:
        """The config as its owner gave it, with its ids."""
        return ParseDict(self.config, TaskPushNotificationConfig(), ignore_unknown_fields=True)


_FIELDS = frozenset(one.name for one in fields(Entry))


def read_entry(record: dict[str, Any]) -> Entry:
    """An entry from its record; what a newer version added is left out."""
    return Entry(**{name: value for name, value in record.items() if name in _FIELDS})


def key_of(task_id: str, config_id: str) -> str:
    """The key of a config. A task's id has no slash in it."""
    return f"{task_id}/{config_id}"


class Configs:
    """The configs of all tasks in a journal. Its methods wait on a thread, never on the loop."""

    def __init__(self, journal: Journal, check: Callable[[str], Awaitable[Target]]) -> None:
        self._shelf = away(journal.shelf())
        self._check = check
        # How often configs were set or deleted, as far as this side has seen it.
        self._seen = -1

    # --- what clients ask -------------------------------------------------------------------------

    async def set(
        self, owner: str, config: TaskPushNotificationConfig, after_seq: int
    ) -> tuple[str, Entry]:
        """Keep a config, return its key; one with the same id is replaced and goes on from there.

        Raises InvalidParamsError for a config that cannot be used, saying why, and
        TaskNotFoundError where its id belongs to somebody else.
        """
        wanted = await self._checked(config)
        key = key_of(wanted.task_id, wanted.id)
        body = MessageToDict(wanted)
        for _ in range(_TRIES):
            old = await self.read(key)
            past = old or await self._either(key)
            if past is not None and past.owner != owner:
                raise TaskNotFoundError
            if past is None or (old is None and past.disabled is None):
                await self._check_count(wanted.task_id)
                new = Entry(owner=owner, config=body, seq=after_seq)
            else:
                new = replace(past, config=body, failures=0, disabled=None, done_at_s=None)
            if await self._swap(key, old, new):
                await self._shelf.delete(DONE, key)
                await self._bump()
                return key, new
        raise JournalError(f"the push config {wanted.id!r} is changed by too many at once")

    async def get(self, owner: str, task_id: str, config_id: str) -> Entry | None:
        """A config; None where there is none of this owner. Without an id the task's first one."""
        if not config_id:
            found = await self.list(owner, task_id)
            return found[0] if found else None
        if not _fits(task_id, config_id):
            return None
        entry = await self._either(key_of(task_id, config_id))
        return entry if entry is not None and entry.owner == owner else None

    async def list(self, owner: str, task_id: str) -> list[Entry]:
        """The configs of a task that belong to an owner, in the order of their making."""
        if not _fits(task_id, "x"):
            return []
        mine = [entry for entry in await self._of_task(task_id) if entry.owner == owner]
        return sorted(mine, key=lambda entry: (entry.made_at_s, entry.config["id"]))

    async def delete(self, owner: str, task_id: str, config_id: str) -> bool:
        """Forget a config; false where there is none of this owner."""
        entry = await self.get(owner, task_id, config_id)
        if entry is None or not config_id:
            return False
        key = key_of(task_id, entry.config["id"])
        await self._shelf.delete(OPEN, key)
        await self._shelf.delete(DONE, key)
        await self._bump()
        return True

    # --- what the outbox asks ---------------------------------------------------------------------

    async def read(self, key: str) -> Entry | None:
        """A config that may still have something to be delivered."""
        record = await self._shelf.get(OPEN, key)
        return None if record is None else read_entry(record)

    async def change(self, key: str, old: Entry, new: Entry) -> bool:
        """Replace an entry; false where it is not the old one any more."""
        return await self._shelf.swap(OPEN, key, asdict(old), asdict(new))

    async def finish(self, key: str, entry: Entry, moved: Entry | None = None) -> bool:
        """Everything is delivered: only reading is left. False where it was changed meanwhile."""
        done = replace(moved or entry, claim=None, until_s=0.0, done_at_s=time())
        if not await self.change(key, entry, done):
            return False
        await self.put_away(key, done)
        return True

    async def put_away(self, key: str, done: Entry) -> None:
        """Move a finished config out of the way of those that are not.

        Where too many were finished of late, it is forgotten at once.
        """
        assert done.done_at_s is not None
        with suppress(JournalError):
            await self._shelf.put(DONE, key, asdict(done))
        await self._shelf.swap(OPEN, key, asdict(done), None)

    async def drop(self, key: str, entry: Entry) -> bool:
        """Forget a config whose task is not there; false where it was changed meanwhile."""
        return await self._shelf.swap(OPEN, key, asdict(entry), None)

    async def open(self) -> dict[str, Entry]:
        """Every config that may still have something to be delivered, by key."""
        found: dict[str, Entry] = {}
        last = ""
        while page := await self._shelf.list(OPEN, after=last):
            found.update((key, read_entry(record)) for key, record in page)
            last = page[-1][0]
        return found

    async def changed(self) -> bool:
        """Whether another server has set or deleted a config since this was asked last."""
        record = await self._shelf.get(META, _GENERATION)
        number = record["n"] if record is not None else 0
        same, self._seen = number == self._seen, number
        return not same

    def look_again(self) -> None:
        """Take what was seen last for unseen: what followed from it did not work out."""
        self._seen = -1

    async def forget(self, keep_s: float = KEEP_S) -> None:
        """Forget what was done longer ago than that."""
        last = ""
        while page := await self._shelf.list(DONE, after=last):
            last = page[-1][0]
            for key, record in page:
                if time() - (record.get("done_at_s") or 0.0) > keep_s:
                    await self._shelf.delete(DONE, key)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run what waits for the journal's file, on the same thread."""
        return await self._shelf.call(function, *arguments)

    def close(self) -> None:
        """Take no more."""
        self._shelf.close()

    # --- inside -----------------------------------------------------------------------------------

    async def _of_task(self, task_id: str) -> Sequence[Entry]:
        found = dict(await self._shelf.list(DONE, key_of(task_id, "")))
        found |= dict(await self._shelf.list(OPEN, key_of(task_id, "")))
        return [read_entry(record) for record in found.values()]

    async def _either(self, key: str) -> Entry | None:
        record = await self._shelf.get(OPEN, key) or await self._shelf.get(DONE, key)
        return None if record is None else read_entry(record)

    async def _swap(self, key: str, old: Entry | None, new: Entry) -> bool:
        before = None if old is None else asdict(old)
        return await self._shelf.swap(OPEN, key, before, asdict(new))

    async def _bump(self) -> None:
        while True:
            record = await self._shelf.get(META, _GENERATION)
            number = record["n"] + 1 if record is not None else 1
            if await self._shelf.swap(META, _GENERATION, record, {"n": number}):
                if self._seen == number - 1:
                    # What this side does is no news to it.
                    self._seen = number
                return

    async def _check_count(self, task_id: str) -> None:
        if len(await self._of_task(task_id)) >= CONFIGS_MAX:
            raise InvalidParamsError(
                message=f"the task has {CONFIGS_MAX} push configs already; delete one first"
            )

    async def _checked(self, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        wanted = TaskPushNotificationConfig()
        wanted.CopyFrom(config)
        if not wanted.id:
            # The same webhook given twice, as with every message, is one config and told once.
            wanted.id = "url-" + hashlib.sha256(wanted.url.encode()).hexdigest()[:16]
        if not _fits(wanted.task_id, wanted.id):
            raise InvalidParamsError(
                message=f"the id of a push config is 1 to {ID_CHARS} printable characters"
            )
        auth = wanted.authentication
        for what, text in (
            ("token", wanted.token),
            ("authentication.scheme", auth.scheme),
            ("authentication.credentials", auth.credentials),
        ):
            if len(text) > SECRET_CHARS or not all(" " <= char <= "~" for char in text):
                raise InvalidParamsError(
                    message=f"the push config's {what} is at most {SECRET_CHARS} printable ASCII "
                    "characters, as it is sent in a header"
                )
        try:
            await self._check(wanted.url)
        except Refused as error:
            raise InvalidParamsError(message=f"invalid push notification URL: {error}") from error
        return wanted


def _fits(task_id: str, config_id: str) -> bool:
    """Whether ids make a key: anything else is the id of nothing."""
    return (
        0 < len(config_id) <= ID_CHARS
        and config_id.isprintable()
        and bool(task_id)
        and "/" not in task_id
        and task_id.isprintable()
        and len(task_id) + 1 + ID_CHARS <= KEY_CHARS
    )
