"""Models: what the loop asks of a model provider, and what it gets back.

The whole seam between the loop and the providers. A provider translates one ask into one request
and one answer into one response body; it reads no tool call, decides nothing about a run, and is
stopped by cancelling `reply` like any other coroutine (law 7 every-wait-listens).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, Literal, Protocol

from endstop.core.terms import Money
from endstop.errors import EndstopError
from endstop.tools.money import money
from endstop.tools.tool import Tool

Body = dict[str, Any]
"""One JSON object in a provider's format: a message, a request or a response."""

Kind = Literal[
    "auth",
    "bad_request",
    "rate_limited",
    "overloaded",
    "unavailable",
    "broken_stream",
    "timeout",
    "too_large",
]
"""What went wrong, for a program: `bad_request` and `auth` do not go away by asking again;
`too_large` is a request over the model's context or a reply over our limit."""

_EXACT = Context(prec=60)


class ModelError(EndstopError):
    """A model gave no whole reply; the message says what was wrong, where, and what to do.

    `status` is the HTTP status if there was one, `retry_after_s` the seconds that the provider
    wants to be left alone. Nothing of a reply that ended like this may be executed.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question to a model: the transcript so far, in the model's own format.

    `system` stands apart, because the formats keep it in different places. `max_tokens` bounds the
    reply; None leaves it to the provider.
    """

    messages: Sequence[Body]
    system: str = ""
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a reply as it arrives, for showing only; `body` of the reply is what counts."""

    text: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one reply used, in tokens, as the provider counted.

    `input_tokens` is all input; `cached_tokens` of it were read from a cache and
    `cache_write_tokens` written to one. `reported` is False where the provider told nothing: the
    numbers are then 0 and mean nothing. `cost` is None unless prices are known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: Money | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A reply that arrived whole: `body` is a response body for `read_reply`."""

    body: Body
    usage: Usage = field(default_factory=lambda: Usage(reported=False))


class Model(Protocol):
    """A model as the loop sees it.

    `name` is the provider's name for it; `format` is the message format that it reads and answers
    in ("openai-chat", "anthropic-messages", "openai-responses"), as `read_reply` knows it.
    """

    @property
    def name(self) -> str: ...

    @property
    def format(self) -> str: ...

    def reply(self, ask: Ask, on_delta: Callable[[Delta], None]) -> Awaitable[ModelReply]:
        """Ask once. Raises `ModelError`; cancelling it closes the connection at once."""
        ...

    async def aclose(self) -> None:
        """Close what is kept between replies. May be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a million tokens cost, exactly: `Prices(input="2.50", output="10", currency="USD")`.

    `cached_input` and `cache_write` are the prices of input read from or written to the provider's
    cache; without them such input costs what other input does. Amounts are text, int or Decimal.
    Raises ValueError for anything else.
    """

    input: str | int | Decimal
    output: str | int | Decimal
    currency: str
    cached_input: str | int | Decimal | None = None
    cache_write: str | int | Decimal | None = None

    def __post_init__(self) -> None:
        for amount in (self.input, self.output, self.cached_input, self.cache_write):
            if amount is not None:
                money(amount, self.currency)

    def cost(self, usage: Usage) -> Money | None:
        """The cost of what was used; None where the provider did not say what that was."""
        if not usage.reported:
            return None
        plain = max(usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens, 0)
        total = Decimal(0)
        for tokens, price in (
            (plain, self.input),
            (usage.cached_tokens, self.input if self.cached_input is None else self.cached_input),
            (
                usage.cache_write_tokens,
                self.input if self.cache_write is None else self.cache_write,
            ),
            (usage.output_tokens, self.output),
        ):
            total = _EXACT.add(total, _EXACT.multiply(Decimal(tokens), Decimal(price)))
        return money(_EXACT.scaleb(total, -6), self.currency)
