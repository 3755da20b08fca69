"""Models: from the bytes of an answer to a whole response body, or to an error.

An answer is a stream of events or one JSON document, whatever was asked for and whatever its type
says. A reply counts only if it is whole: what was cut off, anywhere, is an error here and never
becomes a body (law 1 one-door: what did not arrive whole is never executed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from endstop.adapters.reply import read_reply
from endstop.agents.models import failures
from endstop.agents.models.failures import Redactor
from endstop.agents.models.http import Answer, Failed
from endstop.agents.models.protocol import Body, Delta, ModelError
from endstop.agents.models.sse import Event, Events, TooLong
from endstop.core.text import InvalidJson, loads
from endstop.errors import CallerError

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_BEFORE = _BLANK + _BOM[:1]
_NOTHING = Delta()


class Assembler(Protocol):
    """Puts the events of one stream together, in one provider's format."""

    @property
    def done(self) -> bool:
        """Whether the mark that ends the stream has come; nothing after it counts."""
        ...

    @property
    def begun(self) -> bool:
        """Whether anything of the reply itself has come."""
        ...

    def take(self, event: Event) -> Delta:
        """Add one event. Raises `Malformed`, or `Reported` where it is an error."""
        ...

    def ends(self, event: Event) -> bool:
        """Whether this event is the mark that ends the stream."""
        ...

    def whole(self) -> Body:
        """The response body. Raises `Malformed` where it is not whole."""
        ...

    def unstreamed(self, body: Mapping[str, Any]) -> tuple[Body, Delta]:
        """A body that came as one document, and what to show. Raises `Malformed`."""
        ...


class Malformed(Exception):
    """The stream is not what its format promises; the message continues "the server …"."""


class Reported(Exception):
    """The stream carries an error of the provider, as it was received."""

    def __init__(self, body: object) -> None:
        super().__init__("the provider reported an error")
        self.body = body


def as_object(data: str) -> Mapping[str, Any]:
    """The JSON object that an event carries. Raises `Malformed`."""
    try:
        value = loads(data)
    except InvalidJson as error:
        raise Malformed(f"sent an event that is not valid JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise Malformed(f"sent an event that is {type(value).__name__}, not an object")
    return value


def readable(body: Body, format: str, where: str) -> Body:
    """`body`, once it is sure that `read_reply` can read it. Raises `ModelError`."""
    try:
        read_reply(body, format)
    except CallerError as error:
        raise failures.broken(where, f"the reply cannot be read: {error}") from None
    return body


def _parsed(data: str) -> object:
    try:
        return loads(data)
    except InvalidJson:
        return data


class Reading:
    """Reads one answer through one assembler. What is shown goes to `on_delta`."""

    def __init__(
        self,
        assembler: Assembler,
        on_delta: Callable[[Delta], None],
        *,
        where: str,
        redact: Redactor,
        event_limit: int,
    ) -> None:
        self._assembler = assembler
        self._on_delta = on_delta
        self._where = where
        self._redact = redact
        self._events = Events(limit=event_limit)
        # Until it is clear what comes, and all of it where it is one document.
        self._head = bytearray()
        self._streamed = False

    async def read(self, answer: Answer) -> Body:
        """The whole body. Raises `Failed`, or `ModelError` where no other attempt could help."""

        def take(chunk: bytes) -> bool:
            try:
                return self.feed(chunk)
            finally:
                answer.begun = self._assembler.begun

        try:
            await answer.feed(take)
            return self.end()
        except ModelError as error:
            again = error.kind in failures.AGAIN or error.kind == "broken_stream"
            raise Failed(error, again=again and not self._assembler.begun) from error.__cause__

    def feed(self, chunk: bytes) -> bool:
        """Take what has arrived; True once nothing more is needed. Raises `ModelError`."""
        if not self._streamed:
            self._head += chunk
            if self._head[:1] in _BEFORE:
                # A mark of the encoding and blanks to keep the connection alive say nothing.
                self._head = self._head.removeprefix(_BOM).lstrip(_BLANK)
            start = bytes(self._head[:1])
            if not start or start in b"{[<" or _BOM.startswith(bytes(self._head)):
                return False
            self._streamed, chunk = True, bytes(self._head)
        try:
            for event in self._events.feed(chunk):
                self._take(event)
                if self._assembler.done:
                    return True
        except TooLong as error:
            raise ModelError(
                "too_large",
                f"{self._where}: {error}; the reply was given up. Ask for less, or raise"
                " event_bytes in HttpLimits.",
            ) from None
        return False

    def end(self) -> Body:
        """The whole body, now that all has arrived. Raises `ModelError`."""
        if not self._streamed and self._head.strip(_BLANK):
            return self._document()
        rest = None if self._assembler.done else self._events.end()
        if rest is not None and self._assembler.ends(rest):
            self._take(rest)
        try:
            return self._assembler.whole()
        except Malformed as error:
            raise failures.broken(self._where, f"the server {error}") from None

    def _take(self, event: Event) -> None:
        try:
            if event.name == "error":
                raise Reported(_parsed(event.data))
            delta = self._assembler.take(event)
        except Reported as reported:
            raise failures.from_error(self._where, reported.body, self._redact) from None
        except (Malformed, CallerError) as error:
            raise failures.broken(self._where, f"the server {self._redact(str(error))}") from None
        if delta != _NOTHING:
            self._on_delta(delta)

    def _document(self) -> Body:
        text = bytes(self._head).decode(errors="replace").strip()
        if text.startswith("<"):
            words = self._redact(failures.plain_words(text.encode()))
            raise self._stranger(f"answered with {words}")
        try:
            value = loads(text)
        except InvalidJson as error:
            raise self._no_json(text, str(error)) from None
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, Mapping):
            raise self._stranger(f"answered with a JSON {type(value).__name__}")
        if value.get("error") or value.get("type") == "error" or value.get("object") == "error":
            raise failures.from_error(self._where, value, self._redact)
        try:
            body, delta = self._assembler.unstreamed(value)
        except (Malformed, CallerError) as error:
            raise self._stranger(str(error)) from None
        if delta != _NOTHING:
            self._on_delta(delta)
        return body

    def _no_json(self, text: str, problem: str) -> ModelError:
        first = text.split("\n", 1)[0]
        if first != text and first.startswith("{") and first.rstrip().endswith("}"):
            return self._stranger("answered with lines of JSON, which is another protocol")
        words = self._redact(problem)
        return failures.broken(self._where, f"the answer is not valid JSON: {words}")

    def _stranger(self, what: str) -> ModelError:
        return ModelError(
            "bad_request",
            f"{self._where} {what}. Is base_url right? Most servers want it to end in /v1.",
        )
