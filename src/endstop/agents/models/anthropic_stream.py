"""Models: the stream of an Anthropic message, put together to one response body.

A message is whole once `message_stop` has come, every block was closed and there is a stop reason.
No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endstop.adapters.parts import ANY_SIZE, joined_text, mapping_of, stored_object, text_of
from endstop.agents.models.protocol import Body, Delta
from endstop.agents.models.reading import Malformed, Reported, as_object
from endstop.agents.models.sse import Event
from endstop.core.payload import read_arguments
from endstop.core.text import scrub

# delta type -> (its field, the field of the block that it goes on with)
_TEXTS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "compaction_delta": ("content", "content"),
}


class AnthropicStream:
    """Takes the events of one stream."""

    def __init__(self) -> None:
        self.done = False
        self._message: Body | None = None
        self._blocks: dict[int, Body] = {}
        self._inputs: dict[int, list[str]] = {}
        self._texts: dict[int, dict[str, list[str]]] = {}
        self._open: set[int] = set()

    @property
    def begun(self) -> bool:
        """Whether a block of content has come."""
        return bool(self._blocks)

    def ends(self, event: Event) -> bool:
        """Whether this is `message_stop`."""
        try:
            return as_object(event.data).get("type") == "message_stop"
        except Malformed:
            return False

    def take(self, event: Event) -> Delta:
        """Add one event; kinds that are not known are passed over."""
        if not event.data.strip():
            return Delta()
        body = as_object(event.data)
        kind = text_of(body.get("type")) or event.name
        if kind == "error" or event.name == "error" or (body.get("error") and "type" not in body):
            raise Reported(body)
        if kind == "message_start":
            if self._message is not None:
                raise Malformed("began a second message in one stream")
            self._message = dict(mapping_of(body.get("message")))
        elif kind == "message_delta":
            self._end_message(body)
        elif kind == "message_stop":
            self.done = True
        elif kind == "content_block_start":
            return self._start(self._index(body), mapping_of(body.get("content_block")))
        elif kind == "content_block_delta":
            return self._extend(self._index(body), mapping_of(body.get("delta")))
        elif kind == "content_block_stop":
            self._open.discard(self._index(body))
        return Delta()

    def whole(self) -> Body:
        """The response body, as if it had not been streamed."""
        if not self.done:
            raise Malformed("ended the stream before message_stop, so that the reply is not whole")
        if self._message is None:
            raise Malformed("sent a stream without a message in it")
        if self._open:
            raise Malformed("ended the stream in the middle of a block of content")
        if not self._message.get("stop_reason"):
            raise Malformed("ended the stream without a stop_reason, as if it had been cut off")
        content = [self._block(index) for index in sorted(self._blocks)]
        return {**self._message, "content": content}

    def unstreamed(self, body: Mapping[str, Any]) -> tuple[Body, Delta]:
        """A whole message."""
        if not isinstance(body.get("content"), list):
            keys = [text_of(key) for key in list(body)[:8]]
            raise Malformed(f"answered with an object without `content` (its keys: {keys})")
        return dict(body), Delta(text=joined_text(body["content"]))

    def _index(self, body: Mapping[str, Any]) -> int:
        index = body.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            raise Malformed("sent a piece of content without its index")
        return index

    def _start(self, index: int, block: Mapping[str, Any]) -> Delta:
        if index in self._blocks:
            raise Malformed(f"began block {index} of the content twice")
        if self._message is None:
            raise Malformed("sent content before message_start")
        self._blocks[index] = dict(block)
        self._open.add(index)
        text = block.get("text")
        return Delta(text=scrub(text) if isinstance(text, str) else "")

    def _extend(self, index: int, delta: Mapping[str, Any]) -> Delta:
        if index not in self._open:
            raise Malformed(f"sent more of block {index} of the content, which is not open")
        block, kind = self._blocks[index], text_of(delta.get("type"))
        if kind == "input_json_delta":
            piece = delta.get("partial_json")
            self._inputs.setdefault(index, []).append(piece if isinstance(piece, str) else "")
        elif kind == "signature_delta":
            block["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            if not isinstance(block.get("citations"), list):
                block["citations"] = []
            block["citations"].append(delta.get("citation"))
        elif kind in _TEXTS:
            source, target = _TEXTS[kind]
            piece = delta.get(source)
            if isinstance(piece, str) and piece:
                self._texts.setdefault(index, {}).setdefault(target, []).append(piece)
                if kind == "text_delta":
                    return Delta(text=scrub(piece))
                return Delta(thinking=scrub(piece) if kind == "thinking_delta" else "")
        return Delta()

    def _end_message(self, body: Mapping[str, Any]) -> None:
        if self._message is None:
            raise Malformed("sent message_delta before message_start")
        for key, value in mapping_of(body.get("delta")).items():
            if value is not None:
                self._message[key] = value
        # The last count of each kind stands; the first event has counts of the input already.
        used = {k: v for k, v in mapping_of(body.get("usage")).items() if v is not None}
        self._message["usage"] = {**mapping_of(self._message.get("usage")), **used}
        for key, value in body.items():
            if key not in ("type", "delta", "usage") and value is not None:
                self._message[key] = value

    def _block(self, index: int) -> Body:
        block = dict(self._blocks[index])
        for key, pieces in self._texts.get(index, {}).items():
            first = block.get(key)
            block[key] = (first if isinstance(first, str) else "") + "".join(pieces)
        text = "".join(self._inputs.get(index, ()))
        if text.strip():
            arguments, problem = read_arguments(text)
            if problem is None:
                block["input"] = arguments
            elif block.get("type") == "tool_use":
                # As it came: the reader of the reply says what is wrong with it, and runs nothing.
                block["input"] = text
            else:
                block["input"] = stored_object(text, ANY_SIZE)
        return block
