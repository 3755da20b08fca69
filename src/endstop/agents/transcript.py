"""Agents: the transcript of a loop, read from the recorded events of its run and from nothing else.

A loop that lives and one that takes up what a killed one left read the same journal through this
file, so both see the same transcript (law 15 record-first). Nothing here waits, asks or decides: it
says where the conversation stands.

Where a message has its place
-----------------------------
A reply stands behind what it was asked, and its results directly behind it, in request order (law 4
one-answer). What a user says meanwhile waits in `said` and gets its place with the next ask; the
reply's own note lists what it heard, because its place in the journal cannot tell: it may have been
said while the model was answering already. What is to be heard after everything else waits in
`later`, and moves to `said`, one at a time, when the model has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from endstop.adapters.parts import ANTHROPIC, Message
from endstop.adapters.repair import NO_RESULT, NOT_STARTED, repair
from endstop.adapters.reply import Reply, read_reply
from endstop.agents import notes
from endstop.core import events as e
from endstop.core.books import add_money
from endstop.core.terms import Effect, Money, Reason
from endstop.errors import CallerError
from endstop.run.results import CallResult
from endstop.tools.tool import Tool


class Step(Enum):
    """What comes next in a conversation, as it is recorded."""

    ASK = auto()
    """The model is to be asked: something was said, or its calls are answered."""
    SUBMIT = auto()
    """The last reply has calls and nobody has handed them in."""
    WAIT = auto()
    """The calls of the last reply are being run."""
    REST = auto()
    """The model has said its last word, and nobody has said anything since."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a user said: the number of its note, and the words."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """What the model reads of a call of which no ending is recorded."""

    text: str
    is_error: bool = True


@dataclass(slots=True, kw_only=True, eq=False)
class Turn:
    """The last reply and what is recorded of its calls."""

    reply: Reply
    batch: str | None = None
    accepted: list[e.CallAccepted] = field(default_factory=list)
    arguments: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    endings: dict[str, e.CallSettled] = field(default_factory=dict)
    earlier: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, Money | None] = field(default_factory=dict)
    began: set[str] = field(default_factory=set)
    answered: bool = False

    def results(self) -> list[CallResult]:
        """The answers of the calls that have theirs, in request order."""
        return [
            CallResult(
                self.endings[one.call],
                one.model_id,
                one.tool,
                self.arguments.get(one.call),
                self.earlier.get(one.call),
            )
            for one in self.accepted
            if one.call in self.endings
        ]

    def observations(self) -> list[Any]:
        """One observation per call; of a call without an ending, that it has none."""
        found: dict[int, Any] = {
            one.index: result.observation
            for one, result in zip(self._ended(), self.results(), strict=True)
        }
        return [
            found.get(index) or Unknown(NOT_STARTED if call.problem is not None else NO_RESULT)
            for index, call in enumerate(self.reply.calls)
        ]

    def charged(self, ending: e.CallSettled) -> tuple[Money, ...]:
        """What a call has cost, as the budget counts it (law 20 paid-once).

        What was reported; where a body that may have had its effect reported nothing, what its tool
        declares.
        """
        cost = self.costs.get(ending.call)
        free = ending.call not in self.began or ending.effect is Effect.NONE
        return ending.spent if ending.spent or cost is None or free else (cost,)

    def wants_the_end(self, tools: Mapping[str, Tool]) -> bool:
        """Whether every call of it succeeded and is of a tool that asks for no further reply.

        One that a human answered did not run, and asks for nothing.
        """
        results = self.results()
        return bool(results) and all(
            one.ok
            and one.reason is Reason.OK
            and one.tool in tools
            and _terminates(tools[one.tool])
            for one in results
        )

    def _ended(self) -> list[e.CallAccepted]:
        return [one for one in self.accepted if one.call in self.endings]


