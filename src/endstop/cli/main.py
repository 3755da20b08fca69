"""The command line's commands: options in, one library call, output and exit code out.

Importing this must stay quick: what a command needs is imported when it runs.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import endstop
from endstop.cli import control, run, serve
from endstop.config import SECONDS_MAX
from endstop.errors import EndstopError, JournalError

app = typer.Typer(
    name="endstop",
    help="Runs the tool calls of an AI agent so that stop means stop.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXIT_CODES = (
    "Exit codes: 0 every call succeeded · 1 some call did not · 2 bad usage or unreadable input, "
    "nothing was run · 3 the journal failed, or another program drives the run, "
    "or the answer could not be written · "
    "129 stopped by SIGHUP · 130 by Ctrl-C · 143 by SIGTERM"
)

EXEC_HELP = (
    "Run the tool calls of a model's reply and print the tool messages that answer it.\n\n"
    "The reply is taken as the provider sent it. The calls are shown while they run, on standard "
    "error; the tool messages, in the reply's own format, go to standard output. Ctrl-C stops the "
    "calls, a second Ctrl-C kills them, and the table at the end says what is true of each."
)

# ClickException, the base of every mistake on the command line, wherever this typer keeps it.
_Mistake: Any = typer.BadParameter.__mro__[2]


class Format(StrEnum):
    """The formats of replies."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC_MESSAGES = "anthropic-messages"


Tools = Annotated[
    list[str],
    typer.Option(
        "--tools",
        "-t",
        metavar="FILE.py|MODULE",
        help="Where the tools are; may be given several times.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"endstop {endstop.__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Runs the tool calls of an AI agent so that stop means stop."""


@app.command(
    name="exec",
    epilog=EXIT_CODES,
    help=EXEC_HELP,
)
def exec_(
    reply: Annotated[
        str, typer.Argument(metavar="REPLY.json|-", help="A model's reply as received, or -.")
    ],
    tools: Tools = [],  # noqa: B006 - typer copies it
    journal: Annotated[
        str | None, typer.Option(metavar="FILE.db", help="Record the run in this journal.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="The reply's format; found out where not given.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many calls at once.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Running time of each call; 0 is no limit.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="S", help="Time for all calls together.")
    ] = None,
    shell: Annotated[bool, typer.Option("--shell", help="Offer the built-in shell tool.")] = False,
    mcp: control.Mcp = [],  # noqa: B006 - typer copies it
    mcp_env: control.McpEnv = [],  # noqa: B006 - typer copies it
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve every call that needs approval.")
    ] = False,
    approval_timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="How long a call may wait for approval; then it expires."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    from endstop.cli.running import Wanted, run
    from endstop.cli.servers import Servers

    wanted = Wanted(
        reply=reply,
        tools=tuple(tools),
        shell=shell,
        journal=journal,
        format=None if format is None else str(format),
        parallel=parallel,
        timeout_s=timeout,
        deadline_s=_seconds("--deadline", deadline),
        approve_all=yes,
        approval_s=_seconds("--approval-timeout", approval_timeout),
        as_json=as_json,
        servers=Servers(commands=tuple(mcp), env=tuple(mcp_env)),
    )
    raise typer.Exit(run(wanted))


@app.command()
def tools(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="FILE.py|MODULE...", help="Where the tools are.")
    ] = None,
    mcp: control.Mcp = [],  # noqa: B006 - typer copies it
    mcp_env: control.McpEnv = [],  # noqa: B006 - typer copies it
    as_json: AsJson = False,
) -> None:
    """List tools with their schemas and contracts."""
    from endstop.cli.servers import Servers
    from endstop.cli.tools import show

    if not sources and not mcp:
        raise typer.BadParameter("name a file of tools, a module, or an MCP server with --mcp")
    servers = Servers(commands=tuple(mcp), env=tuple(mcp_env))
    show(sources or (), servers, as_json=as_json)


@app.command()
def journal(
    file: Annotated[Path, typer.Argument(metavar="FILE.db", help="The journal; never changed.")],
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="One run: its id, the beginning of it, or `last`."),
    ] = None,
    last: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the newest N runs; 0 lists all.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what a journal says: its runs, or what happened in one of them.

    The journal is only read: this may be done while another program drives a run in it.
    """
    from endstop.cli.journal import show_run, show_runs

    if run is None:
        show_runs(file, last=last, as_json=as_json)
    else:
        show_run(file, run, as_json=as_json)


control.register(app)
serve.register(app)
run.register(app)


@app.command()
def config(as_json: AsJson = False) -> None:
    """Show the configuration that holds in this directory."""
    from endstop.cli.settings import show

    show(as_json=as_json)


@app.command(
    help="Watch a batch of tool calls being stopped, and have every claim proved.\n\n"
    "A story in a scratch directory, with real tools. Needs no key and no network. Exits with 0 if "
    "every claim holds, with 1 otherwise."
)
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the scratch directory.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Make the pauses of the story short.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from endstop.cli.demo import demo as tell

    tell(keep=keep, fast=fast, as_json=as_json)


def _seconds(option: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not value > 0:
        raise typer.BadParameter(f"{option} is a number of seconds above 0, not {value:g}")
    return min(value, SECONDS_MAX)


def _complain(message: str, code: int) -> NoReturn:
    from endstop.cli.output import complain

    complain(message)
    sys.exit(code)


def main() -> None:
    """The `endstop` command. Mistakes are one line on standard error, never a traceback."""
    from endstop.cli.output import ready_streams

    ready_streams()
    try:
        code = app(prog_name="endstop", standalone_mode=False)
    except _Mistake as mistake:
        _complain(_usage(mistake), 2)
    except JournalError as error:
        _complain(str(error), 3)
    except EndstopError as error:
        _complain(str(error), 2)
    except (typer.Abort, KeyboardInterrupt):
        _complain("stopped before any call was started", 130)
    except BrokenPipeError:
        # The reader of the output has gone: nothing is left to be said, not even at exit.
        sys.stdout = sys.stderr
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _usage(mistake: Any) -> str:
    context = getattr(mistake, "ctx", None)
    command = context.command_path if context is not None else "endstop"
    words = str(mistake.format_message()).rstrip(".") or "no command was given"
    return f"{words[:1].lower()}{words[1:]}; see {command} --help"


if __name__ == "__main__":
    main()
