"""Models: what the providers over HTTP share: address, key, limits, and one reply from end to end.

The key is read when it is needed, goes into one header, and is taken out of every error. Formats
are the business of the files around this one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit, urlunsplit

from endstop.adapters.parts import mapping_of
from endstop.agents.models.failures import Redactor
from endstop.agents.models.http import Answer, Http, HttpLimits
from endstop.agents.models.protocol import Ask, Body, Delta, ModelError, ModelReply, Prices, Usage
from endstop.agents.models.reading import Assembler, Reading, readable
from endstop.core.text import scrub
from endstop.errors import CallerError

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


class HttpModel:
    """One model behind one address. Use it as it is, or as `async with model:` to close it."""

    format: ClassVar[str]
    _path: ClassVar[str]

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None,
        key_env: str | None,
        headers: Mapping[str, str] | None,
        extra: Mapping[str, Any] | None,
        prices: Prices | None,
        limits: HttpLimits | None,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise CallerError(f"{type(self).__name__}: model is {model!r}: give the model's name")
        self.name = model
        self.prices = prices
        self.base_url = base_url
        self._api_key = _checked_key(api_key, "api_key")
        self._key_env = key_env
        self._headers = _checked_headers(headers or {})
        self._extra = dict(extra or {})
        self._limits = limits or HttpLimits()
        url, self._shown_url = _address(base_url, self._path)
        self._where = f"The model server at {self._shown_url} (model {model!r})"
        self._http = Http(
            url=url,
            where=self._where,
            headers=self._all_headers,
            redact=self._redactor,
            limits=self._limits,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self._shown_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that are kept for the next reply. May be called twice."""
        await self._http.aclose()

    async def reply(self, ask: Ask, on_delta: Callable[[Delta], None]) -> ModelReply:
        """Ask once, with retries within the limits. Raises `ModelError`.

        Cancelling it closes the connection at once, also while it waits to try again. What
        `on_delta` raises ends the reply the same way.
        """
        payload = self._encoded({**self._request(ask), "stream": True})

        async def read(answer: Answer) -> Body:
            reading = Reading(
                self._assembler(),
                on_delta,
                where=self._where,
                redact=self._redactor(),
                event_limit=self._limits.event_bytes,
            )
            return await reading.read(answer)

        body = readable(await self._http.ask(payload, read), self.format, self._where)
        return ModelReply(body=body, usage=self._priced(self._used(mapping_of(body.get("usage")))))

    def _request(self, ask: Ask) -> Body:
        raise NotImplementedError

    def _assembler(self) -> Assembler:
        raise NotImplementedError

    def _used(self, usage: Mapping[str, Any]) -> Usage:
        raise NotImplementedError

    def _auth(self, key: str) -> Mapping[str, str]:
        raise NotImplementedError

    def _priced(self, usage: Usage) -> Usage:
        if self.prices is None:
            return usage
        return Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            reported=usage.reported,
            cost=self.prices.cost(usage),
        )

    def _encoded(self, request: Body) -> bytes:
        # `extra` has the last word; None takes a field out; tools are added to, not replaced.
        merged = {**request, **self._extra}
        added = self._extra.get("tools")
        if added and request.get("tools"):
            merged["tools"] = [*request["tools"], *added]
        body = {key: value for key, value in merged.items() if value is not None}
        try:
            text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise CallerError(
                f"The request to model {self.name!r} cannot be written as JSON: {error}."
                " Messages and extra may hold only what JSON can"
            ) from error
        return scrub(text).encode()

    def _key(self) -> str | None:
        if self._api_key is not None or self._key_env is None:
            return self._api_key
        return _checked_key(os.environ.get(self._key_env), self._key_env)

    def _all_headers(self) -> Mapping[str, str]:
        key = self._key()
        auth = self._auth(key) if key else {}
        given = {name.lower() for name in self._headers}
        if not key and self._key_env is not None and not any(map(_SECRET_NAME.search, given)):
            raise ModelError(
                "auth",
                f"There is no API key for model {self.name!r} at {self._shown_url}:"
                f" set {self._key_env}, or pass api_key=.",
            )
        base = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": "endstop",
            **auth,
        }
        return {name: v for name, v in base.items() if name not in given} | self._headers

    def _redactor(self) -> Redactor:
        parts = urlsplit(self.base_url)
        secrets = [self._api_key, parts.password, parts.query]
        if self._key_env is not None:
            secrets.append(os.environ.get(self._key_env, "").strip())
        secrets += [v for name, v in self._headers.items() if _SECRET_NAME.search(name)]
        return Redactor(one for one in secrets if one)


def count(value: object) -> int:
    """A number of tokens as a provider wrote it; 0 where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 10**15 else 0


def host_of(base_url: str) -> str:
    """The host that an address names; "" where it names none."""
    try:
        return urlsplit(base_url.strip()).hostname or ""
    except (ValueError, AttributeError):
        return ""


def _address(base_url: str, path: str) -> tuple[str, str]:
    """The URL to post to, and how it is shown: without user, password and query."""
    text = base_url.strip() if isinstance(base_url, str) else ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f]", text):
        raise CallerError(
            "base_url is not the address of a server: give one such as"
            " 'http://127.0.0.1:11434/v1', with http or https and a host"
        )
    base = parts.path.rstrip("/")
    if path.startswith("/v1/") and base.endswith("/v1"):
        # Both ways to write such an address are in use.
        path = path.removeprefix("/v1")
    full = base if base.endswith(path) else f"{base}{path}"
    shown_host = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{shown_host}{f':{port}' if port else ''}{base}"
    return urlunsplit((parts.scheme, parts.netloc, full, parts.query, "")), shown


def _checked_key(key: str | None, source: str) -> str | None:
    if key is None:
        return None
    key = key.strip() if isinstance(key, str) else ""
    if not key:
        return None
    if not _HEADER_VALUE.fullmatch(key):
        raise CallerError(f"The API key from {source} has characters that no key has; check it")
    return key


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise CallerError(f"headers: {name!r} is no name of a header")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise CallerError(f"headers: the value of {name!r} is not one line of plain text")
    return dict(headers)
