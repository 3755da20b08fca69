"""The command that runs an agent. Options in, one call out."""

from __future__ import annotations

from typing import Annotated

import typer

from endstop.cli.control import AsJson

RUN_HELP = (
    "Run an agent on a prompt, and print its answer.\n\n"
    "FILE.py declares the agent: a ModelAgent with its model and tools. What it says and the calls "
    "it makes are shown on standard error while they happen; its last word goes to standard "
    "output. Ctrl-C stops it, a second Ctrl-C kills what still runs, and the table at the end says "
    "what is true of each call. With a journal it can be stopped and answered from another "
    "terminal, and goes on with --resume after it was killed."
)
EXIT_CODES = (
    "Exit codes: 0 the agent came to its own end · 1 it failed, reached a limit, or was stopped "
    "from elsewhere · 2 bad usage, nothing was run · 3 the journal failed, or another program "
    "drives the run, or the answer could not be written · 129 stopped by SIGHUP · 130 by Ctrl-C · "
    "143 by SIGTERM"
)


Journal = Annotated[
    str | None,
    typer.Option("--journal", "-j", metavar="FILE.db", help="Record the run in this journal."),
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Go on with a run that was killed: its id, or `last`."),
]
Turns = Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many replies.")]
Calls = Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many tool calls.")]
Tokens = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="At most so many tokens in all.")
]
Amount = Annotated[
    str | None, typer.Option(metavar="AMOUNT", help='At most so much, such as "0.50 USD".')
]
Seconds = Annotated[
    float | None, typer.Option(metavar="S", help="At most so long; waits for humans apart.")
]
Approval = Annotated[
    float | None,
    typer.Option(metavar="S", help="How long a call may wait for approval; then it expires."),
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(name="run", help=RUN_HELP, epilog=EXIT_CODES)(run)


def run(
    source: Annotated[
        str, typer.Argument(metavar="FILE.py|MODULE", help="Where the agent is declared.")
    ],
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT|-]", help="What it is to do; - reads standard input."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which agent, where there are several.")
    ] = None,
    journal: Journal = None,
    resume: Resume = None,
    max_turns: Turns = None,
    max_calls: Calls = None,
    max_tokens: Tokens = None,
    max_money: Amount = None,
    max_seconds: Seconds = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve every call that needs approval.")
    ] = False,
    approval_timeout: Approval = None,
    as_json: AsJson = False,
) -> None:
    """See RUN_HELP."""
    from endstop.cli.driving import Wanted
    from endstop.cli.driving import run as drive

    limits = {
        "turns": max_turns,
        "calls": max_calls,
        "tokens": max_tokens,
        "money": max_money,
        "wall_s": max_seconds,
    }
    wanted = Wanted(
        source=source,
        prompt=prompt,
        agent=agent,
        journal=journal,
        resume=resume,
        limits={name: value for name, value in limits.items() if value is not None},
        approve_all=yes,
        approval_s=approval_timeout,
        as_json=as_json,
    )
    raise typer.Exit(drive(wanted))
