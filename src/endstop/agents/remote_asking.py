"""What a remote agent asks: put to a human, and the answer brought back to its task.

An answer is given once by the human and sent until the agent has it: the same message under the
same id, again only while the task still shows the same question. Nothing here decides how a call
ends. Needs the SDK of the protocol.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from a2a.types import Message, Part, Role

from endstop.agents.agent import Failure, Status
from endstop.agents.remote_view import Shown, View
from endstop.agents.remote_wire import FINAL, Kind, Wire, WireError
from endstop.errors import Stopped, Unanswered
from endstop.tools.context import AsyncContext

log = logging.getLogger("endstop.agents")

LOOK_S = 5.0
"""How often it is looked, while a human thinks, whether the task still asks."""


class Asker:
    """The questions of one task; `send` sends a message to it and reads what comes of that."""

    def __init__(
        self,
        name: str,
        view: View,
        wire: Wire,
        ctx: AsyncContext | None,
        probe_s: float,
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._name = name
        self._view = view
        self._wire = wire
        self._ctx = ctx
        self._probe_s = probe_s
        self._send = send
        # The answer that may not have arrived.
        self._answer: Message | None = None

    async def ask(self) -> bool:
        """Ask what the task asks now, and send the answer; false once the call was stopped.

        Raises WireError where the answer may not have arrived; see `send_again`.
        """
        ctx, view, asked = self._ctx, self._view, self._view.shown
        if ctx is None:
            words = f"agent {self._name} asks, and nobody can be asked here: {asked[3]}"
            view.end(Status.FAILED, Failure(words))
            return True
        named, secret = view.named, view.secret
        asking = asyncio.get_running_loop().create_task(ctx.ask(view.question, secret=secret))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=LOOK_S)
                if not asking.done() and not await self._still_asks(asked):
                    # Answered elsewhere, or over: the question is withdrawn.
                    return True
            answer = asking.result()
        except (Stopped, Unanswered):
            return False
        finally:
            asking.cancel()
        # Not a count: after a crash another one would begin at the same number.
        message_id = f"{ctx.effect_key}-answer-{secrets.token_hex(4)}"
        self._answer = message_to(view, answer, message_id)
        if secret and named is not None:
            # By its name it can only be an answer, whenever it arrives: plain words could become a
            # message that the agent keeps.
            said = self._answer.parts[0].data.struct_value
            said.update({"question": named, "answer": answer})
        view.answered, view.moved = asked, True
        await self._bring()
        return True

    async def send_again(self) -> bool:
        """Send an answer again that did not arrive; false where there is none. Raises WireError."""
        if self._answer is None or self._view.shown != self._view.answered:
            self._answer = None
            return False
        await self._bring()
        return True

    async def _bring(self) -> None:
        assert self._answer is not None, "there is an answer to be brought"
        try:
            await self._send(self._answer)
        except WireError as error:
            if error.kind is not Kind.REFUSED or self._view.over:
                raise
            words = f"agent {self._name} refused the answer to its question: {error}"
            self._view.end(Status.FAILED, Failure(words))
        self._answer = None

    async def _still_asks(self, asked: Shown) -> bool:
        view = self._view
        try:
            view.apply_task(await self._wire.get(view.task_id, self._probe_s))
        except WireError as error:
            log.debug("agent %s, task %s: %s", self._name, view.task_id, error)
            return error.kind not in FINAL
        return view.shown == asked


def message_to(view: View, text: str, message_id: str) -> Message:
    """A text for a task, or for one that is yet to be."""
    return Message(
        message_id=message_id,
        role=Role.ROLE_USER,
        task_id=view.task_id,
        context_id=view.context_id,
        parts=[Part(text=text)],
    )
