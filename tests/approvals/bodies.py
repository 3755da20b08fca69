"""Bodies that ask, one for each kind of worker, where a process finds them as well."""

from __future__ import annotations

from endstop import AsyncContext, Context, Unanswered, tool


@tool(resources=(), name="asks", timeout=5.0, grace=0.5)
async def in_coroutine(
    ctx: AsyncContext,
    text: str,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    limit_s: float | None = None,
) -> str:
    """Ask on the loop."""
    try:
        return await ctx.ask(text, choices=choices, secret=secret, timeout_s=limit_s)
    except Unanswered:
        return "nobody"


def _ask(
    ctx: Context, text: str, choices: tuple[str, ...], secret: bool, limit_s: float | None
) -> str:
    try:
        return ctx.ask(text, choices=choices, secret=secret, timeout_s=limit_s)
    except Unanswered:
        return "nobody"


@tool(resources=(), name="asks", timeout=5.0, grace=0.5)
def in_thread(
    ctx: Context,
    text: str,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    limit_s: float | None = None,
) -> str:
    """Ask in a thread."""
    return _ask(ctx, text, choices, secret, limit_s)


@tool(resources=(), name="asks", isolation="process", timeout=5.0, grace=1.0)
def in_process(
    ctx: Context,
    text: str,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    limit_s: float | None = None,
) -> str:
    """Ask in a process."""
    return _ask(ctx, text, choices, secret, limit_s)


BODIES = {"coroutine": in_coroutine, "thread": in_thread, "process": in_process}
