"""The commands that reach into the runs of other programs, through the journal that they share.

Options in, one call out; what a command needs is imported when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

Journal = Annotated[
    str | None,
    typer.Option(
        "--journal",
        "-j",
        metavar="FILE.db",
        help="The journal; where not given, the one in the configuration.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Call = Annotated[
    str, typer.Argument(metavar="CALL", help="RUN/BATCH.INDEX; the run may be cut short.")
]


Mcp = Annotated[
    list[str],
    typer.Option(
        metavar="COMMAND|URL",
        help="An MCP server: a command that starts it, or its URL; may be given several times.",
    ),
]
McpEnv = Annotated[
    list[str],
    typer.Option(metavar="NAME", help="A variable that MCP servers get, beside PATH and the like."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (runs, stop, say, resume, approvals, approve, reject, respond, rules, revoke):
        app.command()(command)
    app.command()(budget)


def runs(
    journal: Journal = None,
    last: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the newest N runs; 0 lists all.")
    ] = 20,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", "-u", help="Only runs that are not over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List runs: who drives them, and what they wait for."""
    from endstop.cli.runs import list_runs
    from endstop.cli.where import journal_file

    list_runs(journal_file(journal), last=last, unfinished=unfinished, as_json=as_json)


def stop(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN[/CALL]", help="A run, a batch or a call; the run may be cut short."
        ),
    ],
    kill: Annotated[bool, typer.Option("--kill", help="Kill at once, without grace.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="What runs may finish; nothing new starts.")
    ] = False,
    journal: Journal = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run, or one call of it, whichever program drives it, and say what came of it.

    The driver is asked; where it is gone or does not answer, the run is taken from it and ended
    here. Exit codes: 0 it is over · 1 it is over and some call is lost · 2 there is no such target
    · 3 the journal failed.
    """
    from endstop.cli.stop import stop as stop_it
    from endstop.cli.where import journal_file
    from endstop.core.terms import Mode

    if kill and drain:
        raise typer.BadParameter("--kill and --drain contradict each other; give one of them")
    mode = Mode.KILL if kill else Mode.DRAIN if drain else Mode.INTERRUPT
    raise typer.Exit(stop_it(journal_file(journal), target, mode, as_json=as_json))


def say(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id, the beginning of it, or `last`.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What its agent is to hear.")],
    later: Annotated[
        bool, typer.Option("--later", help="Once it has nothing else to do; no call is skipped.")
    ] = False,
    journal: Journal = None,
) -> None:
    """Say something to an agent that another program drives.

    It hears it next: calls that have not begun are skipped, what runs may finish. Exit codes: 0 it
    is said · 1 the run is over · 2 refused.
    """
    from endstop.cli.saying import say as say_it
    from endstop.cli.where import journal_file

    raise typer.Exit(say_it(journal_file(journal), run, text, later=later))


def resume(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id, the beginning of it, or `last`.")
    ],
    tools: Annotated[
        list[str],
        typer.Option(
            "--tools",
            "-t",
            metavar="FILE.py|MODULE",
            help="Where the tools are; may be given several times.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    shell: Annotated[bool, typer.Option("--shell", help="Offer the built-in shell tool.")] = False,
    mcp: Mcp = [],  # noqa: B006 - typer copies it
    mcp_env: McpEnv = [],  # noqa: B006 - typer copies it
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve every call that needs approval.")
    ] = False,
    journal: Journal = None,
    as_json: AsJson = False,
) -> None:
    """Take up a run whose driver is gone, and bring it to its end.

    What is over stays as it is recorded. What had not started goes on; what may have started runs
    again only where that does no harm. Exit codes as for `exec`.
    """
    from endstop.cli.resume import Wanted
    from endstop.cli.resume import resume as take_up
    from endstop.cli.servers import Servers
    from endstop.cli.where import journal_file

    servers = Servers(commands=tuple(mcp), env=tuple(mcp_env))
    wanted = Wanted(
        run=run,
        tools=tuple(tools),
        shell=shell,
        approve_all=yes,
        as_json=as_json,
        servers=servers,
    )
    raise typer.Exit(take_up(journal_file(journal), wanted))


def approvals(journal: Journal = None, as_json: AsJson = False) -> None:
    """List the calls that wait for a human: for approval, or for an answer while they run."""
    from endstop.cli.approvals import show_approvals
    from endstop.cli.where import journal_file

    show_approvals(journal_file(journal), as_json=as_json)


def approve(
    call: Call,
    edit: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Other arguments for it, checked by its tool."),
    ] = None,
    remember: Annotated[
        bool,
        typer.Option(
            "--remember", help="Let later calls of the run with the same arguments pass, too."
        ),
    ] = False,
    same: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="With --remember: only this argument counts."),
    ] = [],  # noqa: B006 - typer copies it
    any_: Annotated[
        bool, typer.Option("--any", help="With --remember: no argument counts.")
    ] = False,
    for_: Annotated[
        float | None, typer.Option("--for", metavar="S", help="With --remember: for so long.")
    ] = None,
    journal: Journal = None,
) -> None:
    """Let a call that waits for approval go on, as it is shown by `approvals`.

    Exit codes: 0 done · 1 too late, nothing was changed · 2 refused.
    """
    from endstop.cli.approvals import answer
    from endstop.cli.where import journal_file
    from endstop.core.terms import Verdict
    from endstop.run.remembering import Remember

    if not remember and (same or any_ or for_ is not None):
        raise typer.BadParameter("--same, --any and --for say what --remember means; add that")
    if (same and any_) or (remember and edit is not None):
        raise typer.BadParameter("--same and --any, --remember and --edit contradict each other")
    rule = Remember(same=same or ([] if any_ else None), for_s=for_) if remember else None
    verdict = Verdict.APPROVE if edit is None else Verdict.EDIT
    file = journal_file(journal)
    raise typer.Exit(answer(file, call, verdict, arguments=edit, remember=rule))


def reject(
    call: Call,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="WORDS", help="Why, for the model.")
    ] = "",
    journal: Journal = None,
) -> None:
    """Refuse a call that waits for approval; exit codes as for `approve`."""
    from endstop.cli.approvals import answer
    from endstop.cli.where import journal_file
    from endstop.core.terms import Verdict

    raise typer.Exit(answer(journal_file(journal), call, Verdict.REJECT, text=message))


def respond(
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="A call, or a question by the id that is listed.")
    ],
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The answer; a secret is typed instead."),
    ] = None,
    journal: Journal = None,
) -> None:
    """Answer in place of a tool, which then does not run, or a question that a running one asks.

    Exit codes as for `approve`.
    """
    from endstop.cli.approvals import respond as answer_it
    from endstop.cli.where import journal_file

    raise typer.Exit(answer_it(journal_file(journal), call, text))


def rules(journal: Journal = None, as_json: AsJson = False) -> None:
    """List the approvals that are remembered: which calls pass without a question, and how long."""
    from endstop.cli.rules import show_rules
    from endstop.cli.where import journal_file

    show_rules(journal_file(journal), as_json=as_json)


def revoke(
    rule: Annotated[
        str,
        typer.Argument(metavar="RULE", help="RUN/BATCH.INDEX, as `rules` lists it."),
    ],
    journal: Journal = None,
) -> None:
    """Take a remembered approval back: from now on its calls ask again.

    What it has let through is not called back. Exit codes as for `approve`.
    """
    from endstop.cli.rules import revoke as take_back
    from endstop.cli.where import journal_file

    raise typer.Exit(take_back(journal_file(journal), rule))


def budget(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id, the beginning of it, or `last`.")
    ],
    journal: Journal = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run may spend, what it holds reserved, has spent, and saved by not starting."""
    from endstop.cli.budget import show_budget
    from endstop.cli.where import journal_file

    show_budget(journal_file(journal), run, as_json=as_json)
