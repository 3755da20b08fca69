"""How the end of a body in this process becomes one input, shared by coroutine and thread workers.

Whatever a body returns or raises leaves here as bounded data (law 19 any-payload): a SystemExit or
a KeyboardInterrupt ends one call, a result without a JSON form is named by its path. Nothing here
decides what the end means; `core/settling.py` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from endstop.core.inputs import BodyEnded, CloseRun, Note
from endstop.core.payload import Unserialisable, to_data
from endstop.core.record import maker
from endstop.core.terms import How
from endstop.core.text import describe_error
from endstop.errors import EndstopError
from endstop.tools.context import BodyContext, current

if TYPE_CHECKING:
    from endstop.tools.tool import Tool

log = logging.getLogger("endstop.work")

_SHORT_CHARS = 10_000
_RETURNED = How.RETURNED
_ended = maker(BodyEnded)


# By the identity of the context of the body; each is taken out by the worker of that body.
_duties: dict[int, Callable[[], None]] = {}


def on_return(context: BodyContext, duty: Callable[[], None]) -> None:
    """Have something checked when a body of this process is over; a later duty replaces it.

    What it raises fails the body that returned, and changes nothing for one that raised. It is
    called where the body ran and must not wait.
    """
    _duties[id(context)] = duty


# As the duties are.
_last_words: dict[int, tuple[Note | CloseRun, ...]] = {}


def say_last(context: BodyContext, said: tuple[Note | CloseRun, ...]) -> None:
    """Have this recorded in one step with the end of a body of this process, which is about to
    come: two steps less for whoever waits for both (law 15 record-first)."""
    if said:
        _last_words[id(context)] = said


def _do_duty() -> None:
    duty = _duties.pop(id(current()), None)
    if duty is not None:
        duty()


def returned(call: str, value: Any) -> BodyEnded:
    """The end of a body that returned `value`. Raises what its duty raises; see `on_return`."""
    if _duties:
        _do_duty()
    said = _last_words.pop(id(current()), ()) if _last_words else ()
    kind = type(value)
    # The everyday results need no walk: they are data already.
    if value is None or kind is bool or (kind is str and value.isascii() and _is_short(value)):
        return _ended(call=call, how=_RETURNED, value=value, said=said)
    try:
        return _ended(call=call, how=_RETURNED, value=to_data(value), said=said)
    except Unserialisable as problem:
        return BodyEnded(call=call, how=How.UNSERIALISABLE, error=str(problem), said=said)
    except BaseException as error:
        # The value raised while it was read. The body has returned all the same (law 5).
        words = f"result: could not be read: {words_of(error)}"
        return BodyEnded(call=call, how=How.UNSERIALISABLE, error=words, said=said)


def _is_short(text: str) -> bool:
    return len(text) <= _SHORT_CHARS and "\0" not in text


def raised(call: str, error: BaseException) -> BodyEnded:
    """The end of a body that raised; a stopped one may have left its output on the error."""
    if _duties:
        with suppress(EndstopError):
            _do_duty()
    said = _last_words.pop(id(current()), ()) if _last_words else ()
    words, output = words_of(error), output_of(error)
    return BodyEnded(call=call, how=How.RAISED, error=words, output=output, said=said)


def words_of(error: BaseException) -> str:
    """Name and message of what a body raised, whatever it raises when it is asked for them."""
    try:
        return describe_error(error)
    except BaseException:
        return "an error that raises when it is asked what it is"


def output_of(error: BaseException) -> Any:
    """What a stopped body left on its error, as data; None where that cannot be read."""
    try:
        return to_data(getattr(error, "output", None), where="output")
    except BaseException:
        return None


def interrupt(tool: Tool, ctx: BodyContext) -> None:
    """Call a tool's own interrupt, if it has one; its failure changes nothing."""
    if tool.interrupt is None:
        return
    try:
        tool.interrupt(ctx)
    except BaseException:
        log.warning("the interrupt of tool %s failed", tool.name, exc_info=True)
