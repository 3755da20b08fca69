"""Agents: one ask of a model, which can be stopped at any moment.

Between the loop and a model that may be anybody's code: whatever it raises becomes a `ModelError`,
and what it says after it was stopped is not heard (law 1 one-door).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from endstop.agents.models.protocol import Ask, Delta, Model, ModelError, ModelReply, Usage
from endstop.core.text import describe_error

log = logging.getLogger("endstop.agents")

Wait = Callable[[asyncio.Task[ModelReply | ModelError], float | None], Awaitable[None]]

AGAIN_S = (0.2, 1.0, 4.0)
"""Rests before a reply that broke off is asked for again, in seconds."""

OF_A_MOMENT = frozenset({"broken_stream", "timeout"})
"""Kinds of `ModelError` after which the loop itself asks again; the rest the model has tried."""

CLOSE_S = 2.0
"""How long the loop waits for a model that it stopped (law 6 bounded-stop)."""


class Asking:
    """A question to a model that is under way."""

    def __init__(
        self, model: Model, ask: Ask, show: Callable[[Delta], None], over: Callable[[], bool]
    ) -> None:
        self._model = model
        self._show = show
        self._over = over
        self._stopped = False
        self.task: asyncio.Task[ModelReply | ModelError] = asyncio.create_task(self._run(ask))

    async def until(self, wait: Wait, due: float | None) -> ModelReply | None:
        """Wait for the reply; None where it was over before that was there, or `due` passed.

        The stream is closed then, and a reply that is there all the same is never taken (law 1
        one-door). Raises ModelError.
        """
        loop = asyncio.get_running_loop()
        while not self.task.done() and not self._over() and (due is None or loop.time() < due):
            await wait(self.task, due)
        if self.task.done() and not self._over():
            return self._reply()
        self._stopped = True
        self.task.cancel()
        close_by = loop.time() + CLOSE_S
        while not self.task.done() and loop.time() < close_by:
            await wait(self.task, close_by)
        if not self.task.done():
            log.warning("model %s goes on after it was stopped", self._model.name)
        return None

    def _reply(self) -> ModelReply:
        assert not self._stopped, "what comes after a stop is not taken (law 1 one-door)"
        if self.task.cancelled():
            raise ModelError("unavailable", f"Model {self._model.name!r} cancelled its own reply")
        found = self.task.result()
        if isinstance(found, ModelError):
            raise found
        return found

    def _heard(self, delta: Delta) -> None:
        if not (self._stopped or self.task.done() or self._over()):
            self._show(delta)

    async def _run(self, ask: Ask) -> ModelReply | ModelError:
        if self._over():
            # Cancelled between the decision to ask and this: no further turn.
            return ModelError("unavailable", "the run is over")
        try:
            reply = await self._model.reply(ask, self._heard)
        except ModelError as error:
            return error
        # Anybody's code. SystemExit, too: in a task it would end the loop and every run on it.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            words = f"Model {self._model.name!r} failed: {describe_error(error)}"
            return ModelError("unavailable", words)
        if isinstance(reply, ModelReply) and isinstance(reply.usage, Usage):
            return reply
        words = f"answered {type(reply).__name__}, where a ModelReply is expected"
        return ModelError("bad_request", f"Model {self._model.name!r} {words}")
