"""The HTTP app: one handler behind JSON-RPC, HTTP+JSON and the agent card."""

from __future__ import annotations

from collections.abc import Mapping

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.types.a2a_pb2 import AgentCard
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from endstop.errors import CallerError
from endstop.server.auth import OWNER, Tokens
from endstop.server.card import card_route
from endstop.server.front import Door, Front
from endstop.server.guard import Guarded
from endstop.server.limits import ServerLimits
from endstop.server.old_rest import old_rest_routes
from endstop.server.rpc import RPC_PATH, Rpc


def build_app(
    handler: RequestHandler,
    agent_card: AgentCard,
    *,
    token: str | None = None,
    tokens: Tokens | Mapping[str, str] | None = None,
    limits: ServerLimits | None = None,
) -> Starlette:
    """A Starlette app that serves a handler: JSON-RPC at `/`, HTTP+JSON beside it, and the card.

    Both versions of the protocol, 1.0 and 0.3. With a token, or with tokens by owner, everything
    but the card asks for one. `app.state.door.close()` refuses whatever is new, for a server that
    goes down. Raises CallerError for a token that cannot be used, and for a token beside tokens.
    """
    door = Door(limits if limits is not None else ServerLimits())
    return assemble(handler, agent_card, read_tokens(token, tokens), door)


def assemble(
    handler: RequestHandler, agent_card: AgentCard, tokens: Tokens, door: Door
) -> Starlette:
    """The app of `build_app`, for a server that has the door already."""
    guarded = handler if isinstance(handler, Guarded) else Guarded(handler)
    builder = DefaultServerCallContextBuilder()
    # Those of 0.3 come first: the ones of 1.0 take whatever comes first in a path for a tenant.
    rest = [*old_rest_routes(guarded, builder), *create_rest_routes(guarded, builder)]
    rpc = Rpc(guarded, builder, door.streams, door.limits.values)
    app = Starlette(
        routes=[card_route(agent_card), Route(RPC_PATH, rpc, methods=["POST"]), *rest],
        middleware=[Middleware(Front, tokens=tokens, door=door, rpc=rpc)],
        exception_handlers={HTTPException: _not_here},
    )
    # A redirect is no answer to a POST.
    app.router.redirect_slashes = False
    app.state.door = door
    return app


def read_tokens(token: str | None, tokens: Tokens | Mapping[str, str] | None) -> Tokens:
    """The tokens that were given, in one form. Raises CallerError for both at once."""
    if token is not None and tokens is not None:
        raise CallerError("give a token or tokens by owner, not both")
    given = {OWNER: token} if token is not None else tokens
    return given if isinstance(given, Tokens) else Tokens(given)


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    status = error.status_code
    words = {
        404: "there is nothing here; the agent card says where this agent is reached",
        405: f"{request.method} is no method of this",
    }.get(status, error.detail)
    reason = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}.get(status, "INVALID_ARGUMENT")
    content = {"error": {"code": status, "status": reason, "message": words}}
    return JSONResponse(content, status, error.headers)
