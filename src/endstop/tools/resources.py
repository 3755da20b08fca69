"""Tools: which resources a call wants, from a declaration and the call's arguments.

Names are made comparable here, once; the core compares them piece by piece and asks nothing. This
file may look at the file system (symbolic links), and changes nothing in it.
"""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from endstop.config import ResourceLimits
from endstop.core.terms import Claim
from endstop.core.text import describe_error
from endstop.errors import ContractError, InvalidArguments

DEFAULT_LIMITS = ResourceLimits()
CLAIMS_MAX = 256
"""More resources than one call may claim: claim the directory above them instead."""

NAME_CHARS = 4096
SHARED_MARK = "?shared"

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shared:
    """A resource template whose resources may be held by several calls at once."""

    template: str


def shared(template: str) -> Shared:
    """Hold the resources of this template beside others that hold them shared: for reading."""
    return Shared(template)


Wanted = str | Shared | Claim
Resources = Callable[..., Iterable[Wanted]] | Iterable[Wanted] | None
"""What `resources=` takes: see `make_claims`."""


class MakeClaims(Protocol):
    """Makes the claims of one call from its validated arguments."""

    def __call__(
        self, arguments: Arguments, limits: ResourceLimits, base: str | None
    ) -> tuple[Claim, ...]: ...


def normalise(resource: str, base: str | None = None) -> str:
    """The one spelling of a resource's name; doing it twice changes nothing.

    `file:` names become absolute real paths, seen from `base` (default: the working directory):
    `~`, `..`, doubled and trailing slashes and symbolic links are resolved, so that two spellings
    of one file collide. Other names are stripped and otherwise compared as they are.

    Raises ValueError with words for what is wrong.
    """
    kind, colon, rest = resource.partition(":")
    kind = kind.strip()
    if not colon or not kind or not rest.strip():
        raise ValueError('a resource is named by kind and name, such as "file:notes.txt"')
    if len(resource) > NAME_CHARS:
        raise ValueError(f"a resource has a name of at most {NAME_CHARS} characters")
    if kind != "file":
        return f"{kind}:{rest.strip()}"
    # Spaces at the end of a path belong to it.
    return f"file:{_real_path(rest, base)}"


def _real_path(path: str, base: str | None) -> str:
    try:
        joined = os.path.join(os.path.expanduser(base or os.getcwd()), os.path.expanduser(path))
        real = os.path.realpath(joined)
    except (ValueError, OSError) as problem:
        raise ValueError(f"no file can have this name: {problem}") from None
    if real.startswith("//"):
        # POSIX leaves exactly two slashes to the system; Linux and macOS read them as one.
        real = real[1:]
    if sys.platform == "darwin":
        import unicodedata

        # Most volumes there ignore case and composition: rather one collision too many.
        real = unicodedata.normalize("NFC", real).casefold()
    return real


def make_claims(tool: str, resources: Resources, parameters: Collection[str] | None) -> MakeClaims:
    """Turn a tool's `resources=` into the function that makes the claims of each call.

    None is the undeclared tool: an exclusive claim on `tool:<name>`. An empty collection takes
    nothing. Otherwise templates such as "file:{path}" (exclusive), "file:{path}?shared" or
    `shared("file:{path}")`, or a function from the arguments to templates or claims. A field that
    holds a list gives one resource for each item. `parameters` are the names that a template may
    use (None: any).

    Raises ContractError where a template cannot be meant.
    """
    if resources is None:
        return _Fixed(tool, (Claim(resource=f"tool:{tool}"),))
    if callable(resources):
        return _Computed(tool, resources)
    if isinstance(resources, str | Shared | Claim):
        resources = (resources,)
    try:
        wanted = tuple(resources)
    except TypeError:
        raise ContractError(
            f"tool `{tool}`: resources is a list of templates or a function, "
            f"not {type(resources).__name__}"
        ) from None
    parts = tuple(_Template.parse(tool, item, parameters) for item in wanted)
    if any(part.fields for part in parts):
        return _Templates(tool, parts)
    return _Fixed(tool, tuple(part.fixed() for part in parts))


def described(claims: MakeClaims) -> list[str]:
    """What a tool declares as its resources, for people: names, templates, or who decides."""
    match claims:
        case _Fixed():
            return [_named(claim) for claim in claims._claims]
        case _Templates():
            return [_named(part.claim) for part in claims._parts]
        case _Computed():
            function = claims._function
            return [
                f"decided by {getattr(function, '__qualname__', type(function).__qualname__)}()"
            ]
        case _:
            return ["decided by its own rule"]


def _named(claim: Claim) -> str:
    return f"{claim.resource} (shared)" if claim.shared else claim.resource


class _Fixed:
    """Claims that do not depend on the arguments: the same tuple object for the same limits."""

    __slots__ = ("_cache", "_claims", "_tool")

    def __init__(self, tool: str, claims: tuple[Claim, ...]) -> None:
        self._tool = tool
        self._claims = claims
        self._cache: tuple[ResourceLimits, str | None, tuple[Claim, ...]] | None = None

    def __call__(
        self, arguments: Arguments, limits: ResourceLimits, base: str | None
    ) -> tuple[Claim, ...]:
        cache = self._cache
        if cache is not None and cache[0] is limits and cache[1] == base:
            return cache[2]
        claims = _finish(self._tool, self._claims, limits, base)
        self._cache = (limits, base, claims)
        return claims


