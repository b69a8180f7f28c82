"""`mainspring serve`: HTTP, router and a local node under one command."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring.cli.node import node as node_command
from mainspring.hub import EMBEDDED, PACKAGED

if TYPE_CHECKING:
    from mainspring.fleet.config import NodeSection
    from mainspring.gateway.service import Gateway

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PROBE_S = 1.0
"""Before the first request; idle time refines what was measured, and the next start begins with that."""
DEVICES = next(each.type for each in node_command.params if each.name == "device")
DRAFTERS = next(each.type for each in node_command.params if each.name == "drafter")


@click.command(short_help="Serve a model over HTTP on this machine.")
@click.argument("model", required=False, metavar="[MODEL]")
@click.option("--host", metavar="ADDRESS", help="Where to listen; beyond loopback only with --keys.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes a free one.  [8000]")
@click.option("--device", type=DEVICES, help="Where the model runs.  [cpu]")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads of the node.  [measured]")
@click.option("--slots", type=click.IntRange(0, 1024), metavar="N", help="Streams at once; 0: no generation.  [4]")
@click.option("--drafter", type=DRAFTERS, help="For requests that name none.  [the model's own, else ngram]")
@click.option("--deterministic", is_flag=True, help="Greedy text the same in any company, at its price.")
@click.option("--prefix-disk", metavar="DIR", help="Keep read prompts here when memory has no room.  [off]")
@click.option("--prefix-disk-gb", type=click.FloatRange(0, 1e6, min_open=True), metavar="N", help="At most.  [8]")
@click.option("--keys", type=FILE, help="API keys, as `mainspring keys add` writes them.")
@click.option("--drain-timeout", type=click.FloatRange(0.0, 86_400.0), help="Seconds after SIGTERM.  [30]")
@click.option("--config", "path", type=FILE, help="TOML: [gateway], and all that `mainspring router --config` reads.")
@click.option("--check", is_flag=True, help="Print the resolved configuration and end.")
def serve(
    model: str | None, host: str | None, port: int | None, device: str | None, threads: int | None,
    slots: int | None, drafter: str | None, deterministic: bool, prefix_disk: str | None, prefix_disk_gb: float | None,
    keys: Path | None, drain_timeout: float | None, path: Path | None, check: bool,
) -> None:  # fmt: skip
    """Serve MODEL over HTTP: a gateway, a router and a supervised local node, joined over loopback.

    MODEL is a model folder, owner/name on a hub, or a model of this package: "embedded", the small
    scorer, which is the default, or "writer". With [[node]] tables in the file those are served.

    \b
    mainspring serve
    mainspring serve models/small --port 8080
    curl localhost:8000/health/ready
    """
    import sys

    from mainspring.errors import InputError
    from mainspring.fleet.loop import run
    from mainspring.gateway import embedded, logs
    from mainspring.gateway.config import read_gateway_config

    config = read_gateway_config(
        path, host=host, port=port, keys=None if keys is None else str(keys), drain_s=drain_timeout
    )
    if check:
        click.echo(config.resolved())
        return
    has_nodes = bool(embedded.tables(path).get("node"))
    flags = {"--device": device, "--threads": threads, "--slots": slots, "--drafter": drafter,
             "--prefix-disk": prefix_disk, "--prefix-disk-gb": prefix_disk_gb}  # fmt: skip
    if has_nodes and (model or deterministic or any(value is not None for value in flags.values())):
        raise InputError("the file's [[node]] tables say which models run where",
                         param=f"MODEL, {', '.join(flags)}, --deterministic")  # fmt: skip
    node = None if has_nodes else _node(model or EMBEDDED, flags, deterministic=deterministic)
    logs.set_up(sys.stderr)
    click.echo(f"gateway {config.resolved()}", err=True)
    place: list[str] = []

    def listening(bound: str, number: int) -> None:
        place.append(url_of(bound, number))
        click.echo(f"listening on {place[0]}; {path if has_nodes else model or EMBEDDED} is being opened")

    def serves(gateway: "Gateway") -> None:
        click.echo(banner(gateway, place[0]))

    run(lambda: embedded.serve(config, path, node, listening, serves))


def _node(model: str, flags: Mapping[str, str | float | None], *, deterministic: bool = False) -> "NodeSection":
    """The local node's section, with those `flags` that were given. HubError at once, not in the child."""
    from mainspring.fleet.config import NodeSection
    from mainspring.hub import model_folder

    folder = model_folder(model)
    alias = model if model in PACKAGED or not Path(model).exists() else folder.resolve().name
    args = ["--alias", alias[:128], "--probe", f"{PROBE_S:g}"]
    args += [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    args += ["--deterministic"] if deterministic else []
    return NodeSection("local", str(folder), tuple(args))


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def banner(gateway: "Gateway", url: str) -> str:
    """Address, models, nodes, classes."""
    router = gateway.router
    assert router is not None  # noqa: S101 - it is ready
    models = ", ".join(" ".join(each.aliases) or each.model[:12] for each in router.models)
    nodes = ", ".join(f"{each.name} ({each.device or 'a device'}, {each.numerics})" for each in router.nodes)
    classes = ", ".join(
        f"{each.name} ({f'{each.target_s:g} s' if each.target_s else 'no target'})" for each in router.classes
    )
    lines = (f"mainspring {gateway.version} serves at {url}", f"  models   {models}", f"  nodes    {nodes}",
             f"  classes  {classes}")  # fmt: skip
    return "\n".join(lines)
