"""Listing: the tasks of one caller, newest change first, page by page.

A page token is a place in that order, so that pages neither repeat nor skip what stays where it is,
whatever is opened or changes meanwhile. Reads the journal and changes nothing; what has ended never
changes, so its state is remembered, within a bound.
"""

from __future__ import annotations

import base64
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task
from a2a.utils.errors import InvalidParamsError

from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask
from endstop.a2a.task import TaskView
from endstop.errors import JournalError
from endstop.store.protocol import Journal

log = logging.getLogger("endstop.a2a")

PAGE, PAGE_MAX = 50, 100
REMEMBERED_MAX = 50_000
"""Ended tasks whose state is remembered."""

Place = tuple[float, str]


@dataclass(frozen=True, slots=True)
class _Ended:
    state: int
    at_s: float


class Listing:
    """Lists the tasks of one agent; its methods wait for the journal's file."""

    def __init__(self, journal: Journal, hall: Hall, read: Callable[[str], TaskView]) -> None:
        self._journal = journal
        self._hall = hall
        self._read = read
        self._ended: OrderedDict[str, _Ended] = OrderedDict()

    def page(self, labels: Mapping[str, str], params: ListTasksRequest) -> ListTasksResponse:
        """One page of the tasks with these labels. Raises InvalidParamsError for a bad request."""
        size = page_size(params)
        after = read_token(params.page_token) if params.page_token else None
        places = self._places(labels)
        if params.status or params.HasField("status_timestamp_after"):
            places = [place for place in places if self._fits(place, params)]
        total = len(places)
        if after is not None:
            places = [place for place in places if place < after]
        found = [task for _, run in places[:size] if (task := self._task(run, params)) is not None]
        response = ListTasksResponse(tasks=found, page_size=size, total_size=total)
        if len(places) > size:
            response.next_page_token = make_token(places[size - 1])
        return response

    def _places(self, labels: Mapping[str, str]) -> list[Place]:
        journal = self._journal
        found = [(journal.last_at(run) or 0.0, run) for run in journal.labelled(labels)]
        found.sort(reverse=True)
        return found

    def _fits(self, place: Place, params: ListTasksRequest) -> bool:
        last_at, run = place
        after_s = None
        if params.HasField("status_timestamp_after"):
            after_s = params.status_timestamp_after.ToNanoseconds() / 1e9
            if last_at < after_s:
                # The status is not younger than the last event.
                return False
        try:
            now = self._status(run)
        except JournalError as error:
            _leave_out(run, error)
            return False
        if params.status and now.state != params.status:
            return False
        return after_s is None or now.at_s >= after_s

    def _status(self, run: str) -> _Ended:
        known = self._ended.get(run)
        if known is not None:
            return known
        view = self._view(run)
        now = _Ended(view.state, view.at_s)
        if view.over:
            self._ended[run] = now
            if len(self._ended) > REMEMBERED_MAX:
                self._ended.popitem(last=False)
        return now

    def _view(self, run: str) -> TaskView:
        task = self._live(run)
        return task.view if task is not None else self._read(run)

    def _live(self, run: str) -> LiveTask | None:
        """The live side of a task; of one that is just being taken up, nothing is known yet."""
        task = self._hall.tasks.get(run)
        return None if task is None or task.unsettled else task

    def _task(self, run: str, params: ListTasksRequest) -> Task | None:
        """A task as it is listed; None where its record is damaged: the others are listed still."""
        history = params.history_length if params.HasField("history_length") else None
        task = self._live(run)
        if task is None:
            try:
                return self._read(run).task(history, artifacts=params.include_artifacts)
            except JournalError as error:
                _leave_out(run, error)
                return None
        found: Task = self._hall.read(
            task, lambda view: view.task(history, artifacts=params.include_artifacts)
        )
        return found


def _leave_out(run: str, error: JournalError) -> None:
    log.warning("task %s is left out of a list: %s", run, error)


def page_size(params: ListTasksRequest) -> int:
    """How many tasks a page has."""
    size: int = params.page_size if params.HasField("page_size") else PAGE
    if not 1 <= size <= PAGE_MAX:
        raise InvalidParamsError(f"a page has 1 to {PAGE_MAX} tasks, not {size}")
    return size


def make_token(place: Place) -> str:
    """A place as an opaque token."""
    text = json.dumps([place[0].hex(), place[1]])
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def read_token(token: str) -> Place:
    """The place of a token. Raises InvalidParamsError for one that is none of ours."""
    try:
        at_s, run = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        if not isinstance(run, str):
            raise ValueError("no run")
        return float.fromhex(at_s), run
    except (ValueError, TypeError) as error:
        raise InvalidParamsError(
            "the page token is none of this server's; begin with the first page"
        ) from error
