"""Models: Anthropic's messages. No SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from endstop.adapters.parts import ANTHROPIC
from endstop.agents.models.anthropic_stream import AnthropicStream
from endstop.agents.models.http import HttpLimits
from endstop.agents.models.protocol import Ask, Body, Prices, Usage
from endstop.agents.models.provider import HttpModel, count
from endstop.agents.models.reading import Assembler
from endstop.tools.tool import Tool

ANTHROPIC_URL = "https://api.anthropic.com"
_KEY = "ANTHROPIC_API_KEY"
_VERSION = "2023-06-01"


class Anthropic(HttpModel):
    """Messages: Anthropic, and servers that speak its protocol.

    Without `base_url` it is Anthropic (or ANTHROPIC_BASE_URL), with the key in ANTHROPIC_API_KEY;
    for another server give `api_key`, or the environment variable that holds it, `key_env`. The
    protocol wants a limit for every reply: `max_tokens`, where an ask names none. `extra` is added
    to every request; a None in it takes a field out.
    Raises `CallerError` for an address, key or header that cannot be.
    """

    format: ClassVar[str] = ANTHROPIC
    _path: ClassVar[str] = "/v1/messages"

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
        max_tokens: int = 8192,
    ) -> None:
        if base_url is None:
            base_url = os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
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
        self._max_tokens = max_tokens

    def _auth(self, key: str) -> Mapping[str, str]:
        return {"x-api-key": key}

    def _all_headers(self) -> Mapping[str, str]:
        return {"anthropic-version": _VERSION, **super()._all_headers()}

    def _request(self, ask: Ask) -> Body:
        return {
            "model": self.name,
            "max_tokens": ask.max_tokens or self._max_tokens,
            "system": ask.system or None,
            "messages": list(ask.messages),
            "tools": [_described(one) for one in ask.tools] or None,
        }

    def _assembler(self) -> Assembler:
        return AnthropicStream()

    def _used(self, usage: Mapping[str, Any]) -> Usage:
        if "input_tokens" not in usage and "output_tokens" not in usage:
            return Usage(reported=False)
        read = count(usage.get("cache_read_input_tokens"))
        written = count(usage.get("cache_creation_input_tokens"))
        return Usage(
            # The provider counts only what no cache had.
            input_tokens=count(usage.get("input_tokens")) + read + written,
            output_tokens=count(usage.get("output_tokens")),
            cached_tokens=read,
            cache_write_tokens=written,
        )


def _described(tool: Tool) -> Body:
    described: Body = {"name": tool.name, "input_schema": tool.parameters}
    if tool.description:
        described["description"] = tool.description
    return described
