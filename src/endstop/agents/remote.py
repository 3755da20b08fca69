"""Remote agents: an agent behind the A2A protocol as a sub-agent of ours.

Behind the same protocol as every async agent: submit, status, fetch, cancel. The wire and the
following of a task are in `remote_wire.py` and `remote_following.py`, which need the SDK of the
protocol and are loaded with the first use. Nothing here imports our server: both sides only share
the protocol.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from endstop.agents.agent import PATIENCE, Failure, Patience, Status, Task, check_callable
from endstop.agents.errors import AgentError
from endstop.errors import CallerError
from endstop.run.submitted import here
from endstop.store.shelf import Shelf
from endstop.tools.context import AsyncContext, current
from endstop.work.ending import on_return
from endstop.work.steps import on_thread

if TYPE_CHECKING:
    from a2a.types import AgentCard

    from endstop.agents.remote_following import Following, Terms
    from endstop.agents.remote_wire import Wire

LOST_S = 30.0
"""How long an agent may be unreachable before a call to it fails."""
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
SPACE, _ORIGIN = "agents", "origin"
_FETCH_AGAIN_S = 0.5
# The conversation need not pause by itself: a question for the status waits for news.
_EVERY_S, _MOST_EVERY_S = 0.0, 0.01

Reference = dict[str, Any]


class RemoteAgent:
    """An A2A agent elsewhere as a sub-agent: `RemoteAgent("https://agent.example", token="…")`.

    `agent` is the URL that its card lies below, or the card itself. `token` is sent as a bearer
    token, `headers` beside it; `binding` is one of JSONRPC, HTTP+JSON and GRPC, by default
    whichever of the first two the card offers. Where the agent can stream, its stream is followed
    and taken up again after a lost connection; with `streaming=False` it is asked instead. A
    connection may be lost for `lost_s` before the call fails. `patience` bounds every other wait.

    The answer is plain data: `text`, all that is text in it, `artifacts`, `task` and `context`.
    `normalise` makes something else of it; `contract` is what `@tool` takes. What the agent asks
    is asked of a human by `ctx.ask`, and the answer goes back to the task.

    A stop is passed on. Only the agent's word says that the task ended: without it the call is
    abandoned after the grace, and its effect is unknown (laws 5 and 6). The effect key of the call,
    with a name for its journal, is the id of the message: a server of ours makes one task of it,
    however often it comes.

    Needs the extra `server`. Raises CallerError for arguments that contradict themselves.
    """

    def __init__(
        self,
        agent: str | AgentCard,
        *,
        name: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        binding: str | None = None,
        streaming: bool | None = None,
        patience: Patience = PATIENCE,
        lost_s: float = LOST_S,
        description: str = "",
        normalise: Callable[[Any], Any] | None = None,
        contract: dict[str, Any] | None = None,
    ) -> None:
        self.name = name if name is not None else _name_of(agent)
        if binding is not None and binding not in BINDINGS:
            raise CallerError(
                f"agent {self.name!r}: binding is one of {', '.join(BINDINGS)}, not {binding!r:.40}"
            )
        if not lost_s >= 0:
            raise CallerError(f"agent {self.name!r}: lost_s is {lost_s}; it must be 0 or more")
        check_callable(self.name, normalise=normalise)
        self.description = description or str(getattr(agent, "description", ""))
        self.normalise = normalise
        self.contract = dict(contract or {})
        self.patience = replace(patience, every_s=_EVERY_S, most_every_s=_MOST_EVERY_S)
        self._patience = patience
        self._agent = agent
        self._token = token
        self._headers = dict(headers or {})
        self._binding = binding
        self._streaming = streaming
        self._lost_s = lost_s
        self._wired: tuple[Wire, Terms] | None = None
        # By task; each is taken out when the body that follows it is over.
        self._followed: dict[str, Following] = {}

    async def submit(self, task: Task) -> Reference:
        """Send the prompt; returns the task's id, or the answer where the agent gave it at once.

        The reference is plain JSON: whoever has it can go on with the task in another process.
        Raises AgentError.
        """
        following = self._follow(await self._wire(), task.ctx)
        origin = await self._origin()
        # Keys are the same in every journal that has a run of that name; journals are not.
        message_id = f"{task.effect_key}@{origin}" if origin else task.effect_key
        reference = await following.submit(task.prompt, message_id, once=bool(origin))
        if following.view.task_id:
            self._followed[following.view.task_id] = following
        return reference

    async def status(self, reference: Reference) -> Status | Failure:
        """What is known of a task; waits some seconds for news. Raises AgentError."""
        if "message" in reference:
            return Status.SUCCEEDED
        following = await self._following(reference)
        return await following.status()

    async def fetch(self, reference: Reference) -> Any:
        """The answer as plain data. Raises AgentError."""
        if "message" in reference:
            return reference["message"]
        from endstop.agents.remote_answer import plain_task
        from endstop.agents.remote_wire import Kind, WireError

        wire, _ = await self._wire()
        until = asyncio.get_running_loop().time() + self._patience.fetch_s
        while True:
            left_s = max(until - asyncio.get_running_loop().time(), 0.01)
            try:
                return plain_task(await wire.get(_task_of(reference), left_s))
            except WireError as error:
                passing = error.kind in (Kind.UNSENT, Kind.UNREACHABLE)
                if not passing or left_s < 2 * _FETCH_AGAIN_S:
                    raise
            await asyncio.sleep(_FETCH_AGAIN_S)

    async def cancel(self, reference: Reference) -> None:
        """Ask the agent to cancel a task; whether it ended, `status` tells. Raises AgentError."""
        if "message" not in reference:
            following = await self._following(reference)
            await following.cancel()

    async def _origin(self) -> str | None:
        """A name for the journal that the effect keys are from; None where there is no shelf."""
        runtime = here.get(None)
        shelf = getattr(runtime.engine.journal, "shelf", None) if runtime is not None else None
        return await on_thread(_name_of_journal, shelf()) if shelf is not None else None

    async def _following(self, reference: Reference) -> Following:
        """Who follows a task; one that was submitted by somebody else is followed from now on."""
        task_id = _task_of(reference)
        # Nothing is waited for behind this: two that ask at once must not make two followers.
        wired = await self._wire()
        found = self._followed.get(task_id)
        here = asyncio.get_running_loop()
        if found is None or found.loop is not here or (found.closed and not found.view.over):
            context = current()
            found = self._follow(wired, context if isinstance(context, AsyncContext) else None)
            found.resume(task_id, str(reference.get("context", "")))
            self._followed[task_id] = found
        return found

    def _follow(self, wired: tuple[Wire, Terms], ctx: AsyncContext | None) -> Following:
        from endstop.agents.remote_following import Following

        following = Following(*wired, ctx)

        def body_is_over() -> None:
            following.close()
            if self._followed.get(following.view.task_id) is following:
                del self._followed[following.view.task_id]

        if ctx is not None:
            on_return(ctx, body_is_over)
        return following

    async def _wire(self) -> tuple[Wire, Terms]:
        if self._wired is None:
            # The SDK takes long to be imported: not on a loop that has other things to do.
            self._wired = await on_thread(self._load)
        return self._wired

    def _load(self) -> tuple[Wire, Terms]:
        try:
            import a2a.client  # noqa: F401
        except ImportError as error:
            raise AgentError(
                f"agent {self.name} is reached by A2A, which needs the SDK of the protocol: "
                "install endstop[server]"
            ) from error
        from endstop.agents.remote_following import Terms
        from endstop.agents.remote_wire import Wire

        wire = Wire(self._agent, token=self._token, headers=self._headers, binding=self._binding)
        terms = Terms(
            name=self.name,
            patience=self._patience,
            lost_s=self._lost_s,
            streaming=self._streaming,
        )
        return wire, terms


def _name_of_journal(shelf: Shelf) -> str:
    """A journal's name, made when it is first asked for, the same for whoever opens it."""
    found = shelf.get(SPACE, _ORIGIN)
    if found is None:
        made = {"name": secrets.token_hex(6)}
        found = made if shelf.swap(SPACE, _ORIGIN, None, made) else shelf.get(SPACE, _ORIGIN)
    assert found is not None, "nobody deletes it"
    return str(found["name"])


def _task_of(reference: Reference) -> str:
    task_id = reference.get("task") if isinstance(reference, dict) else None
    if not isinstance(task_id, str) or not task_id:
        raise AgentError(f"{reference!r:.80} is no reference to a task of a remote agent")
    return task_id


def _name_of(agent: object) -> str:
    """A name from the URL or the card, such as every model takes for a tool."""
    if isinstance(agent, str):
        parts = urlsplit(agent)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CallerError(f"{agent!r:.200} is no http(s) URL of an agent")
        text = parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")
    else:
        text = str(getattr(agent, "name", ""))
        if not hasattr(agent, "supported_interfaces"):
            raise CallerError(f"a remote agent is named by its URL or its card, not {agent!r:.80}")
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:64] or "remote"
