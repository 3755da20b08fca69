"""A task as a reading of its run: from the run's events to the protocol's Task, one by one.

Pure: no clock, no I/O, no locks. Whoever reads the same events has the same task, whichever process
it is, so answer, store, stream and push cannot disagree. The cost is linear in what is added: no
event copies the task. Only the end of the run is an end of the task, and it absorbs whatever comes
after it (law 3 one-ending).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a.types.a2a_pb2 import Artifact, Message

from endstop.a2a import notes, words
from endstop.a2a.notes import Json
from endstop.a2a.shown import Shown
from endstop.a2a.states import (
    ARTIFACT_SHOWN,
    CANCELED,
    COMPLETED,
    EXECUTE,
    INPUT_REQUIRED,
    INTERRUPTED,
    NOTHING,
    OWNER,
    STATUS_SHOWN,
    SUBMITTED,
    TERMINAL,
    WORKING,
)
from endstop.agents import notes as conversation
from endstop.core import events as e

ASKED, TOLD, PAST = 0, 1, 2
"""What is known of a secret question: it was asked; a message answered it; whoever sent a message
to the task since did not mean it."""


class TaskView(Shown):
    """One task, as far as its run's events were applied."""

    def __init__(self, run: str) -> None:
        self.id = run
        self.seq = 0
        self.labels: dict[str, str] = {}
        self.context = ""
        self.state: int = SUBMITTED
        self.at_s = 0.0
        self.ended: e.RunEnded | None = None
        self.cancelled = False
        self.closing = False
        self.history: list[Message] = []
        self.message_ids: set[str] = set()
        self.waiting: dict[str, None] = {}
        self.artifacts: dict[str, Artifact] = {}
        self.metadata: Json = {}
        self.calls: dict[str, words.Line] = {}
        self.executing: dict[str, None] = {}
        self.approvals: dict[str, e.ApprovalAsked] = {}
        self.questions: dict[str, e.QuestionAsked] = {}
        self.secrets: dict[str, int] = {}
        self.unheard = 0
        self.reply: Message | None = None
        self._keyed: dict[str, Message] = {}
        self._message: Message | None = None
        self._said: int = 0
        self._last_said: int = SUBMITTED
        self._why = ""
        self._started = False
        self._declared: tuple[int, Message | None, Json | None] | None = None
        self._artifact: Json = {}
        self._status_metadata: Json | None = None

    # -- reading

    @property
    def opened(self) -> bool:
        """Whether the run's beginning is in, and says that it is a task."""
        return OWNER in self.labels

    @property
    def over(self) -> bool:
        """Whether the task has its ending."""
        return self.ended is not None

    @property
    def at_rest(self) -> bool:
        """Whether a blocking caller has its answer: the task is over, or waits for somebody."""
        return self.ended is not None or (self.state in INTERRUPTED and not self.waiting)

    @property
    def failed_call(self) -> words.Line | None:
        """The executor's last call, where it is over and did not succeed."""
        found = None
        for line in self.calls.values():
            if line.tool == EXECUTE and line.settled is not None:
                found = line
        return found if found is not None and found.failed else None

    def message(self, key: str) -> Message | None:
        """The message that was kept under a key, which is its id unless that was taken."""
        if key not in self.message_ids:
            return None
        return self._keyed.get(key) or next(
            (one for one in self.history if one.message_id == key), None
        )

    # -- applying

    def apply(self, event: e.Event, at_s: float) -> int:
        """Take in the next recorded event; returns what it shows to whoever watches."""
        self.seq += 1
        apply = _APPLY.get(type(event))
        if apply is None or self.ended is not None:
            return NOTHING
        shown = apply(self, event)
        before, self.state = self.state, self._state()
        if before != self.state or self.seq == 1:
            if shown & STATUS_SHOWN == 0:
                self._message_of_state()
            if before == SUBMITTED and type(event) is e.CallStarted:
                # That somebody works on it is no news: what is shown first is the agent's.
                self.at_s = at_s
            else:
                shown |= STATUS_SHOWN
        if shown & STATUS_SHOWN:
            self.at_s = at_s
        return shown

    def _state(self) -> int:
        if self.ended is not None:
            return words.final_state(self.ended)
        if self.approvals or self.questions:
            return INPUT_REQUIRED
        if self._said and not self.waiting:
            return self._said
        return WORKING if self._started else SUBMITTED

    def _message_of_state(self) -> None:
        """What the status says where the agent said nothing: the words are ours."""
        self._retire_message()
        self._status_metadata = None
        if self.ended is not None:
            self._message = self._last_words()
        elif self.approvals or self.questions:
            asked = [(self.calls[one.call].tool, one) for one in self.approvals.values()]
            self._message = self._words(
                words.asking(asked, self.questions.values()),
                words.asking_data(asked, self.questions.values()),
            )

    def _last_words(self) -> Message | None:
        """The agent's own, where the run ended as it declared; else ours (law 5 honest-effect)."""
        assert self.ended is not None
        if self.reply is not None and self.state == COMPLETED:
            return self.reply
        declared = self._declared
        if declared is not None and declared[0] == self.state:
            self._status_metadata = declared[2]
            if declared[1] is not None or self.state != CANCELED:
                return declared[1]
        text = words.ending(self.ended, self.calls.values(), EXECUTE, self._why)
        return None if text is None else self._words(text)

    def _words(self, text: str, data: Json | None = None) -> Message:
        name = f"{self.id}-status-{self.seq}"
        return notes.text_message(
            text, message_id=name, context=self.context, task=self.id, data=data
        )

    def _retire_message(self) -> None:
        """A status that is replaced leaves its message in the history."""
        message, self._message = self._message, None
        if message is not None and message.message_id not in self.message_ids:
            self._remember(message)

    def _remember(self, message: Message) -> None:
        self.history.append(message)
        self.message_ids.add(message.message_id)

    def _on_opened(self, event: e.RunOpened) -> int:
        self.labels = dict(event.labels)
        self.context = event.labels.get("context", "")
        return NOTHING

    def _on_cancelled(self, event: e.RunCancelled) -> int:
        self.cancelled = True
        self._withdraw()
        return NOTHING

    def _on_closing(self, event: e.RunClosing) -> int:
        self.closing = True
        return NOTHING

    def _on_ended(self, event: e.RunEnded) -> int:
        assert self.ended is None, "an ending absorbs (law 3 one-ending)"
        self.ended = event
        self._withdraw()
        self.waiting.clear()
        return NOTHING

    def _withdraw(self) -> None:
        self.approvals.clear()
        self.questions.clear()

    def _on_accepted(self, event: e.CallAccepted) -> int:
        self.calls[event.call] = words.Line(event.call, event.tool)
        if event.tool == EXECUTE:
            self.executing[event.call] = None
            self._said = 0
            self.waiting.pop((event.arguments or {}).get("message", ""), None)
        return NOTHING

    def _on_started(self, event: e.CallStarted) -> int:
        line = self.calls[event.call]
        line.started = self._started = True
        return NOTHING

    def _on_settled(self, event: e.CallSettled) -> int:
        line = self.calls[event.call]
        line.settled = event
        self.executing.pop(event.call, None)
        self.approvals.pop(event.call, None)
        for name in [name for name, one in self.questions.items() if one.call == event.call]:
            del self.questions[name]
        return NOTHING

    def _on_approval(self, event: e.ApprovalAsked) -> int:
        self.approvals[event.call] = event
        return self._asked()

    def _on_approved(self, event: e.ApprovalAnswered) -> int:
        self.approvals.pop(event.call, None)
        return self._asked()

    def _on_question(self, event: e.QuestionAsked) -> int:
        self.questions[event.question] = event
        if event.secret:
            self.secrets[event.question] = ASKED
        return self._asked()

    def _on_question_over(self, event: e.QuestionAnswered | e.QuestionWithdrawn) -> int:
        self.questions.pop(event.question, None)
        return self._asked()

    def _asked(self) -> int:
        """One question more or less is shown even where the state stays the same."""
        self._message_of_state()
        return STATUS_SHOWN

    def _on_noted(self, event: e.Noted) -> int:
        apply = _NOTED.get(event.kind)
        if apply is not None:
            return apply(self, event.body)
        return NOTHING

    def _on_message(self, body: Json) -> int:
        self._retire_message()
        _ = self._on_word(body)
        self._pass_secrets()
        self.waiting[str(body.get("key", body["messageId"]))] = None
        self._said = 0
        return NOTHING

    def _on_told(self, body: Json) -> int:
        """A message that is said to a model at once: from then on the agent works."""
        self.unheard += 1
        if "message" not in body:
            return NOTHING
        self._retire_message()
        self._pass_secrets()
        self._said, self._started = 0, True
        return self._on_word({**body["message"], "key": body["key"]}) | STATUS_SHOWN

    def _on_heard(self, body: Json) -> int:
        """A reply of the model, to what it was told until then."""
        self.unheard -= len(body.get("heard", ()))
        assert self.unheard >= 0, "nothing is heard twice"
        return NOTHING

    def _pass_secrets(self) -> None:
        for question in self.secrets:
            self.secrets[question] = PAST

    def _on_why(self, body: Json) -> int:
        self._why = str(body.get("why", ""))
        return NOTHING

    def _on_word(self, body: Json) -> int:
        message = notes.read_message(body)
        self._remember(message)
        key = body.get("key", message.message_id)
        if key != message.message_id:
            self._keyed[key] = message
            self.message_ids.add(key)
        answered = body.get("answers", "")
        if answered in self.secrets:
            self.secrets[answered] = TOLD
        if answered in self.approvals or answered in self.questions:
            # The answer itself follows in the record, or was not the first.
            self.approvals.pop(answered, None)
            self.questions.pop(answered, None)
            return self._asked()
        return NOTHING

    def _on_reply(self, body: Json) -> int:
        self.reply = notes.read_message(body)
        return NOTHING

    def _on_status(self, body: Json) -> int:
        state = notes.read_state(body.get("state"))
        message = notes.read_message(body["message"]) if "message" in body else None
        metadata = body.get("metadata")
        if metadata:
            self.metadata.update(metadata)
        if state in TERMINAL:
            # Only declared: it is the task's state if the run ends so, and not before.
            if self._declared is None:
                self._declared = (state, message, metadata)
            return NOTHING
        if state == SUBMITTED and self._started:
            state = WORKING
        self._said = self._last_said = state
        if self.approvals or self.questions:
            return NOTHING
        self._retire_message()
        self._message, self._status_metadata = message, metadata
        return STATUS_SHOWN

    def _on_artifact(self, body: Json) -> int:
        self._artifact = body
        artifact = notes.read_artifact(body["artifact"])
        known = self.artifacts.get(artifact.artifact_id) if body.get("append") else None
        if known is None:
            self.artifacts[artifact.artifact_id] = artifact
        else:
            known.parts.extend(artifact.parts)
            if artifact.HasField("metadata"):
                known.metadata.update(dict(artifact.metadata))
        return ARTIFACT_SHOWN

    def _on_metadata(self, body: Json) -> int:
        self.metadata.update(body)
        return NOTHING


