"""Models: `Scripted`, a model for tests and demos that says what it was given to say.

No network, no randomness. It answers in the same formats as the real providers, so whatever works
with it works with them.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from endstop.adapters.parts import CHAT, FORMATS, RESPONSES
from endstop.agents.models.protocol import Ask, Body, Delta, ModelError, ModelReply, Usage
from endstop.core.payload import dumps
from endstop.errors import CallerError

_WORDS = re.compile(r"\S+\s*|\s+")
_UNCOUNTED = Usage(reported=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """One scripted reply: text, calls as (tool, arguments), or both.

    The text is shown word by word, `delay_s` seconds before each word; without text the reply comes
    after one delay. `cut` makes it a reply that ran into the token limit: its calls never run.
    """

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    thinking: str = ""
    delay_s: float = 0.0
    usage: Usage = field(default=_UNCOUNTED)
    cut: bool = False


Line = str | Say | ModelReply | Mapping[str, Any] | Exception
"""What a script may hold: text, `Say`, a whole reply or response body, or an error to raise."""


class Scripted:
    """A model that gives `replies` one after the other, or what a function makes of each ask.

    The function (plain or async) takes the `Ask` and returns one line; so may a line in the list.
    `asks` keeps what was asked. Asked once too often, it raises `ModelError` and says so.
    """

    def __init__(
        self,
        replies: Iterable[Line | Callable[[Ask], Any]] | Callable[[Ask], Any],
        *,
        format: str = CHAT,
        name: str = "scripted",
        delay_s: float = 0.0,
    ) -> None:
        if format not in FORMATS:
            known = ", ".join(repr(one) for one in FORMATS)
            raise CallerError(f"Scripted: unknown format {format!r}: use one of {known}")
        if isinstance(replies, str | bytes | Mapping | Say | ModelReply):
            raise CallerError(
                f"Scripted: replies is one {type(replies).__name__}, where a list of replies or a"
                " function of the ask is expected; write Scripted([...])"
            )
        self.name = name
        self.format = format
        self.asks: list[Ask] = []
        self._delay_s = delay_s
        self._function = replies if callable(replies) else None
        self._lines = [] if callable(replies) else list(replies)
        self._told = 0

    def __repr__(self) -> str:
        return f"Scripted({self.name!r}, {self._told} of {len(self._lines)} replies told)"

    @property
    def left(self) -> int:
        """How many replies of the list have not been given yet."""
        return len(self._lines) - self._told

    async def reply(self, ask: Ask, on_delta: Callable[[Delta], None]) -> ModelReply:
        """The next reply of the script. Raises `ModelError` where it has run out."""
        self.asks.append(replace(ask, messages=copy.deepcopy(list(ask.messages))))
        line = self._next()
        if callable(line):
            line = line(ask)
            if inspect.isawaitable(line):
                line = await line
        match line:
            case Exception():
                await asyncio.sleep(self._delay_s)
                raise line
            case ModelReply():
                await asyncio.sleep(self._delay_s)
                return line
            case str():
                return await self._say(Say(text=line, delay_s=self._delay_s), ask, on_delta)
            case Say():
                return await self._say(line, ask, on_delta)
            case Mapping():
                await asyncio.sleep(self._delay_s)
                return ModelReply(body=dict(line))
            case _:
                raise CallerError(
                    f"Scripted: a reply is {type(line).__name__}, where text, Say, ModelReply, a"
                    " response body or an exception is expected"
                )

    async def aclose(self) -> None:
        """Nothing is kept open."""

    def _next(self) -> Any:
        if self._function is not None:
            return self._function
        if self._told == len(self._lines):
            raise ModelError(
                "bad_request",
                f"The script of model {self.name!r} has run out: it has {len(self._lines)} replies"
                f" and was asked for one more (ask {len(self.asks)}). Give Scripted another reply,"
                " or let the last one make no calls, so that the loop ends",
            )
        self._told += 1
        return self._lines[self._told - 1]

    async def _say(self, say: Say, ask: Ask, on_delta: Callable[[Delta], None]) -> ModelReply:
        delay_s = say.delay_s or self._delay_s
        if say.thinking:
            await asyncio.sleep(delay_s)
            on_delta(Delta(thinking=say.thinking))
        for word in _WORDS.findall(say.text):
            await asyncio.sleep(delay_s)
            on_delta(Delta(text=word))
        if not say.text:
            await asyncio.sleep(delay_s)
        # Ids are unique in a conversation, also when another script goes on with it.
        ids = [f"call_{len(ask.messages)}_{n}" for n in range(1, len(say.calls) + 1)]
        return ModelReply(body=_body(self.format, self.name, say, ids), usage=say.usage)


def _body(format: str, name: str, say: Say, ids: list[str]) -> Body:
    match format:
        case "openai-chat":
            return {"object": "chat.completion", "model": name, "choices": [_choice(say, ids)]}
        case "anthropic-messages":
            return _anthropic(name, say, ids)
        case _:
            assert format == RESPONSES, format
            return _response(name, say, ids)


def _choice(say: Say, ids: list[str]) -> Body:
    message: Body = {"role": "assistant", "content": say.text or None}
    if say.thinking:
        message["reasoning_content"] = say.thinking
    if say.calls:
        message["tool_calls"] = [
            {"id": one, "type": "function", "function": {"name": tool, "arguments": dumps(given)}}
            for one, (tool, given) in zip(ids, say.calls, strict=True)
        ]
    reason = "length" if say.cut else "tool_calls" if say.calls else "stop"
    return {"index": 0, "message": message, "finish_reason": reason}


def _anthropic(name: str, say: Say, ids: list[str]) -> Body:
    content: list[Body] = []
    if say.thinking:
        content.append({"type": "thinking", "thinking": say.thinking, "signature": "scripted"})
    if say.text:
        content.append({"type": "text", "text": say.text})
    content += [
        {"type": "tool_use", "id": one, "name": tool, "input": dict(given)}
        for one, (tool, given) in zip(ids, say.calls, strict=True)
    ]
    reason = "max_tokens" if say.cut else "tool_use" if say.calls else "end_turn"
    return {
        "type": "message",
        "role": "assistant",
        "model": name,
        "content": content,
        "stop_reason": reason,
    }


def _response(name: str, say: Say, ids: list[str]) -> Body:
    output: list[Body] = []
    if say.text:
        part = {"type": "output_text", "text": say.text, "annotations": []}
        output.append({"type": "message", "role": "assistant", "content": [part]})
    output += [
        {"type": "function_call", "call_id": one, "name": tool, "arguments": dumps(given)}
        for one, (tool, given) in zip(ids, say.calls, strict=True)
    ]
    body: Body = {"object": "response", "model": name, "status": "completed", "output": output}
    if say.cut:
        body |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return body
