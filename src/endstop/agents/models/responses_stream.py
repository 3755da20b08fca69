"""Models: the stream of an OpenAI response, put together to one response body.

The last event carries the whole response; the events before it are for showing. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endstop.adapters.parts import joined_text, listed, mapping_of, text_of
from endstop.agents.models.protocol import Body, Delta
from endstop.agents.models.reading import Malformed, Reported, as_object
from endstop.agents.models.sse import Event
from endstop.core.text import scrub

_LAST = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THINKING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class ResponsesStream:
    """Takes the events of one stream."""

    def __init__(self) -> None:
        self.done = False
        self.begun = False
        self._items: dict[int, Any] = {}
        self._response: Body | None = None

    def ends(self, event: Event) -> bool:
        """Whether this event carries the whole response."""
        try:
            return _kind(event, as_object(event.data)) in _LAST
        except Malformed:
            return False

    def take(self, event: Event) -> Delta:
        """Add one event; kinds that are not known are passed over."""
        data = event.data.strip()
        if not data or data == "[DONE]":
            return Delta()
        body = as_object(data)
        kind = _kind(event, body)
        if kind == "error" or (body.get("error") and not kind.startswith("response.")):
            raise Reported(body)
        if kind in _LAST:
            return self._last(kind, body)
        if kind.startswith("response.output") or kind in _TEXT | _THINKING:
            self.begun = True
        if kind == "response.output_item.done":
            index = body.get("output_index")
            self._items[index if isinstance(index, int) else len(self._items)] = body.get("item")
        piece = body.get("delta")
        shown = scrub(piece) if isinstance(piece, str) else ""
        if kind in _TEXT:
            return Delta(text=shown)
        return Delta(thinking=shown) if kind in _THINKING else Delta()

    def _last(self, kind: str, body: Mapping[str, Any]) -> Delta:
        response = mapping_of(body.get("response"))
        if kind == "response.failed":
            raise Reported(response if response.get("error") else body)
        self.done = True
        self._response = dict(response)
        if not listed(response.get("output"), "`output`") and self._items:
            self._response["output"] = [item for _, item in sorted(self._items.items())]
        return Delta()

    def whole(self) -> Body:
        """The response body, as if it had not been streamed."""
        if not self.done or self._response is None:
            raise Malformed("ended the stream before response.completed; the reply is not whole")
        return self._response

    def unstreamed(self, body: Mapping[str, Any]) -> tuple[Body, Delta]:
        """A whole response."""
        output = body.get("output")
        if not isinstance(output, list):
            keys = [text_of(key) for key in list(body)[:8]]
            raise Malformed(f"answered with an object without `output` (its keys: {keys})")
        if body.get("status") in ("queued", "in_progress"):
            raise Malformed(f"answered with a response that is still {body['status']}")
        texts = [joined_text(mapping_of(item).get("content")) for item in output]
        return dict(body), Delta(text="".join(texts))


def _kind(event: Event, body: Mapping[str, Any]) -> str:
    return text_of(body.get("type")) or event.name