_APPLY: dict[type, Callable[[TaskView, Any], int]] = {
    e.RunOpened: TaskView._on_opened,
    e.RunCancelled: TaskView._on_cancelled,
    e.RunClosing: TaskView._on_closing,
    e.RunEnded: TaskView._on_ended,
    e.CallAccepted: TaskView._on_accepted,
    e.CallStarted: TaskView._on_started,
    e.CallSettled: TaskView._on_settled,
    e.ApprovalAsked: TaskView._on_approval,
    e.ApprovalAnswered: TaskView._on_approved,
    e.QuestionAsked: TaskView._on_question,
    e.QuestionAnswered: TaskView._on_question_over,
    e.QuestionWithdrawn: TaskView._on_question_over,
    e.Noted: TaskView._on_noted,
}

_NOTED: dict[str, Callable[[TaskView, Json], int]] = {
    notes.MESSAGE: TaskView._on_message,
    notes.SAID: TaskView._on_word,
    conversation.USER: TaskView._on_told,
    conversation.REPLY: TaskView._on_heard,
    conversation.LIMIT: TaskView._on_why,
    conversation.FAILURE: TaskView._on_why,
    notes.REPLY: TaskView._on_reply,
    notes.STATUS: TaskView._on_status,
    notes.ARTIFACT: TaskView._on_artifact,
    notes.METADATA: TaskView._on_metadata,
}
