"""`mainspring router`: run a fleet's router, or ask a running one how it fares."""

from pathlib import Path
from typing import Any

import click

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    name="router", invoke_without_command=True, short_help="Run the router that nodes and gateways dial.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@click.option("--config", "path", type=FILE, help="A TOML file that describes the fleet (docs/operations.md).")
@click.option("--listen", metavar="HOST:PORT", help="UDP and TCP.  [127.0.0.1:7300]")
@click.option("--tls", type=FOLDER, help="The router's certificate: a folder of `mainspring pki issue router NAME`.")
@click.option("--drain-timeout", type=click.FloatRange(0.0, 86_400.0), help="Seconds after SIGTERM.  [30]")
@click.option("--check", is_flag=True, help="Print the resolved configuration and end.")
@click.pass_context
def command(
    ctx: click.Context,
    path: Path | None,
    listen: str | None,
    tls: Path | None,
    drain_timeout: float | None,
    check: bool,
) -> None:
    """Run the router: nodes and clients dial it, all queueing, batching and placing happens in it.

    \b
    mainspring pki init && mainspring pki issue router hill --host router.example.org
    mainspring router --listen 0.0.0.0:7300 --tls pki/router-hill
    mainspring router --config fleet.toml
    mainspring router status router.example.org:7300 --tls pki/client-me
    """
    if ctx.invoked_subcommand is not None:
        return
    import sys

    from mainspring.faultlog import set_up
    from mainspring.fleet.config import read_config
    from mainspring.fleet.loop import run
    from mainspring.fleet.serve import serve

    folder = None if tls is None else str(tls)
    config = read_config(path, router__listen=listen, tls__folder=folder, router__drain_s=drain_timeout)
    click.echo(config.resolved(), err=not check)
    if check:
        return
    set_up(sys.stderr)
    try:
        run(lambda: serve(config))
    except OSError as error:
        raise click.ClickException(f"can't listen on {config.router.listen}: {error.strerror or error}") from None


@command.command()
@click.argument("address", default="127.0.0.1:7300", metavar="[HOST:PORT]")
@click.option(
    "--tls", required=True, type=FOLDER, help="A client's certificate: of `mainspring pki issue client NAME`."
)
@click.option("--transport", type=click.Choice(["auto", "quic", "tcp"]), default="auto", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON object.")
@click.option("--timeout", default=10.0, show_default=True, type=click.FloatRange(0.1, 600.0))
def status(address: str, tls: Path, transport: Any, as_json: bool, timeout: float) -> None:
    """Nodes, queues and classes of a running router, as it knows them now.

    \b
    mainspring router status router.example.org:7300 --tls pki/client-me
    """
    import asyncio

    import msgspec

    from mainspring.cli._status import card
    from mainspring.fleet.client import FleetClient
    from mainspring.fleet.config import address_of
    from mainspring.wire.messages import Status

    host, port = address_of(address, "HOST:PORT")

    async def ask() -> Status:
        async with FleetClient.of(tls, host, port, transport=transport, connect_s=timeout) as fleet:
            return await fleet.status(passes=20)

    told = asyncio.run(ask())
    click.echo(msgspec.json.encode(told).decode() if as_json else card(told))
