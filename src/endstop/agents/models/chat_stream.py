"""Models: the stream of a chat completion, put together to one response body.

Servers that speak this format differ in every corner; what is taken for what is decided here. In
doubt the calls come out in a form that `read_reply` refuses to run, never as another call than the
model made (law 5 honest-effect). No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from endstop.adapters.openai_chat import CUT
from endstop.adapters.parts import joined_text, listed, mapping_of, text_of
from endstop.agents.models.chat_calls import Calls
from endstop.agents.models.protocol import Body, Delta
from endstop.agents.models.reading import Malformed, Reported, as_object
from endstop.agents.models.sse import Event
from endstop.core.text import scrub

END = "[DONE]"

# What a chunk says of itself and not of the reply.
_OF_CHUNKS = frozenset({"choices", "object", "obfuscation", "x_groq", "error"})
_TEXTS = ("refusal", "reasoning_content", "reasoning", "thinking")
_LISTS = ("annotations", "images", "citations")
_OWN = frozenset({"content", "tool_calls", "function_call", "reasoning_details", *_TEXTS, *_LISTS})


class ChatStream:
    """Takes the chunks of one stream.

    A reply is whole once every choice has a finish reason and `[DONE]` has come; with
    `needs_done=False` a clean end of the answer is as good as `[DONE]`, for servers that never send
    it.
    """

    def __init__(self, *, needs_done: bool = True) -> None:
        self.done = False
        self.begun = False
        self._needs_done = needs_done
        self._head: Body = {}
        self._choices: dict[int, _Choice] = {}

    def ends(self, event: Event) -> bool:
        """Whether this is `[DONE]`."""
        return event.data.strip() == END

    def take(self, event: Event) -> Delta:
        """Add one chunk; the delta is of the first choice."""
        if self.ends(event):
            self.done = True
            return Delta()
        if not event.data.strip():
            return Delta()
        chunk = as_object(event.data)
        if chunk.get("error") or chunk.get("object") == "error":
            raise Reported(chunk)
        said = {k: v for k, v in chunk.items() if k not in _OF_CHUNKS and v is not None}
        # Some servers give every chunk an id of its own.
        first = {"id": self._head["id"]} if "id" in self._head else {}
        self._head |= said | first
        groq = mapping_of(chunk.get("x_groq"))
        if groq.get("usage"):
            self._head["usage"] = groq["usage"]
        delta = Delta()
        for place, item in enumerate(listed(chunk.get("choices"), "`choices`")):
            choice = mapping_of(item)
            index = choice.get("index")
            index = index if isinstance(index, int) else place
            mine = self._choices.setdefault(index, _Choice())
            shown = mine.take(choice)
            self.begun = self.begun or mine.begun
            if mine is next(iter(self._choices.values())):
                delta = shown
        return delta

    def whole(self) -> Body:
        """The response body, as if it had not been streamed."""
        if not self.done and self._needs_done:
            raise Malformed(f"ended the stream before {END}, so that the reply is not whole")
        if not self._choices:
            raise Malformed("sent a stream without a reply in it")
        if any(not choice.finish for choice in self._choices.values()):
            raise Malformed("ended the stream without a finish_reason, as if it had been cut off")
        choices = [
            {"index": index, "message": choice.message(), "finish_reason": choice.finish}
            for index, choice in sorted(self._choices.items())
        ]
        return {**self._head, "object": "chat.completion", "choices": choices}

    def unstreamed(self, body: Mapping[str, Any]) -> tuple[Body, Delta]:
        """A whole completion."""
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            keys = [text_of(key) for key in list(body)[:8]]
            raise Malformed(f"answered with an object without `choices` (its keys: {keys})")
        message = mapping_of(mapping_of(choices[0]).get("message"))
        return dict(body), Delta(text=joined_text(message.get("content")))


@dataclass(slots=True)
class _Choice:
    begun: bool = False
    finish: str = ""
    _content: list[Any] = field(default_factory=list)
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _lists: dict[str, list[Any]] = field(default_factory=dict)
    _details: list[Body] = field(default_factory=list)
    _others: Body = field(default_factory=dict)
    _calls: Calls = field(default_factory=Calls)
    _legacy: Body = field(default_factory=dict)

    def take(self, choice: Mapping[str, Any]) -> Delta:
        """Add what one chunk says of this choice."""
        delta = mapping_of(choice.get("delta"))
        if not delta and not self.begun:
            # Some servers send the whole message instead, some once more at the end.
            delta = mapping_of(choice.get("message"))
        text = self._add_content(delta.get("content"))
        thinking = ""
        for key in _TEXTS:
            piece = delta.get(key)
            if isinstance(piece, str) and piece:
                self._texts.setdefault(key, []).append(piece)
                if key == "refusal":
                    text += piece
                elif not thinking:
                    thinking = piece
        for key in _LISTS:
            if isinstance(delta.get(key), list):
                self._lists.setdefault(key, []).extend(delta[key])
        for detail in listed(delta.get("reasoning_details"), "`reasoning_details`"):
            self._add_detail(mapping_of(detail))
        called = self._calls.take(listed(delta.get("tool_calls"), "`tool_calls`"))
        called = self._add_legacy(mapping_of(delta.get("function_call"))) or called
        self._others |= {
            key: value for key, value in delta.items() if key not in _OWN and value is not None
        }
        self.begun = self.begun or called or bool(text or thinking or self._details)
        self._finished(text_of(choice.get("finish_reason")))
        return Delta(text=scrub(text), thinking=scrub(thinking))

    def message(self) -> Body:
        """The assistant's message."""
        message: Body = {**self._others, "role": "assistant", "content": self._joined_content()}
        message |= {key: "".join(pieces) for key, pieces in self._texts.items()}
        message |= self._lists
        if self._details:
            message["reasoning_details"] = self._details
        calls = self._calls.made()
        if calls:
            message["tool_calls"] = calls
        if self._legacy:
            message["function_call"] = dict(self._legacy)
        return message

    def _finished(self, reason: str) -> None:
        if not reason or reason == "null":
            return
        # A reply that was cut stays cut, whatever a later chunk says.
        if self.finish.lower() not in CUT:
            self.finish = reason

    def _add_content(self, content: object) -> str:
        if isinstance(content, str):
            if content:
                self._content.append(content)
            return content
        if content is None:
            return ""
        parts = listed(content, "`content`")
        self._content += parts
        return joined_text(parts)

    def _joined_content(self) -> str | list[Any] | None:
        if all(isinstance(part, str) for part in self._content):
            return "".join(self._content) or None
        merged: list[Any] = []
        for part in self._content:
            part = {"type": "text", "text": part} if isinstance(part, str) else part
            last = mapping_of(merged[-1]) if merged else {}
            now = mapping_of(part)
            if last.get("type") == now.get("type") == "text" and now.keys() == {"type", "text"}:
                merged[-1] = {**last, "text": f"{last.get('text', '')}{now['text']}"}
            else:
                merged.append(part)
        return merged

    def _add_detail(self, detail: Mapping[str, Any]) -> None:
        last = self._details[-1] if self._details else {}
        same = all(last.get(key) == detail.get(key) for key in ("type", "index"))
        if not self._details or not same:
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(value, str):
                last[key] = f"{last.get(key) or ''}{value}"
            elif value is not None:
                last[key] = value

    def _add_legacy(self, call: Mapping[str, Any]) -> bool:
        if not call:
            return False
        mine = self._legacy or {"name": "", "arguments": ""}
        name, arguments = call.get("name"), call.get("arguments")
        if isinstance(name, str) and name != mine["name"]:
            mine["name"] += name
        if isinstance(arguments, str):
            mine["arguments"] += arguments
        self._legacy = mine
        return True
