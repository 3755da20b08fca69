"""A server asks a human something: its form becomes questions of the call that it asks for.

Each field is one question (`ctx.ask`), with the time of the call standing still meanwhile, and a
stop withdraws it (law 7 every-wait-listens). Where it cannot be told which call a question belongs
to, or the form is more than a few plain fields, the server is told so and nobody is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp_types import INVALID_REQUEST

from endstop.adapters.mcp.errors import quoted
from endstop.adapters.mcp.live import Live
from endstop.adapters.mcp.wire import exchanging
from endstop.errors import EndstopError

if TYPE_CHECKING:
    from endstop.adapters.mcp.exchange import Exchange

FIELDS_MAX = 10
ATTEMPTS_MAX = 3
MESSAGE_CHARS = 1_000
_YES, _NO = "accept", "decline"


class Refused(Exception):
    """A form that is not put to anybody; the message says why."""


class Elicitor:
    """Answers the questions of one connection."""

    def __init__(self, live: Live) -> None:
        self._live = live

    async def asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The SDK's callback: one question, or form, of the server."""
        try:
            exchange = self._whose()
            return await self._until_over(exchange, params)
        except Refused as why:
            return types.ErrorData(code=INVALID_REQUEST, message=f"endstop: {why}")
        except EndstopError:
            # Stopped, or nobody answered in time: no word of a human, so no consent (law 13).
            return types.ElicitResult(action="cancel")

    async def _until_over(
        self, exchange: Exchange, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """Ask in a task of its own, which ends with its call at the latest."""
        asking = asyncio.get_running_loop().create_task(self._ask(exchange, params))
        exchange.asks.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            exchange.asks.discard(asking)
            asking.cancel()
        if asking.cancelled():
            return types.ElicitResult(action="cancel")
        return asking.result()

    def _whose(self) -> Exchange:
        running = [one for one in self._live.exchanges if not one.stopping]
        exchange = exchanging.get()
        if exchange is None and len(running) == 1:
            exchange = running[0]
        if exchange is None or exchange not in running:
            raise Refused(
                "it cannot be told which of several calls asks"
                if running
                else "nobody is asked outside of a call"
            )
        if exchange.asks:
            raise Refused("this call asks something already")
        return exchange

    async def _ask(
        self, exchange: Exchange, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        message = quoted(params.message, MESSAGE_CHARS)
        intro = f"MCP server {self._live.name} asks: {message}"
        if isinstance(params, types.ElicitRequestURLParams):
            text = f"{intro}\nThis needs a visit to {quoted(params.url, 500)}"
            return types.ElicitResult(action=await self._consent(exchange, text))
        fields = params.requested_schema.get("properties") or {}
        if not isinstance(fields, dict) or len(fields) > FIELDS_MAX:
            raise Refused(f"a form has at most {FIELDS_MAX} plain fields")
        if not fields:
            return types.ElicitResult(action=await self._consent(exchange, intro))
        required = params.requested_schema.get("required") or ()
        content: dict[str, Any] = {}
        for name, schema in fields.items():
            if not isinstance(schema, dict):
                raise Refused(f"its field {quoted(name, 60)} has no plain type")
            needed = isinstance(required, list) and name in required
            answer = await self._field(exchange, intro, str(name), schema, needed)
            if answer is _DECLINED:
                return types.ElicitResult(action="decline")
            if answer is not None:
                content[str(name)] = answer
        return types.ElicitResult(action="accept", content=content)

    async def _consent(self, exchange: Exchange, text: str) -> Any:
        return await exchange.ctx.ask(text, choices=(_YES, _NO))

    async def _field(
        self, exchange: Exchange, intro: str, name: str, schema: dict[str, Any], needed: bool
    ) -> Any:
        about = quoted(schema.get("description") or schema.get("title") or "", 300)
        text = f"{intro}\n{quoted(name, 100)}" + (f": {about}" if about else "")
        text += f"\n(answer {_NO} to give nothing)"
        choices = _choices(schema)
        problem = ""
        for _ in range(ATTEMPTS_MAX):
            said = await exchange.ctx.ask(text + problem, choices=choices)
            if said.strip() == _NO:
                return _DECLINED
            if not said.strip() and not needed:
                return None
            try:
                return _read(said, schema)
            except ValueError as wrong:
                problem = f"\n{wrong}"
        raise Refused(f"no usable answer was given for {quoted(name, 60)}")


_DECLINED = object()


def _choices(schema: dict[str, Any]) -> Sequence[str]:
    if schema.get("type") == "boolean":
        return ("true", "false", _NO)
    listed = schema.get("enum")
    if not isinstance(listed, list) and isinstance(schema.get("oneOf"), list):
        listed = [one.get("const") for one in schema["oneOf"] if isinstance(one, dict)]
    if not isinstance(listed, list):
        return ()
    texts = [one for one in listed if isinstance(one, str) and 0 < len(one) <= 200]
    if len(texts) != len(listed) or not 0 < len(texts) < 100:
        raise Refused("a choice has between 1 and 99 short texts")
    return (*texts, *(() if _NO in texts else (_NO,)))


def _read(said: str, schema: dict[str, Any]) -> Any:
    """An answer as the type that the form wants. Raises ValueError in words for a human."""
    said = said.strip()
    match schema.get("type"):
        case "boolean":
            return said == "true"
        case "integer":
            try:
                number: int | float = int(said)
            except ValueError:
                raise ValueError("this must be a whole number") from None
        case "number":
            try:
                number = float(said)
            except ValueError:
                raise ValueError("this must be a number") from None
            if number - number != 0:
                raise ValueError("this must be a number")
        case "string":
            return _text(said, schema)
        case _:
            raise Refused("a field is a text, a number or a choice")
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and number < low:
        raise ValueError(f"this must be at least {low}")
    if isinstance(high, int | float) and number > high:
        raise ValueError(f"this must be at most {high}")
    return number


def _text(said: str, schema: dict[str, Any]) -> str:
    low, high = schema.get("minLength"), schema.get("maxLength")
    if isinstance(low, int) and len(said) < low:
        raise ValueError(f"this must have at least {low} characters")
    if isinstance(high, int) and len(said) > high:
        raise ValueError(f"this must have at most {high} characters")
    return said
