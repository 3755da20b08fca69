"""Posting to addresses that strangers name: which are refused, and that only the checked is used.

A URL is parsed once, by the library that will send to it, and put together again from its parts. A
name is resolved here, every answer is judged, and the connection goes to an address that was
judged, under the name's certificate and `Host`: there is no second look-up that could answer
otherwise. Redirects are not followed, proxies of the environment are not asked, and every wait has
a bound. Nothing here knows of tasks.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2

from endstop.work.steps import on_thread
from endstop.work.thread import DaemonThreads

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], list[str]]
"""Name and port to addresses as text; runs on a thread and may raise OSError."""

URL_CHARS = 2_048
LOOK_UP_S = 3.0
"""How long a name may take to be resolved."""
ANSWER_BYTES = 64 * 1024
"""How much of an answer is read; the rest is nobody's business."""
ADDRESSES_MAX = 4
"""How many addresses of one name are tried."""

# Of their own: names that never resolve must not take the threads of anything else.
_looking = DaemonThreads(64, "endstop-names")

_UNICAST_6 = ipaddress.ip_network("2000::/3")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
# Global by the register, and yet inside: protocol assignments (metadata of one cloud among them),
# the relay anycast of 6to4, and the host agent of another cloud.
_INSIDE_4 = tuple(
    ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
)


class Refused(Exception):
    """A URL that nothing is posted to, with the reason in words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook answered: its status, and for how many seconds it asks to be left alone."""

    status: int
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it took the delivery."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL in parts; `name` is the host as it is looked up, certified and sent as `Host`."""

    scheme: str
    name: str
    port: int
    path: str

    @property
    def where(self) -> str:
        """The place for messages and logs: without the path, which may hold secrets."""
        return f"{self.scheme}://{_bracketed(self.name)}:{self.port}"

    @property
    def host_header(self) -> str:
        """What `Host` says."""
        usual = 443 if self.scheme == "https" else 80
        bare = _bracketed(self.name)
        return bare if self.port == usual else f"{bare}:{self.port}"

    def at(self, address: str) -> str:
        """The URL with the name replaced by an address."""
        return f"{self.scheme}://{_bracketed(address)}:{self.port}{self.path}"


def parse_url(url: str) -> Target:
    """A URL in parts. Raises Refused for what is no plain http(s) URL."""
    if not isinstance(url, str) or not 0 < len(url) <= URL_CHARS:
        raise Refused(f"a URL is text of 1 to {URL_CHARS} characters")
    if "\\" in url or any(char <= " " or "\x7f" <= char <= "\xa0" for char in url):
        raise Refused("the URL has spaces, backslashes or control characters")
    try:
        parsed = httpx2.URL(url)
        name = parsed.raw_host.decode("ascii")
        port = parsed.port
    except (httpx2.InvalidURL, ValueError, UnicodeError, TypeError) as error:
        raise Refused(f"the URL cannot be read: {str(error)[:100]}") from error
    if parsed.scheme not in ("http", "https"):
        raise Refused(f"the scheme {parsed.scheme[:20]!r} is neither http nor https")
    if not name:
        raise Refused("the URL names no host")
    if parsed.userinfo or "@" in url.partition("://")[2].partition("/")[0]:
        raise Refused("the URL holds a user name or password; use the config's authentication")
    if port is not None and not 0 < port < 65_536:
        raise Refused(f"there is no port {port}")
    if "%" in name:
        raise Refused("the host has a zone or an escape in it")
    return Target(
        scheme=parsed.scheme,
        name=name.strip("[]").rstrip("."),
        port=port or (443 if parsed.scheme == "https" else 80),
        path=parsed.raw_path.decode("ascii"),
    )


