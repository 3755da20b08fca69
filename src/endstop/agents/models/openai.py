"""Models: OpenAI, and the many servers that speak its protocols. No SDK.

`OpenAICompatible` asks for chat completions, which nearly every server offers; `OpenAIResponses`
for responses, which OpenAI itself recommends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar

from endstop.adapters.parts import CHAT, RESPONSES, mapping_of
from endstop.agents.models.chat_stream import ChatStream
from endstop.agents.models.http import HttpLimits
from endstop.agents.models.protocol import Ask, Body, Delta, ModelError, ModelReply, Prices, Usage
from endstop.agents.models.provider import HttpModel, count, host_of
from endstop.agents.models.reading import Assembler
from endstop.agents.models.responses_stream import ResponsesStream
from endstop.core.terms import Money
from endstop.tools.tool import Tool

OPENAI_URL = "https://api.openai.com/v1"
_KEY = "OPENAI_API_KEY"
_OPENROUTER = "openrouter.ai"


class _OpenAI(HttpModel):
    """What the two protocols share: the default address and whom its key is for."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        prices: Prices | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
            key_env = key_env or _KEY
        elif host_of(base_url) == host_of(OPENAI_URL):
            # The key in OPENAI_API_KEY is OpenAI's: another server never sees it unasked.
            key_env = key_env or _KEY
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            key_env=key_env,
            headers=headers,
            extra=extra,
            prices=prices,
            limits=limits,
        )

    @property
    def _host(self) -> str:
        return host_of(self.base_url)

    def _auth(self, key: str) -> Mapping[str, str]:
        if self._host.endswith(".openai.azure.com"):
            return {"api-key": key}
        return {"authorization": f"Bearer {key}"}


class OpenAICompatible(_OpenAI):
    """Chat completions: OpenAI, Ollama, vLLM, LM Studio, llama.cpp, OpenRouter and others.

    Without `base_url` it is OpenAI (or OPENAI_BASE_URL), with the key in OPENAI_API_KEY. For
    another server give its address (usually ending in /v1) and, where it wants one, `api_key` or
    the environment variable that holds it, `key_env`. `extra` is added to every request; a None in
    it takes a field out. `needs_done=False` is for servers that end their streams without [DONE].
    Raises `CallerError` for an address, key or header that cannot be.
    """

    format: ClassVar[str] = CHAT
    _path: ClassVar[str] = "/chat/completions"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        prices: Prices | None = None,
        limits: HttpLimits | None = None,
        needs_done: bool = True,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            key_env=key_env,
            headers=headers,
            extra=extra,
            prices=prices,
            limits=limits,
        )
        self._needs_done = needs_done
        self._asks_usage = True
        ours = self._host == host_of(OPENAI_URL)
        self._limit_name = "max_completion_tokens" if ours else "max_tokens"

    async def reply(self, ask: Ask, on_delta: Callable[[Delta], None]) -> ModelReply:
        """Ask once, with retries within the limits. Raises `ModelError`.

        Cancelling it closes the connection at once, also while it waits to try again.
        """
        while True:
            try:
                return await super().reply(ask, on_delta)
            except ModelError as error:
                if error.kind != "bad_request" or not self._learns(ask, error.message):
                    raise

    def _learns(self, ask: Ask, refusal: str) -> bool:
        """Whether a server refused a field that it can be asked without; it then is, for good."""
        if "stream_options" in refusal and self._asks_usage:
            self._asks_usage = False
            return True
        if (
            "max_completion_tokens" in refusal
            and self._limit_name == "max_tokens"
            and ask.max_tokens is not None
        ):
            self._limit_name = "max_completion_tokens"
            return True
        return False

    def _request(self, ask: Ask) -> Body:
        first = [{"role": "system", "content": ask.system}] if ask.system else []
        return {
            "model": self.name,
            "messages": [*first, *ask.messages],
            "tools": [{"type": "function", "function": _described(one)} for one in ask.tools]
            or None,
            self._limit_name: ask.max_tokens,
            "stream_options": {"include_usage": True} if self._asks_usage else None,
        }

    def _assembler(self) -> Assembler:
        return ChatStream(needs_done=self._needs_done)

    def _used(self, usage: Mapping[str, Any]) -> Usage:
        if "prompt_tokens" not in usage and "completion_tokens" not in usage:
            return Usage(reported=False)
        details = mapping_of(usage.get("prompt_tokens_details"))
        cost = usage.get("cost")
        routed = self._host == _OPENROUTER and isinstance(cost, int | float) and 0 <= cost < 10**9
        return Usage(
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
            cached_tokens=count(details.get("cached_tokens")),
            cache_write_tokens=count(details.get("cache_write_tokens")),
            # This router bills in dollars and says how many.
            cost=Money(amount=Decimal(str(cost)), currency="USD") if routed else None,
        )


class OpenAIResponses(_OpenAI):
    """Responses: OpenAI's newer protocol. The transcript is a list of items.

    The arguments are those of `OpenAICompatible`.
    """

    format: ClassVar[str] = RESPONSES
    _path: ClassVar[str] = "/responses"

    def _request(self, ask: Ask) -> Body:
        tools = [{"type": "function", "strict": False, **_described(one)} for one in ask.tools]
        return {
            "model": self.name,
            "instructions": ask.system or None,
            "input": list(ask.messages),
            "tools": tools or None,
            "max_output_tokens": ask.max_tokens,
        }

    def _assembler(self) -> Assembler:
        return ResponsesStream()

    def _used(self, usage: Mapping[str, Any]) -> Usage:
        if "input_tokens" not in usage and "output_tokens" not in usage:
            return Usage(reported=False)
        details = mapping_of(usage.get("input_tokens_details"))
        return Usage(
            input_tokens=count(usage.get("input_tokens")),
            output_tokens=count(usage.get("output_tokens")),
            cached_tokens=count(details.get("cached_tokens")),
        )


def _described(tool: Tool) -> Body:
    described: Body = {"name": tool.name, "parameters": tool.parameters}
    if tool.description:
        described["description"] = tool.description
    return described