class _Templates:
    __slots__ = ("_parts", "_tool")

    def __init__(self, tool: str, parts: tuple[_Template, ...]) -> None:
        self._tool = tool
        self._parts = parts

    def __call__(
        self, arguments: Arguments, limits: ResourceLimits, base: str | None
    ) -> tuple[Claim, ...]:
        claims = [claim for part in self._parts for claim in part.fill(self._tool, arguments)]
        return _finish(self._tool, claims, limits, base)


class _Computed:
    __slots__ = ("_function", "_tool")

    def __init__(self, tool: str, function: Callable[..., Iterable[Wanted]]) -> None:
        self._tool = tool
        self._function = function

    def __call__(
        self, arguments: Arguments, limits: ResourceLimits, base: str | None
    ) -> tuple[Claim, ...]:
        tool = self._tool
        try:
            given = self._function(arguments)
            wanted = [given] if isinstance(given, str | Shared | Claim) else list(given)
        except InvalidArguments:
            raise
        except Exception as error:
            raise ContractError(
                f"tool `{tool}`: its resources function failed: {describe_error(error)}"
            ) from error
        # A name that a function made is a name: braces in it are part of a path.
        claims = [_as_claim(tool, item) for item in wanted]
        return _finish(tool, claims, limits, base)


def _as_claim(tool: str, item: object) -> Claim:
    match item:
        case Claim():
            return item
        case Shared(template=name):
            return Claim(resource=name, shared=True)
        case str() if item.endswith(SHARED_MARK):
            return Claim(resource=item.removesuffix(SHARED_MARK), shared=True)
        case str():
            return Claim(resource=item)
        case _:
            raise ContractError(
                f'tool `{tool}`: a resource is text such as "file:notes.txt", shared(...) or a '
                f"Claim, not {type(item).__name__}"
            )


@dataclass(frozen=True, slots=True)
class _Template:
    """One parsed template: literal text before each field, and the field's path of names."""

    claim: Claim
    pieces: tuple[tuple[str, tuple[str, ...]], ...]
    fields: tuple[str, ...]

    @classmethod
    def parse(cls, tool: str, item: object, parameters: Collection[str] | None) -> _Template:
        claim = _as_claim(tool, item)
        if isinstance(item, Claim):
            return cls(claim, ((claim.resource, ()),), ())
        text = claim.resource
        pieces: list[tuple[str, tuple[str, ...]]] = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(text):
                path = tuple((name or "").split(".")) if name is not None else ()
                if spec or conversion or not all(part.isidentifier() for part in path):
                    raise ValueError("a field is the name of a parameter, such as {path}")
                pieces.append((literal, path))
        except ValueError as problem:
            raise ContractError(f"tool `{tool}`: resource template {text!r}: {problem}") from None
        fields = tuple(path[0] for _, path in pieces if path)
        for name in fields:
            if parameters is not None and name not in parameters:
                known = ", ".join(sorted(parameters)) or "none"
                raise ContractError(
                    f"tool `{tool}`: resource template {text!r} names `{name}`, which is no "
                    f"parameter of the tool; its parameters are: {known}"
                )
        literal_kind = pieces[0][0] if pieces else ""
        if ":" not in literal_kind:
            raise ContractError(
                f"tool `{tool}`: resource template {text!r} must begin with its kind, "
                'such as "file:{path}"'
            )
        return cls(claim, tuple(pieces), fields)

    def fixed(self) -> Claim:
        name = "".join(literal for literal, _ in self.pieces)
        return Claim(resource=name, shared=self.claim.shared, wait_s=self.claim.wait_s)

    def fill(self, tool: str, arguments: Arguments) -> list[Claim]:
        names = [""]
        for literal, path in self.pieces:
            values = _texts(path, arguments) if path else [""]
            if literal == "file:" and path:
                # An empty path is how many programs say "here".
                values = [value or "." for value in values]
            if len(names) * len(values) > CLAIMS_MAX:
                raise _too_many(tool)
            names = [f"{name}{literal}{value}" for name in names for value in values]
        return [Claim(resource=name, shared=self.claim.shared) for name in names]


def _texts(path: tuple[str, ...], arguments: Arguments) -> list[str]:
    value: Any = arguments
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if value is None:
            # Nothing named, nothing taken: an optional parameter that was left out.
            return []
    items = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    return [str(item.value if isinstance(item, Enum) else item) for item in items]


def _too_many(tool: str) -> InvalidArguments:
    return InvalidArguments(
        f"The arguments of `{tool}` name more than {CLAIMS_MAX} resources; name fewer at once."
    )


def _finish(
    tool: str, claims: Collection[Claim], limits: ResourceLimits, base: str | None
) -> tuple[Claim, ...]:
    """Normalise, give each its wait limit, and merge claims on one resource (exclusive wins)."""
    if len(claims) > CLAIMS_MAX:
        raise _too_many(tool)
    merged: dict[str, Claim] = {}
    for claim in claims:
        try:
            name = normalise(claim.resource, base)
        except ValueError as problem:
            raise InvalidArguments(
                f"The arguments of `{tool}` name the resource {claim.resource[:200]!r}: {problem}."
            ) from None
        before = merged.get(name)
        wait_s = claim.wait_s
        if wait_s is None:
            wait_s = limits.wait_s(name.partition(":")[0])
        merged[name] = Claim(
            resource=name,
            shared=claim.shared and (before is None or before.shared),
            wait_s=wait_s,
        )
    return tuple(merged.values())
