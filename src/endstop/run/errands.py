"""Errands: the driver of a run does what other processes ask of it through the journal's inbox.

One daemon thread per runtime, only where the journal has an inbox, from the first run on. It is
woken by a doorbell and decides nothing: it asks the runtime, as the caller could, and writes back
what came of it. It also learns here that a run was taken away, which fences the run at once instead
of at its next append (law 16 survives-restart).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from endstop.core.noting import make_note
from endstop.core.state import CallState
from endstop.core.terms import Phase, Verdict
from endstop.errors import CallerError, JournalError, NotFound, StaleWriter
from endstop.run.approvals import Answer, Approve, Edit, Reject, Respond
from endstop.run.remembering import Remember

if TYPE_CHECKING:
    from endstop.run.base import BaseRuntime
    from endstop.store.inbox import Inbox, Request

log = logging.getLogger("endstop.run")

LOOK_S = 0.5
"""How often the journal is looked at unasked, should a ring be lost."""
DEAF_LOOK_S = 0.1
"""The same where there is no doorbell, and while a stop is under way."""
LATE_S = 0.25
"""How late the driver may be with what is due while a stop is under way, before it is helped."""
JOIN_S = 1.0

CANCEL, ANSWER, TELL, NOTE, REVOKE = "cancel", "answer", "tell", "note", "revoke"
"""The kinds of requests: stop something, answer an approval, answer a question of a body, keep a
note in a run, and forget a remembered approval."""


class Errands:
    """The requests to one runtime. A runtime that nobody holds any more is not kept alive by it."""

    def __init__(self, runtime: BaseRuntime) -> None:
        self._runtime = weakref.ref(runtime)
        inbox = getattr(runtime.engine.journal, "inbox", None)
        self._found: Inbox | None = inbox() if callable(inbox) else None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._looking = threading.Lock()
        self._closing = False
        # Calls that are being stopped because somebody outside asked for it.
        self._stopping: list[CallState] = []
        # A request concerns a run that is just being taken up.
        self._early = False
        # What is built on a runtime may serve kinds of its own; it answers the request itself.
        self.kinds: dict[str, Callable[[Request], None]] = {}
        # Told, on the thread of the errands, that somebody rang: an answer may be there.
        self.on_ring: Callable[[], None] | None = None

    def begin(self) -> None:
        """Look for requests from now on; idempotent, and nothing where there is no inbox."""
        if self._found is None or self._thread is not None:
            return
        with self._starting:
            if self._thread is None and not self._closing:
                thread = threading.Thread(target=self._work, name="endstop-errands", daemon=True)
                thread.start()
                self._thread = thread

    def catch_up(self) -> None:
        """Carry out what waits for a run that was just taken up, before anybody else may answer.

        An answer that was given while nobody drove the run was first (law 13 one-approval).
        """
        if self._found is not None:
            try:
                self._look(True)
            except JournalError as error:
                log.warning("requests of other processes cannot be read: %s", error)
        self.begin()

    def close(self) -> None:
        """Carry out nothing more. Waits, bounded, for what is being carried out just now."""
        with self._starting:
            self._closing = True
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        try:
            self._inbox.bell().ring()
        except JournalError:
            log.debug("the journal is closed already")
        thread.join(JOIN_S)

    @property
    def _inbox(self) -> Inbox:
        assert self._found is not None, "there are no errands without an inbox"
        return self._found

    # -- the thread

    def _work(self) -> None:
        rung = True
        while not self._closing:
            try:
                bell = self._inbox.bell()
                if not self._look(rung):
                    return
                often = bool(self._stopping) or self._early or not bell.heard
                rung = bell.wait(DEAF_LOOK_S if often else LOOK_S)
            except Exception as error:
                if self._closing or self._runtime() is None:
                    return
                words = "requests of other processes cannot be carried out: %s"
                log.warning(words, error, exc_info=not isinstance(error, JournalError))
                # Tried again, but not at once: a file that is locked may be free later.
                threading.Event().wait(LOOK_S)

    def _look(self, rung: bool) -> bool:
        """Do what is asked; false once the runtime is gone."""
        runtime = self._runtime()
        if runtime is None:
            return False
        with self._looking:
            self._do(runtime, rung)
        return True

    def _do(self, runtime: BaseRuntime, rung: bool) -> None:
        # Asked in any case: what has changed until now is looked at now.
        changed = self._inbox.changed()
        if changed or rung or self._early:
            self._early = False
            self._give_up_lost(runtime)
            for request in self._inbox.take():
                self._carry_out(runtime, request)
        if self._stopping:
            self._help(runtime)
        if rung and self.on_ring is not None:
            self.on_ring()

    def _give_up_lost(self, runtime: BaseRuntime) -> None:
        """Fence the runs that another process has taken; their workers are stopped."""
        engine = runtime.engine

        def mine() -> list[str]:
            with engine.lock:
                return [run.id for run in engine.state.runs.values() if not run.ended]

        for run_id in self._inbox.lost(mine):
            with engine.lock:
                run = engine.state.runs.get(run_id)
                if run is not None and not run.ended:
                    error = StaleWriter(f"run {run_id!r} was taken over by another process")
                    engine._fence(run, error)

    def _help(self, runtime: BaseRuntime) -> None:
        """Let happen what is due where the driver does not: its loop may be blocked (law 6)."""
        engine = runtime.engine
        self._stopping = [call for call in self._stopping if call.phase is not Phase.SETTLED]
        with engine.lock:
            due = engine.state.timers.next_due()
        if due is not None and due < engine.clock() - LATE_S:
            engine.tick()

    # -- requests

    def _carry_out(self, runtime: BaseRuntime, request: Request) -> None:
        serve = self.kinds.get(request.kind)
        if serve is not None:
            serve(request)
            return
        answer = self._try(runtime, request)
        run = request.run
        if answer["what"] == "not_found" and run not in runtime.engine.state.runs:
            # It has been adopted and is not live yet, or is none of ours any more.
            self._early |= self._inbox.drives(run)
            self._inbox.put_back(request.id)
            return
        self._inbox.answer(request.id, answer)

    def _try(self, runtime: BaseRuntime, request: Request) -> dict[str, Any]:
        try:
            if request.target != request.run and not request.target.startswith(f"{request.run}/"):
                raise CallerError(f"{request.target!r} is nothing of run {request.run!r}")
            if request.kind == CANCEL:
                return self._cancel(runtime, request)
            if request.kind == ANSWER:
                return self._answer(runtime, request)
            if request.kind == TELL:
                return self._tell(runtime, request)
            if request.kind == NOTE:
                return self._note(runtime, request)
            if request.kind == REVOKE:
                return self._revoke(runtime, request)
            raise CallerError(f"this version of endstop knows no request {request.kind!r}")
        except NotFound as error:
            return {"what": "not_found", "why": str(error)}
        except CallerError as error:
            return {"what": "refused", "why": str(error)}
        except Exception as error:
            log.exception("request %s failed", request.id)
            return {"what": "failed", "why": f"{type(error).__name__}: {error}"}

    def _cancel(self, runtime: BaseRuntime, request: Request) -> dict[str, Any]:
        body = request.body
        cancel = runtime._cancel(
            request.target, body.get("reason", ""), body.get("mode", ""), gone=False
        )
        self._stopping += cancel.opened
        return {
            "what": "cancelled",
            "accepted": cancel.accepted,
            "open": [call.id for call in cancel.opened],
            "over": [result.call_id for result in cancel.already],
        }

    def _answer(self, runtime: BaseRuntime, request: Request) -> dict[str, Any]:
        """Law 13 one-approval: only what the human has seen, and only if nobody was faster."""
        call_id, seen = request.target, str(request.body.get("digest", ""))
        call = runtime.engine.state.calls.get(call_id)
        if call is None:
            raise NotFound(f"no call {call_id!r} is here")
        pending = call.approval
        if pending is not None and seen != pending:
            raise CallerError("it asks for something else now than what was answered")
        landed = runtime._answer(call_id, _read_answer(request), request.by, seen)
        return {"what": "answered" if landed else "too_late"}

    def _tell(self, runtime: BaseRuntime, request: Request) -> dict[str, Any]:
        """Answer a question of a running body; a secret is in no file."""
        text = request.body.get("text")
        letter = request.body.get("letter")
        if letter is not None:
            text = self._inbox.bell().letter(str(letter))
            if text is None:
                raise CallerError("the secret did not arrive; answer again")
        landed = runtime.answer(request.target, str(text), by=request.by)
        return {"what": "answered" if landed else "too_late"}

    def _note(self, runtime: BaseRuntime, request: Request) -> dict[str, Any]:
        if request.run not in runtime.engine.state.runs:
            raise NotFound(f"no run {request.run!r} is here")
        body = request.body
        note = make_note(request.run, body.get("kind", ""), body.get("body", {}))
        return {"what": "noted" if runtime.engine.tell(note) else "too_late"}

    def _revoke(self, runtime: BaseRuntime, request: Request) -> dict[str, Any]:
        if request.run not in runtime.engine.state.runs:
            raise NotFound(f"no run {request.run!r} is here")
        landed = runtime.revoke(request.target, by=request.by)
        return {"what": "answered" if landed else "too_late"}


def _read_answer(request: Request) -> Answer:
    body = request.body
    text = str(body.get("text", ""))
    try:
        verdict = Verdict(body.get("verdict", ""))
    except ValueError as error:
        raise CallerError(str(error)) from None
    match verdict:
        case Verdict.APPROVE:
            return Approve(_read_remember(body.get("remember")))
        case Verdict.REJECT:
            return Reject(text)
        case Verdict.RESPOND:
            return Respond(text)
        case Verdict.EDIT:
            arguments = body.get("arguments")
            if not isinstance(arguments, dict):
                raise CallerError("an edit needs the new arguments as a JSON object")
            return Edit(arguments)


def _read_remember(said: object) -> Remember | None:
    match said:
        case None:
            return None
        case {"same": list() | None as same, "for_s": int() | float() | None as for_s}:
            return Remember(same=same, for_s=for_s)
        case _:
            raise CallerError("an approval is remembered by names of arguments and seconds")
