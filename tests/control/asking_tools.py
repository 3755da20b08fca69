"""Tools whose running bodies ask a human."""

from __future__ import annotations

import hashlib

from endstop import AsyncContext, tool


@tool(resources=[])
async def greet(ctx: AsyncContext) -> str:
    """Greet somebody."""
    name = await ctx.ask("Whom?", choices=["ann", "bob"])
    return f"hello {name}"


@tool(resources=[])
async def log_in(ctx: AsyncContext) -> str:
    """Log in with a password."""
    password = await ctx.ask("Password?", secret=True)
    return hashlib.sha256(password.encode()).hexdigest()
