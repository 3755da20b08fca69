"""Models: the pieces of tool calls in a chat stream, put together by the rules and around them.

By the rules a call has an `index`; its first piece has id and name, the others more arguments.
Some servers give no index, or 0 to every call; some give no ids, or a new one with every piece;
some repeat the name; some send a whole call at once, or once more at the end. A piece is taken for
the beginning of another call only where it cannot be more of the one before: arguments of two
calls run together are no valid JSON and are refused, but one call cut in two might run. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from endstop.adapters.parts import mapping_of, text_of
from endstop.agents.models.protocol import Body
from endstop.agents.models.reading import Malformed
from endstop.core.payload import Unserialisable, dumps
from endstop.core.text import InvalidJson, loads

_FEW = 50
_OWN = frozenset({"index", "id", "type", "function", "custom"})


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str = ""
    name: str = ""
    kind: str = "function"
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    braces: int = 0
    extra: Body = field(default_factory=dict)
    function_extra: Body = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole object, so that nothing can follow."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        # To look again after each of many pieces would cost the square of their number.
        if len(self.pieces) > _FEW and self.braces != 0:
            return False
        try:
            return isinstance(loads(self.text), Mapping)
        except InvalidJson:
            return False

    def is_all(self, text: str) -> bool:
        """Whether `text` is all of the arguments that have come so far."""
        return self.size == len(text) and self.text == text

    def made(self) -> Body:
        """The entry of `tool_calls`."""
        inner: Body = {**self.function_extra, "name": self.name}
        inner["input" if self.kind == "custom" else "arguments"] = self.text
        return {**self.extra, "id": self.id, "type": self.kind, self.kind: inner}


class Calls:
    """The calls of one message."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        # The call that the piece before, in the same chunk, belongs to.
        self._just: _Call | None = None

    def take(self, entries: list[Any]) -> bool:
        """Add the pieces of one chunk; whether there were any. Raises `Malformed`."""
        self._just = None
        for place, entry in enumerate(entries):
            if entry is None:
                continue
            if not isinstance(entry, Mapping):
                raise Malformed(f"sent a piece of a tool call that is {type(entry).__name__}")
            self._take(entry, place if len(entries) > 1 else None)
        return bool(entries)

    def made(self) -> list[Body]:
        """The calls, in the order of their indexes, or else as they came."""
        calls = self._calls
        if all(call.index is not None for call in calls):
            calls = sorted(calls, key=lambda call: call.index or 0)
        return [call.made() for call in calls]

    def _take(self, entry: Mapping[str, Any], place: int | None) -> None:
        kind = "custom" if isinstance(entry.get("custom"), Mapping) else "function"
        inner = mapping_of(entry.get(kind))
        made_id, name = text_of(entry.get("id")), text_of(inner.get("name"))
        arguments = inner.get("input" if kind == "custom" else "arguments")
        # Some servers send arguments as an object, all at once.
        text = _written(arguments) if isinstance(arguments, Mapping | list) else arguments
        text = text if isinstance(text, str) else ""
        index = _index(entry.get("index"))
        call = self._find(index, place, made_id, name, text)
        self._just = call
        same = made_id == call.id if made_id else index is not None
        # A whole call that comes once more, under the same id or index, is the same call.
        again = same and call.is_all(text) and call.complete
        call.id = call.id or made_id
        if name and name != call.name:
            call.name += name
        if text and not again:
            call.pieces.append(text)
            call.size += len(text)
            call.braces += text.count("{") - text.count("}")
        if kind == "custom":
            call.kind = kind
        call.extra |= {k: v for k, v in entry.items() if k not in _OWN and v is not None}
        call.function_extra |= {
            key: value
            for key, value in inner.items()
            if key not in ("name", "arguments", "input") and value is not None
        }

    def _find(
        self, index: int | None, place: int | None, made_id: str, name: str, text: str
    ) -> _Call:
        """The call that a piece belongs to, begun if need be."""
        known = next((call for call in self._calls if made_id and call.id == made_id), None)
        if index is not None:
            if index not in self._at:
                return self._begin(index) if name or known is None else known
            current = self._at[index]
            if known is not None and current.id and current.id != made_id:
                return known
            return self._begin(index) if self._begins(current, made_id, name, text) else current
        if known is not None:
            return known
        if not self._calls:
            return self._begin(None)
        if not made_id and not name and place is not None and place < len(self._calls):
            return self._calls[place]
        last = self._calls[-1]
        return self._begin(None) if self._begins(last, made_id, name, text) else last

    def _begin(self, index: int | None) -> _Call:
        call = _Call(index=index)
        self._calls.append(call)
        if index is not None:
            self._at[index] = call
        return call

    def _begins(self, current: _Call, made_id: str, name: str, text: str) -> bool:
        """Whether a piece in the place of `current` is the beginning of another call."""
        if not name:
            # Servers that make up an id per piece name the tool only once.
            return False
        if made_id and current.id and made_id != current.id:
            return True
        if current is self._just and not made_id:
            return True
        if not text.strip() or not current.name:
            return False
        if name == current.name and made_id:
            return False
        if name == current.name and current.index is not None and current.is_all(text):
            return False
        return current.complete


def _written(arguments: Mapping[str, Any] | list[Any]) -> str:
    try:
        return dumps(arguments)
    except Unserialisable as error:
        raise Malformed(f"sent arguments of a tool call that cannot be read: {error}") from None


def _index(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else None
