"""`mainspring gateway`: HTTP in front of a router that runs elsewhere."""

from pathlib import Path

import click

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="HTTP in front of a router that runs elsewhere.")
@click.option("--router", metavar="HOST:PORT", help="Where to dial.  [127.0.0.1:7300]")
@click.option("--tls", type=FOLDER, help="A client's certificate: of `mainspring pki issue client NAME`.")
@click.option("--transport", type=click.Choice(["auto", "quic", "tcp"]), help="auto: QUIC, TCP where UDP is blocked.")
@click.option("--host", metavar="ADDRESS", help="Where to listen; beyond loopback only with --keys.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes a free one.  [8000]")
@click.option("--keys", type=FILE, help="API keys, as `mainspring keys add` writes them.")
@click.option("--drain-timeout", type=click.FloatRange(0.0, 86_400.0), help="Seconds after SIGTERM.  [30]")
@click.option("--config", "path", type=FILE, help="TOML with a [gateway] table.")
@click.option("--check", is_flag=True, help="Print the resolved configuration and end.")
def gateway(
    router: str | None, tls: Path | None, transport: str | None, host: str | None, port: int | None,
    keys: Path | None, drain_timeout: float | None, path: Path | None, check: bool,
) -> None:  # fmt: skip
    """HTTP in front of a router that runs elsewhere. Any number of them may serve one router.

    \b
    mainspring pki issue client gate
    mainspring gateway --router router.example.org:7300 --tls pki/client-gate
    """
    import sys

    from mainspring.cli.serve import url_of
    from mainspring.fleet.loop import run
    from mainspring.gateway import logs, remote
    from mainspring.gateway.config import read_gateway_config

    config = read_gateway_config(
        path, router=router, tls=None if tls is None else str(tls), transport=transport, host=host, port=port,
        keys=None if keys is None else str(keys), drain_s=drain_timeout,
    )  # fmt: skip
    if check:
        click.echo(config.resolved())
        return
    logs.set_up(sys.stderr)
    click.echo(f"gateway {config.resolved()}", err=True)
    run(lambda: remote.serve(config, lambda bound, number: click.echo(f"listening on {url_of(bound, number)}")))
