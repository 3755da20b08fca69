"""The command line's server: finds an agent in a file, serves it, and says where it is.

Loading runs the user's code. What it serves, where, and who may ask goes to standard output; what
happens, one line for each request, to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from endstop.agents.model_agent import ModelAgent
from endstop.cli import output
from endstop.cli.loading import load_module
from endstop.config import Config
from endstop.errors import CallerError
from endstop.run.runtime import Runtime

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.types.a2a_pb2 import AgentCard, AgentSkill

    from endstop.server import ServerLimits, Serving, Tokens

OTEL = "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"
"""The switch of the spans that the SDK of the protocol makes of each of its own calls."""

NAMES = ("agent", "agent_executor", "executor")
"""What an agent in a file is looked for under, before anything else is."""

FILES_EACH = 2
"""Files that a connection may cost, with what its task opens."""

HOW_TO_DECLARE = "name it `agent`: an AgentExecutor of a2a, or a ModelAgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for on the command line."""

    source: str
    host: str
    port: int
    grpc_port: int | None
    journal: str | None
    tokens: tuple[str, ...]
    name: str | None
    url: str | None
    grace_s: float | None
    private_webhooks: bool
    quiet: bool
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An agent that was found in a file, and what that says of it."""

    executor: AgentExecutor | ModelAgent
    card: AgentCard
    extended: AgentCard | None


def run(wanted: Wanted) -> int:
    """Serve until stopped; returns the exit code. Raises CallerError and the like, in words."""
    # Before the SDK is imported: it reads this once, and its spans cost time without a reader.
    os.environ.setdefault(OTEL, "false")
    # gRPC says by itself what is said here in words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from endstop.server import need_extra

    try:
        need_extra()
    except ImportError as error:
        raise CallerError(str(error)) from None
    from endstop.server import Tokens

    given = wanted.tokens or tuple(os.environ.get("ENDSTOP_TOKEN", "").split())
    tokens = Tokens.read(given)
    _hear(quiet=wanted.quiet)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(wanted, tokens))


def _limits() -> ServerLimits:
    """The bounds of the server, and as many files as they need where this process may have them."""
    from endstop.server import ServerLimits

    limits = ServerLimits()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_EACH * limits.connections
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        limits = replace(limits, connections=min(limits.connections, max(1, soft // FILES_EACH)))
    return limits


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(wanted: Wanted, tokens: Tokens) -> int:
    from endstop.a2a import EndstopRequestHandler
    from endstop.a2a.push import Pusher
    from endstop.server import Serving
    from endstop.server.collecting import collect_less

    found = find(load_module(wanted.source), wanted.source, wanted.name)
    code: dict[str, Any] = {} if wanted.grace_s is None else {"grace_s": wanted.grace_s}
    config = Config.load(**code)
    journal = wanted.journal if wanted.journal is not None else config.journal
    runtime = Runtime(journal=journal, config=config, bodies="own-loop")
    handler = EndstopRequestHandler(
        agent_executor=found.executor,
        agent_card=found.card,
        extended_agent_card=found.extended,
        runtime=runtime,
        grace_s=config.grace_s,
        make_pusher=functools.partial(Pusher, allow_private=wanted.private_webhooks),
    )
    serving = Serving(
        handler,
        found.card,
        runtime=runtime,
        host=wanted.host,
        port=wanted.port,
        grpc_port=wanted.grpc_port,
        tokens=tokens,
        limits=_limits(),
        url=wanted.url,
    )
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(runtime.close)
        serving.heed_signals()
        await serving.start()
        undo.pop_all()
    collect_less()
    _say(serving, wanted, journal)
    await serving.until_stopped()
    output.line("endstop: stopped")
    return 0


# -- what a file declares


def find(module: ModuleType, source: str, name: str | None) -> Found:
    """The agent of a module, and its cards. Raises CallerError where there is not exactly one."""
    from a2a.types.a2a_pb2 import AgentCard

    from endstop.server import card_for

    declared = _declared(module, source)
    cards: list[AgentCard | None] = []
    for at in ("agent_card", "extended_agent_card"):
        card = getattr(module, at, None)
        if card is not None and not isinstance(card, AgentCard):
            raise CallerError(
                f"{source}: {at} is a {type(card).__name__}; make it an AgentCard of a2a.types"
            )
        cards.append(card)
    card = cards[0]
    if card is None:
        title = name or _title(declared, module)
        card = card_for(title, _description(declared, module, title), skills=_skills(declared))
    if name is not None:
        card.name = name
    if cards[1] is not None:
        card.capabilities.extended_agent_card = True
    return Found(executor=_executor(declared, source), card=card, extended=cards[1])


def _declared(module: ModuleType, source: str) -> Any:
    from a2a.server.agent_execution import AgentExecutor

    for name in NAMES:
        value = getattr(module, name, None)
        if value is not None:
            return value
    kinds = (AgentExecutor, ModelAgent)
    values: list[Any] = [v for v in vars(module).values() if isinstance(v, kinds)]
    values = list(dict.fromkeys(values))
    if not values:
        values = [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, AgentExecutor)
            and value.__module__ == module.__name__
        ]
    if not values:
        raise CallerError(f"{source} declares no agent; {HOW_TO_DECLARE}")
    if len(values) > 1:
        raise CallerError(f"{source} declares {len(values)} agents; name the one to serve `agent`")
    return values[0]


def _executor(declared: Any, source: str) -> AgentExecutor | ModelAgent:
    from a2a.server.agent_execution import AgentExecutor

    if isinstance(declared, ModelAgent):
        return declared
    if isinstance(declared, type) and issubclass(declared, AgentExecutor):
        try:
            return declared()
        except Exception as error:  # noqa: BLE001 - foreign code: it may raise anything
            raise CallerError(
                f"{source}: {declared.__name__}() raised {type(error).__name__}: {error}; make the "
                "executor in the file and name it `agent`"
            ) from None
    if not isinstance(declared, AgentExecutor):
        raise CallerError(
            f"{source}: the agent is a {type(declared).__name__}; make it an AgentExecutor of the "
            "A2A SDK, or a ModelAgent"
        )
    return declared


def _title(declared: Any, module: ModuleType) -> str:
    kind = declared if isinstance(declared, type) else type(declared)
    own = getattr(declared, "name", None)
    if isinstance(own, str) and own:
        return own
    word = kind.__name__.removesuffix("Executor")
    return word.removesuffix("Agent") or word or Path(module.__file__ or "agent").stem


def _description(declared: Any, module: ModuleType, title: str) -> str:
    kind = declared if isinstance(declared, type) else type(declared)
    own = getattr(declared, "description", None) or kind.__doc__ or module.__doc__
    first = str(own or "").strip().split("\n\n")[0]
    return " ".join(first.split()) or f"The agent {title}."


def _skills(declared: Any) -> list[AgentSkill]:
    """The tools of an agent, as what it can do."""
    from a2a.types.a2a_pb2 import AgentSkill

    if not isinstance(declared, ModelAgent):
        return []
    return [
        AgentSkill(
            id=one.name, name=one.name, description=one.description or one.name, tags=["tool"]
        )
        for one in declared.tools
    ]


# -- what is said


def _say(serving: Serving, wanted: Wanted, journal: str | None) -> None:
    card = serving.agent_card
    where = {
        "name": card.name,
        "url": serving.url,
        "grpc": serving.grpc_address,
        "card": f"{serving.url.rstrip('/')}/.well-known/agent-card.json",
        "journal": journal,
        "taken_up": serving.taken_up,
        "owners": list(serving.tokens.owners),
        "pid": os.getpid(),
    }
    if wanted.as_json:
        print(json.dumps(where), flush=True)
        return
    table = Table.grid(padding=(0, 2))
    for left, right in (
        ("JSON-RPC", serving.url),
        ("HTTP+JSON", serving.url),
        ("gRPC", serving.grpc_address or "off; --grpc-port turns it on"),
        ("card", where["card"]),
        (
            "journal",
            f"{journal}: tasks survive a restart{_taken(serving.taken_up)}"
            if journal not in (None, "memory")
            else "none: tasks are gone when this ends; --journal keeps them",
        ),
        (
            "token",
            f"needed, from {', '.join(serving.tokens.owners)}"
            if serving.tokens
            else "none: whoever is on this machine may ask",
        ),
    ):
        table.add_row(Text(left, style="dim"), Text(str(right)))
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text.assemble(("endstop serves ", ""), (card.name, "bold"), f"  {wanted.source}"))
    console.print(table)
    console.print(Text("Ctrl-C stops it", style="dim"))
    # Whoever reads this from a pipe starts with what it says.
    console.file.flush()


def _taken(count: int) -> str:
    return f"; {count} of an earlier server taken up" if count else ""


class _Lines(logging.Handler):
    """One line for each request, with the time."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            words = record.getMessage()
            if record.levelno >= logging.WARNING:
                words = f"{record.levelname.lower()}: {words}"
            if record.exc_info is not None and logging.getLogger("endstop").isEnabledFor(
                logging.DEBUG
            ):
                words = f"{words}\n{logging.Formatter().formatException(record.exc_info)}"
            output.line(f"{time.strftime('%H:%M:%S')} {words}")
        except (TypeError, ValueError):
            self.handleError(record)


def _hear(*, quiet: bool) -> None:
    log = logging.getLogger("endstop")
    log.addHandler(_Lines())
    log.propagate = False
    log.setLevel(logging.WARNING)
    logging.getLogger("endstop.server.requests").setLevel(
        logging.WARNING if quiet else logging.INFO
    )
    # They write what clients send into the log, and what went wrong is in ours.
    for name in ("a2a", "uvicorn", "sse_starlette", "grpc"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
