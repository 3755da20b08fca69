"""Answers: a message to a task that asks for something, as the answer to exactly that.

A yes is only what says yes: words that are no clear answer are refused with what would be one, and
change nothing (law 13 one-approval, silence is never consent). Reading is pure; `give` hands the
answer to the runtime, where the first one counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import Message
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict

from endstop.a2a.notes import Json, message_json, words_of
from endstop.core import events as e
from endstop.errors import CallerError, NotFound
from endstop.run.approvals import Answer, Approve, Edit, Reject, Respond
from endstop.run.questions import ANSWER_CHARS
from endstop.run.runtime import Runtime

SECRET = "endstop/secret"
"""The key in the metadata of a recorded answer whose words are in no record."""
UNSHOWN = "(a secret answer)"

YES = frozenset({"yes", "y", "ok", "approve", "approved"})
NO = frozenset({"no", "n", "reject", "rejected", "deny", "denied"})

HOW = (
    "answer with the text yes, no, 'no: why', 'edit {…}' or 'respond: …', or with a data part such "
    'as {"approve": true}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The answer to a call that waits for a yes; `digest` is of what the human was shown."""

    call: str
    digest: str
    answer: Answer

    @property
    def target(self) -> str:
        """What it answers."""
        return self.call


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer to a question of a running body."""

    question: str
    text: str

    @property
    def target(self) -> str:
        """What it answers."""
        return self.question


def read_answer(
    message: Message,
    approvals: Mapping[str, e.ApprovalAsked],
    questions: Mapping[str, e.QuestionAsked],
) -> Approval | Told:
    """What a message answers, of what is asked. Raises InvalidParamsError, in words, if nothing."""
    assert approvals or questions, "a message is an answer only where something is asked"
    data = data_in(message)
    text = words_of(message.parts).strip()
    named = str(data.get("question") or "") if data else ""
    if questions and (named or not approvals):
        return _told(named, data, text, questions)
    call = str(data.get("call") or "") if data else ""
    if not call and len(approvals) == 1:
        call = next(iter(approvals))
    asked = approvals.get(call)
    if asked is None:
        known = ", ".join(approvals)
        raise InvalidParamsError(
            f'several calls wait for an answer; name one in a data part, as {{"call": "…", '
            f'"approve": true}}: {known}'
            if not call
            else f"{call} does not wait for an answer; these do: {known}"
        )
    answer = _from_data(data) if data else _from_text(text)
    digest = str(data.get("digest") or asked.digest) if data else asked.digest
    return Approval(call=call, digest=digest, answer=answer)


def data_in(message: Message) -> dict[str, Any] | None:
    """The first object among the data of a message."""
    for part in message.parts:
        if part.WhichOneof("content") == "data":
            data = MessageToDict(part.data)
            if isinstance(data, dict):
                return data
    return None


def is_bare(data: Mapping[str, Any] | None, text: str) -> bool:
    """Whether what is said is a mere yes or no, without a word of whoever says it."""
    if data is not None:
        return "approve" in data and data.keys() <= {"approve", "call", "digest"}
    return text.rstrip(":,.!").lower() in YES | NO


def _told(
    named: str,
    data: Mapping[str, Any] | None,
    text: str,
    questions: Mapping[str, e.QuestionAsked],
) -> Told:
    if not named and len(questions) == 1:
        named = next(iter(questions))
    if named not in questions:
        known = ", ".join(questions)
        raise InvalidParamsError(
            f'answer one question by name, as {{"question": "…", "answer": "…"}}; open are: {known}'
        )
    said = data.get("answer", text) if data else text
    if not isinstance(said, str) or not said:
        raise InvalidParamsError(f"the answer to {named} is a text")
    return Told(question=named, text=said)


def _from_text(text: str) -> Answer:
    word, _, rest = text.partition(" ")
    head = word.rstrip(":,.!").lower()
    rest = rest.strip()
    if head in YES and not rest:
        return Approve()
    if head in NO:
        return Reject(rest)
    if head == "respond" and rest:
        return Respond(rest)
    if head == "edit":
        try:
            arguments = json.loads(rest)
        except ValueError as error:
            raise InvalidParamsError(f"edit: the new arguments are no JSON: {error}") from None
        return _edit(arguments)
    raise InvalidParamsError(f"this is no answer that is understood; {HOW}")


def _from_data(data: Mapping[str, Any]) -> Answer:
    said = str(data.get("message") or data.get("text") or "")
    verdict = data.get("verdict")
    if verdict is None and isinstance(data.get("approve"), bool):
        verdict = "approve" if data["approve"] else "reject"
    if verdict is None and "arguments" in data:
        verdict = "edit"
    match verdict:
        case "approve":
            return Approve()
        case "reject":
            return Reject(said)
        case "respond":
            return Respond(said)
        case "edit":
            return _edit(data.get("arguments"))
        case _:
            raise InvalidParamsError(f"the data part is no answer that is understood; {HOW}")


def _edit(arguments: object) -> Edit:
    if not isinstance(arguments, dict):
        raise InvalidParamsError("edit: the new arguments are a JSON object")
    # The protocol's numbers are all floating: what was written whole is meant whole.
    return Edit({key: _whole(value) for key, value in arguments.items()})


def _whole(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(one) for one in value]
        case dict():
            return {key: _whole(one) for key, one in value.items()}
        case _:
            return value


def check_answer(
    runtime: Runtime,
    answer: Approval | Told,
    approvals: Mapping[str, e.ApprovalAsked],
    questions: Mapping[str, e.QuestionAsked],
) -> None:
    """Refuse, in words, an answer that cannot be one, while nothing of it is recorded yet."""
    if isinstance(answer, Approval) and answer.digest != approvals[answer.call].digest:
        raise InvalidParamsError(
            f"{answer.call} asks for something else than what the digest says; look at it again"
        )
    match answer:
        case Told():
            choices = questions[answer.question].choices
            if choices and answer.text not in choices:
                known = ", ".join(map(repr, choices))
                raise InvalidParamsError(f"{answer.question} can be answered with one of: {known}")
            if len(answer.text) > ANSWER_CHARS:
                raise InvalidParamsError(f"an answer has at most {ANSWER_CHARS} characters")
        case Approval(answer=Edit() as edit):
            try:
                runtime._edited(answer.call, edit.arguments)
            except NotFound:
                return
            except CallerError as problem:
                raise InvalidParamsError(str(problem)) from None
        case _:
            return


def record_of(
    message: Message, key: str, answer: Approval | Told, questions: Mapping[str, e.QuestionAsked]
) -> Json:
    """A message that is an answer, as it is recorded: without its words where they are secret."""
    body = {**message_json(message), "key": key, "answers": answer.target}
    if isinstance(answer, Told) and questions[answer.question].secret:
        body |= {"parts": [{"text": UNSHOWN}], "metadata": {SECRET: True}}
    return body


def is_same(known: Message, message: Message) -> bool:
    """Whether two messages of one id say the same, as far as that was recorded."""
    return known.parts == message.parts or SECRET in known.metadata


def give(runtime: Runtime, answer: Approval | Told, by: str) -> bool:
    """Give an answer; false where it is too late. Raises InvalidParamsError for one that is bad."""
    try:
        match answer:
            case Approval():
                return runtime._answer(answer.call, answer.answer, by, answer.digest)
            case Told():
                return runtime.answer(answer.question, answer.text, by=by)
    except NotFound:
        return False
    except CallerError as problem:
        raise InvalidParamsError(str(problem)) from None