class Transcript:
    """A conversation as its run's journal tells it; feed it every event, in order.

    `turns`, `calls`, `tokens` and `spent` are what it has used: replies, bodies that began, and the
    money that is known, of replies and of its own calls. `results` are the answers of all batches
    that are over, in order; `ended` is the end of the run.
    """

    def __init__(self, format: str) -> None:
        self.format = format
        self.said: list[Said] = []
        self.later: list[Said] = []
        self.turn: Turn | None = None
        self.results: list[CallResult] = []
        self.turns = self.calls = self.tokens = self.cuts = 0
        self.ran_s = 0.0
        self.spent: tuple[Money, ...] = ()
        self.stopped: e.Noted | None = None
        self.closing: e.RunClosing | None = None
        self.cancelled: e.RunCancelled | None = None
        self.ended: e.RunEnded | None = None
        self._users: list[Said] = []
        self._placed: list[Message] = []
        self._ids: set[str] = set()
        self.terminated = False

    # -- reading events

    def apply(self, event: e.Event) -> None:
        """Take in one recorded event of the run.

        Raises CallerError where its replies are in another format.
        """
        if isinstance(event, e.Noted) and event.spent is not None:
            self.spent = add_money(self.spent, event.spent)
        match event:
            case e.Noted(kind=notes.USER):
                self._user(event.body)
            case e.Noted(kind=notes.REPLY):
                self._replied(event)
            case e.Noted(kind=notes.LIMIT | notes.FAILURE):
                self.stopped = event
            case e.RunCancelled():
                self.cancelled = self.cancelled or event
            case e.RunClosing():
                self.closing = event
            case e.RunEnded():
                self.ended = event
            case _ if self.turn is not None and not self.turn.answered:
                self._of_the_turn(self.turn, event)
            case _:
                pass

    def _user(self, body: dict[str, Any]) -> None:
        self.stopped = None
        said = Said(len(self._users), str(body.get("text", "")))
        self._users.append(said)
        after = body.get("when") == notes.When.AFTER and self.step is not Step.REST
        (self.later if after else self.said).append(said)

    def _replied(self, event: e.Noted) -> None:
        body = event.body
        format = body.get("format", self.format)
        if format != self.format:
            raise CallerError(
                f"run {event.run!r} was driven with a model that speaks {format!r}, and this one "
                f"speaks {self.format!r}; go on with a model of the same format"
            )
        for number in body.get("heard", ()):
            self._hear(self._users[number])
        reply = read_reply(body["body"], self.format)
        self.turns += 1
        self.tokens += notes.tokens_of(body)
        self.ran_s = float(body.get("ran_s", self.ran_s))
        self.cuts = self.cuts + 1 if reply.truncated else 0
        self.terminated = False
        self.turn = Turn(reply=reply)
        if not reply.calls:
            self._answered(self.turn, [])

    def _hear(self, said: Said) -> None:
        for line in (self.said, self.later):
            if said in line:
                line.remove(said)
        add_user(self._placed, said.text, self.format)

    def _of_the_turn(self, turn: Turn, event: e.Event) -> None:
        match event:
            case e.BatchOpened() if turn.batch is None and event.size == len(turn.reply.calls):
                turn.batch = event.batch
            case e.CallAccepted() if event.batch == turn.batch:
                asked = turn.reply.calls[event.index]
                if (asked.model_id, asked.tool) == (event.model_id, event.tool):
                    turn.accepted.append(event)
                    turn.arguments[event.call] = event.arguments
                    turn.costs[event.call] = event.cost
                else:
                    # A batch of somebody else that happens to have the same size.
                    turn.batch, turn.accepted = None, []
                    turn.arguments.clear()
            case e.ApprovalAsked() | e.CallQueued() if event.arguments is not None:
                turn.arguments[event.call] = event.arguments
                turn.costs[event.call] = event.cost
            case e.CallGranted() if event.call in turn.arguments:
                turn.earlier[event.call] = event.earlier
            case e.CallStarted() if event.call in turn.arguments:
                self.calls += event.call not in turn.began
                turn.began.add(event.call)
            case e.CallSettled() if event.call in turn.arguments:
                turn.endings[event.call] = event
                for money in turn.charged(event):
                    self.spent = add_money(self.spent, money)
            case e.BatchClosed() if event.batch == turn.batch:
                self._answered(turn, turn.observations())
            case _:
                pass

    def _answered(self, turn: Turn, observations: Sequence[Any]) -> None:
        turn.answered = True
        self.results += turn.results()
        place(self._placed, turn.reply, observations, self._ids)

    # -- where it stands

    @property
    def step(self) -> Step:
        """What comes next, were there no limit and no stop."""
        turn = self.turn
        if turn is None:
            return Step.ASK if self.said or self.later else Step.REST
        if not turn.answered:
            return Step.SUBMIT if turn.batch is None else Step.WAIT
        if self.said or (turn.reply.calls and not self.terminated):
            return Step.ASK
        if turn.reply.truncated and not turn.reply.calls:
            return Step.ASK
        return Step.ASK if self.later else Step.REST

    def terminate(self, tools: Mapping[str, Tool]) -> None:
        """Rest, if all calls of the last reply asked that no further one follows."""
        turn = self.turn
        if turn is not None and turn.answered and turn.wants_the_end(tools):
            self.terminated = True

    def hears(self) -> list[Said]:
        """What is new in the next ask, in the order in which it is said."""
        if self.said:
            return list(self.said)
        turn = self.turn
        idle = turn is None or (turn.answered and (not turn.reply.calls or self.terminated))
        if idle and not (turn is not None and turn.reply.truncated and not turn.reply.calls):
            return self.later[:1]
        return []

    def asked(self, heard: Sequence[Said]) -> list[Message]:
        """The messages of the next ask; every call in them has its result (law 4 one-answer)."""
        assert self.turn is None or self.turn.answered, "an ask comes after all answers"
        messages = list(self._placed)
        for said in heard:
            add_user(messages, said.text, self.format)
        return messages

    def messages(self) -> list[Message]:
        """The whole conversation so far, which pairs at any time.

        A call without an ending is answered as such: it may or may not have run (law 5).
        """
        messages = list(self._placed)
        if self.turn is not None and not self.turn.answered:
            place(messages, self.turn.reply, self.turn.observations(), set(self._ids))
        for said in (*self.said, *self.later):
            add_user(messages, said.text, self.format)
        return messages

    @property
    def text(self) -> str:
        """What the model said last."""
        return self.turn.reply.text if self.turn is not None else ""

    @property
    def unheard(self) -> bool:
        """Whether a user has said something since the last reply was asked for."""
        return bool(self.said)


