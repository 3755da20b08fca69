"""Who asks: bearer tokens, each of which names an owner of tasks.

A token is compared in constant time and never kept, logged or shown: only its digest is here. What
is owned by whom is the handler's matter.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Self

from a2a.auth.user import User

from endstop.errors import CallerError

OWNER = "owner"
"""The owner of a token that names none."""

TOKEN_CHARS_MIN = 16
"""A shorter token can be guessed."""

NAME_CHARS = 100


class Tokens:
    """The tokens that a server takes: owner by token. Empty: everybody may ask.

    Raises CallerError for a token or a name that cannot be used.
    """

    __slots__ = ("_digests",)

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        self._digests: tuple[tuple[bytes, str], ...] = ()
        for owner, token in (tokens or {}).items():
            self._add(owner, token)

    @classmethod
    def read(cls, texts: Iterable[str]) -> Self:
        """From texts such as `alice=TOKEN`, or `TOKEN` for a server with one owner."""
        made = cls()
        for text in texts:
            name, equals, token = text.partition("=")
            # A token may end in "=": base64 does.
            named = bool(equals) and bool(token.strip("="))
            made._add(*((name, token) if named else (OWNER, text)))
        return made

    def _add(self, owner: str, token: str) -> None:
        if not owner or len(owner) > NAME_CHARS or not owner.isprintable():
            raise CallerError(
                f"{owner!r:.120} cannot name the owner of a token: write printable text of at most "
                f"{NAME_CHARS} characters before the `=`"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise CallerError(f"the token of {owner} cannot be sent: use letters and digits")
        if len(token) < TOKEN_CHARS_MIN:
            raise CallerError(
                f"the token of {owner} has {len(token)} characters and can be guessed; use at "
                f"least {TOKEN_CHARS_MIN}, for example what `openssl rand -hex 32` prints"
            )
        digest = hashlib.sha256(token.encode()).digest()
        if any(digest == known for known, _ in self._digests):
            raise CallerError(f"the token of {owner} is another owner's, too; give each its own")
        self._digests = (*self._digests, (digest, owner))

    def __bool__(self) -> bool:
        return bool(self._digests)

    @property
    def owners(self) -> tuple[str, ...]:
        """Who may ask, in the order given; an owner may have several tokens."""
        return tuple(dict.fromkeys(owner for _, owner in self._digests))

    def owner_of(self, authorization: bytes | None) -> str | None:
        """Whose token an Authorization header carries; None for nobody's.

        Takes the same time whichever token it is, and whether there is one.
        """
        scheme, _, given = (authorization or b"").strip().partition(b" ")
        digest = hashlib.sha256(given.strip()).digest()
        found = None
        for known, owner in self._digests:
            if hmac.compare_digest(digest, known):
                found = owner
        return found if scheme.lower() == b"bearer" else None


class Owner(User):
    """A user that was recognised by a token."""

    # What Starlette calls them.
    __slots__ = ("display_name",)

    def __init__(self, name: str) -> None:
        self.display_name = name

    @property
    def is_authenticated(self) -> bool:
        """Always: there is no owner without a token."""
        return True

    @property
    def user_name(self) -> str:
        """The owner's name."""
        return self.display_name


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposed(host: str, tokens: Tokens) -> None:
    """Raise CallerError for an address that others can reach, where anybody may ask."""
    if not tokens and not is_loopback(host):
        raise CallerError(
            f"{host} can be reached by others, and without a token anybody there could use and "
            "cancel your agent: give --token (or ENDSTOP_TOKEN), or serve on 127.0.0.1"
        )