def is_public(text: str) -> bool:
    """Whether an address lies on the open internet, whatever it is written in or wrapped into."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return _is_public_4(address)
    mapped = address.ipv4_mapped
    if mapped is not None:
        return _is_public_4(mapped)
    if address in _TRANSLATED:
        return _is_public_4(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.sixtofour is not None and not _is_public_4(address.sixtofour):
        return False
    return address in _UNICAST_6 and address.is_global and not address.is_multicast


def _is_public_4(address: ipaddress.IPv4Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    return not any(address in network for network in _INSIDE_4)


def look_up(name: str, port: int) -> list[str]:
    """The addresses of a name, as the system knows them; waits, and raises OSError."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def addresses_of(target: Target, *, allow_private: bool, resolve: Resolve) -> list[str]:
    """The addresses to connect to. Raises Refused where one of them is not to be used.

    Raises OSError where the name cannot be resolved, TimeoutError where that takes too long.
    """
    try:
        async with asyncio.timeout(LOOK_UP_S):
            found: list[str] = await on_thread(resolve, target.name, target.port, threads=_looking)
    except UnicodeError as error:
        raise Refused(f"{target.name[:80]!r} is no name that can be looked up") from error
    if not found:
        raise OSError(f"{target.name} has no address")
    if not allow_private:
        inside = [address for address in found if not is_public(address)]
        if inside:
            raise Refused(
                f"{target.where} leads to {inside[0]}, which is not on the open internet; "
                "private, loopback and link-local addresses are refused unless the server allows "
                "them"
            )
    return found[:ADDRESSES_MAX]


async def check_url(url: str, *, allow_private: bool, resolve: Resolve = look_up) -> Target:
    """Check a URL when it is given. Raises Refused, with the reason in words.

    A name that cannot be resolved now is not refused: it is judged whenever it is used.
    """
    target = parse_url(url)
    # Includes the TimeoutError of a resolver that does not answer.
    with suppress(OSError):
        await addresses_of(target, allow_private=allow_private, resolve=resolve)
    return target


@cache
def _tls() -> ssl.SSLContext:
    # Made once, and on a thread: loading the certificates costs more than a delivery.
    return httpx2.create_ssl_context()


class Courier:
    """Posts to one target, over one connection where the peer keeps it open."""

    def __init__(
        self,
        target: Target,
        *,
        answer_s: float,
        allow_private: bool,
        resolve: Resolve = look_up,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        assert answer_s > 0
        self._target = target
        self._answer_s = answer_s
        self._allow_private = allow_private
        self._resolve = resolve
        self._tls = tls
        self._worked = ""
        # A client of its own: a connection that was opened under one name never serves another.
        self._client: httpx2.AsyncClient | None = None

    @property
    def where(self) -> str:
        """The place that this posts to, for messages."""
        return self._target.where

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post a body; returns what the peer answered within the bound.

        Raises Refused for an address that is not used, OSError or httpx2.HTTPError where the peer
        cannot be reached, TimeoutError where it does not answer in time.
        """
        target = self._target
        if self._client is None:
            self._client = await self._open()
        found = await addresses_of(target, allow_private=self._allow_private, resolve=self._resolve)
        # What worked before comes first: there may be a connection to it. The sort is stable.
        found.sort(key=lambda address: address != self._worked)
        async with asyncio.timeout(self._answer_s):
            for address in found[:-1]:
                # Such as an address of a family that this machine has no way to.
                with suppress(httpx2.ConnectError):
                    return await self._post_to(address, body, headers)
            return await self._post_to(found[-1], body, headers)

    async def _open(self) -> httpx2.AsyncClient:
        # Without TLS nothing is there to be verified, and no certificates need be loaded.
        verify: ssl.SSLContext | bool = False
        if self._target.scheme == "https":
            verify = self._tls or await on_thread(_tls)
        return httpx2.AsyncClient(
            verify=verify,
            trust_env=False,
            follow_redirects=False,
            timeout=self._answer_s,
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1),
        )

    async def _post_to(self, address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        target = self._target
        assert self._client is not None, "it was opened for this"
        extensions: dict[str, Any] = {"sni_hostname": target.name}
        request = self._client.build_request(
            "POST",
            target.at(address),
            content=body,
            headers={**headers, "Host": target.host_header},
            extensions=extensions,
        )
        response = await self._client.send(request, stream=True)
        try:
            await _drain(response)
        finally:
            await response.aclose()
        self._worked = address
        return Answer(response.status_code, _seconds(response.headers.get("retry-after")))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()


async def _drain(response: httpx2.Response) -> None:
    """Read a short answer, so that the connection can serve again; a long one is cut off."""
    left = ANSWER_BYTES
    async for chunk in response.aiter_raw():
        left -= len(chunk)
        if left < 0:
            return


def _seconds(text: str | None) -> float | None:
    """A `Retry-After` in seconds; one that names a date, or nonsense, is no wish."""
    return float(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