def _terminates(tool: Tool) -> bool:
    return tool.declared.terminate


CUT_OFF = (
    "[Your last reply was cut off ({reason}). Go on from where it ended, in a shorter reply if need"
    " be.]"
)
"""What the model reads after a reply without calls that was not whole."""

_AGAIN = ""
"""Stands among the ids of a conversation in which one came twice."""


def add_user(messages: list[Message], text: str, format: str) -> None:
    """Append what a user says.

    Where roles have to alternate it joins the message before, behind the results in it.
    """
    last = messages[-1] if messages else None
    if format == ANTHROPIC and last is not None and last.get("role") == "user":
        content = last["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        added = [*blocks, {"type": "text", "text": text}]
        messages[-1] = {**last, "content": added}
    else:
        messages.append({"role": "user", "content": text})


def place(
    messages: list[Message], reply: Reply, observations: Sequence[Any], taken: set[str]
) -> None:
    """Append a reply and the results of its calls, under ids that the conversation has not seen."""
    messages += reply.stored()
    messages += reply.answer(observations)
    ids = [one for one in reply.ids if one]
    if _AGAIN in taken or not taken.isdisjoint(ids):
        # Ids that are made there may come again, too.
        taken.add(_AGAIN)
        messages[:] = repair(messages, reply.format).messages
    taken.update(ids)
    if reply.truncated and not reply.calls:
        add_user(messages, CUT_OFF.format(reason=reply.reason), reply.format)
