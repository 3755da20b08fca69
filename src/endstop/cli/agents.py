"""The command line's agents: finding the one agent in a file or module, in words where it is not.

Loading runs the user's code; see `loading.py`.
"""

from __future__ import annotations

from endstop.agents.model_agent import ModelAgent
from endstop.cli.loading import load_module
from endstop.errors import CallerError

HOW_TO_DECLARE = (
    "declare one as `agent = ModelAgent(name=..., model=..., tools=[...])` "
    "(`from endstop import ModelAgent`)"
)


def load_agent(source: str, name: str | None) -> ModelAgent:
    """The agent of a file or module: the one there is, or the one of this name.

    Where there are several and no name is given, it is the one that the variable `agent` holds.
    Raises CallerError for a source that cannot be loaded, has none, or several to choose from.
    """
    module = load_module(source)
    found: dict[str, ModelAgent] = {}
    for value in vars(module).values():
        if isinstance(value, ModelAgent) and found.setdefault(value.name, value) is not value:
            raise CallerError(
                f"{source}: there are two agents named {value.name!r}; give one another name"
            )
    known = ", ".join(sorted(found))
    if not found:
        raise CallerError(f"{source} has no agent; {HOW_TO_DECLARE}")
    if name is not None:
        if name not in found:
            raise CallerError(f"{source} has no agent named {name!r}; there are: {known}")
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    chosen = getattr(module, "agent", None)
    if isinstance(chosen, ModelAgent):
        return chosen
    raise CallerError(f"{source} has several agents: {known}; choose one with --agent NAME")
