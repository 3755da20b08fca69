"""The agent card: what a server says of itself to everybody, and when that last changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import (
    AGENT_CARD_WELL_KNOWN_PATH,
    PROTOCOL_VERSION_0_3,
    PROTOCOL_VERSION_1_0,
    TransportProtocol,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CARD_PATH = AGENT_CARD_WELL_KNOWN_PATH
BEARER = "bearer"
VERSIONS = [PROTOCOL_VERSION_1_0, PROTOCOL_VERSION_0_3]


def card_for(
    name: str,
    description: str,
    *,
    version: str = "1.0.0",
    skills: Iterable[AgentSkill] = (),
    streaming: bool = True,
    push_notifications: bool = True,
) -> AgentCard:
    """A card for an agent that has none of its own; the server adds where it can be reached."""
    found = list(skills) or [
        AgentSkill(id="main", name=name, description=description, tags=["agent"])
    ]
    return AgentCard(
        name=name,
        description=description,
        version=version,
        capabilities=AgentCapabilities(streaming=streaming, push_notifications=push_notifications),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=found,
    )


def reached_at(card: AgentCard, http_url: str, grpc_address: str | None, *, secret: bool) -> None:
    """Write into a card where it is served and by what right.

    In both versions of the protocol, unless its interfaces name the versions that it is to offer.
    """
    named = {one.protocol_version for one in card.supported_interfaces} - {""}
    versions = [v for v in VERSIONS if v in named] or VERSIONS
    del card.supported_interfaces[:]
    bindings = [
        (TransportProtocol.JSONRPC, http_url),
        # Clients put "/message:send" behind it.
        (TransportProtocol.HTTP_JSON, http_url.rstrip("/")),
    ]
    if grpc_address is not None:
        bindings.append((TransportProtocol.GRPC, grpc_address))
    for version in versions:
        for binding, url in bindings:
            card.supported_interfaces.append(
                AgentInterface(url=url, protocol_binding=binding.value, protocol_version=version)
            )
    if secret and BEARER not in card.security_schemes:
        scheme = HTTPAuthSecurityScheme(scheme="bearer")
        card.security_schemes[BEARER].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.append(SecurityRequirement(schemes={BEARER: StringList()}))


def card_route(card: AgentCard) -> Route:
    """Serves a card, which changes no more, with a tag and a date to ask again by."""
    content = agent_card_to_dict(card)
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    since = datetime.now(UTC).replace(microsecond=0)
    headers = {
        "etag": tag,
        "last-modified": format_datetime(since, usegmt=True),
        # Kept, and asked about each time: where it is served may change with every start.
        "cache-control": "max-age=0, must-revalidate",
    }

    async def answer(request: Request) -> Response:
        if _is_known(request, tag, since):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return Route(CARD_PATH, answer, methods=["GET"])


def _is_known(request: Request, tag: str, since: datetime) -> bool:
    """Whether the client has this card already; its tags decide where it sends any."""
    tags = request.headers.get("if-none-match")
    if tags is not None:
        known = [one.strip().removeprefix("W/") for one in tags.split(",")]
        return "*" in known or tag in known
    date = request.headers.get("if-modified-since")
    if date is None:
        return False
    try:
        asked = parsedate_to_datetime(date)
    except ValueError:
        return False
    if asked.tzinfo is None:
        asked = asked.replace(tzinfo=UTC)
    return since <= asked
