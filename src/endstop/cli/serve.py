"""The command that serves an agent to others, over A2A. Options in, one call out."""

from __future__ import annotations

from typing import Annotated

import typer

SERVE_HELP = (
    "Serve an agent over A2A: its tasks can be sent, streamed, watched and stopped.\n\n"
    "FILE.py declares an AgentExecutor of the A2A SDK, or an agent of endstop, and may declare "
    "its agent_card. Ctrl-C or SIGTERM stops it: what may go on later is kept in the journal, what "
    "runs is stopped by the ladder, every stream gets a last frame. A second one kills what "
    "runs.\n\n"
    "Tokens are better given in the variable ENDSTOP_TOKEN, several with spaces between them: "
    "what stands in a command can be read by everybody on this machine."
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(help=SERVE_HELP, epilog="Exit codes: 0 it was stopped · 2 it cannot be served")(
        serve
    )


def serve(
    source: Annotated[
        str, typer.Argument(metavar="FILE.py|MODULE", help="Where the agent is declared.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than 127.0.0.1 need a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port for HTTP; 0 takes a free one.")
    ] = 8000,
    grpc_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port for gRPC; without it there is no gRPC."),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option("--journal", "-j", metavar="FILE.db", help="Where tasks survive a restart."),
    ] = None,
    token: Annotated[
        list[str],
        typer.Option(metavar="[OWNER=]TOKEN", help="Who may ask; may be given several times."),
    ] = [],  # noqa: B006 - typer copies it
    name: Annotated[
        str | None, typer.Option(help="The agent's name, over what its card says.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where clients reach it, if that is behind a proxy."),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Seconds between asking a task to stop and the end."),
    ] = None,
    private_webhooks: Annotated[
        bool,
        typer.Option("--private-webhooks", help="Push to addresses of this network, too."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line per request.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say where it is as one line of JSON.")
    ] = False,
) -> None:
    """See SERVE_HELP."""
    from endstop.cli.serving import Wanted, run

    wanted = Wanted(
        source=source,
        host=host,
        port=port,
        grpc_port=grpc_port,
        journal=journal,
        tokens=tuple(token),
        name=name,
        url=url,
        grace_s=grace,
        private_webhooks=private_webhooks,
        quiet=quiet,
        as_json=as_json,
    )
    raise typer.Exit(run(wanted))
