"""Planted bugs in MCP servers: their stop, their end, what they answer and what they are told."""

from __future__ import annotations

from tests.mutants.runner import Mutant

HONEST = "5 honest-effect"
TREE = "11 whole-tree"
MCP = "tests/mcp/"
EXCHANGE = "adapters/mcp/exchange.py"


def planted(name: str, law: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """One planted bug; its tests by file and name."""
    return Mutant(
        name=name, law=law, file=file, old=old, new=new, tests=tuple(MCP + test for test in tests)
    )


SERVERS: tuple[Mutant, ...] = (
    planted(
        "a stop sends no notice to an MCP server",
        "6 bounded-stop",
        EXCHANGE,
        "        self._told_stop = True\n",
        "        self._told_stop = True\n        return\n",
        "test_stop.py::test_a_stop_sends_the_notice_with_the_id_of_the_request",
    ),
    planted(
        "the stop of a silent MCP server counts as done",
        HONEST,
        EXCHANGE,
        "    await asyncio.wait({over}, timeout=max(0.0, until - monotonic()))\n",
        "    pass\n",
        "test_stop.py::test_a_silent_server_is_abandoned_and_its_effect_is_unknown",
    ),
    planted(
        "a lost connection to an MCP server proves its end",
        HONEST,
        EXCHANGE,
        "    if isinstance(failure, McpLost):\n",
        "    if False:\n",
        "test_http.py::test_a_lost_connection_proves_nothing",
    ),
    planted(
        "an MCP server that works for others is killed",
        "14 isolated-siblings",
        EXCHANGE,
        "        if all(other.stopping for other in live.exchanges):\n",
        "        if True:\n",
        "test_stop.py::test_a_server_that_works_for_others_is_not_killed",
    ),
    planted(
        "the tree of an MCP server is not killed",
        TREE,
        "adapters/mcp/stdio.py",
        "        return program.end(KILL_S)\n",
        '        return Remains(program.status, "", ())\n',
        "test_end.py::test_closing_kills_the_whole_tree",
    ),
    planted(
        "an MCP server outlives who started it",
        TREE,
        "work/host.py",
        '        self.detached = command is not None and not command.get("stdio")\n',
        "        self.detached = command is not None\n",
        "test_end.py::test_a_server_does_not_outlive_who_started_it",
    ),
    planted(
        "an error of an MCP tool counts as success",
        HONEST,
        "adapters/mcp/results.py",
        "    if answer.is_error:\n",
        "    if False:\n",
        "test_calls.py::test_an_error_of_the_tool_is_a_failure_in_its_words",
    ),
    planted(
        "an MCP server gets the whole environment",
        "19 any-payload",
        "work/program.py",
        "    return {name: os.environ[name] for name in _INHERITED if name in os.environ}\n",
        "    return dict(os.environ)\n",
        "test_calls.py::test_a_server_sees_only_what_it_is_given",
    ),
    planted(
        "it is guessed which call an MCP server asks for",
        "13 one-approval",
        "adapters/mcp/elicit.py",
        "        if exchange is None and len(running) == 1:\n",
        "        if exchange is None and running:\n",
        "test_asking.py::test_it_is_not_guessed_which_call_asks",
    ),
)
