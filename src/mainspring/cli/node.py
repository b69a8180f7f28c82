"""`mainspring node`: serve one model on one device to a router."""

from pathlib import Path

import click


@click.command(name="node", short_help="Serve one model on one device to a router.")
@click.option("--join", metavar="HOST:PORT", help="Where the router listens. The node opens no port itself.")
@click.option("--model", metavar="DIR_OR_HUB_ID", help="A model folder, or owner/name on a hub.")
@click.option("--tls", metavar="DIR", help="Folder with cert.pem, key.pem and ca.pem, as `mainspring pki issue` makes.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda", "null"]), help="Where the model runs; null computes nothing. [cpu]"
)
@click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads. [measured]")
@click.option("--transport", type=click.Choice(["auto", "quic", "tcp"]), help="auto: QUIC, TCP where UDP is blocked.")
@click.option("--alias", metavar="NAME", help="The model's name for people. [the folder's]")
@click.option(
    "--cache-mib", type=click.IntRange(0), metavar="N", help="Memory for kept views. [256; CUDA: 15 % of what is free]"
)
@click.option(
    "--throttle", type=click.FloatRange(1, 1000), metavar="N", help="Make the device N times slower, for demos."
)
@click.option("--probe", type=click.FloatRange(0, 600), metavar="S", help="Seconds of measuring before it joins. [5]")
@click.option("--slots", type=click.IntRange(0, 1024), metavar="N", help="Streams at once; 0: no generation. [4]")
@click.option(
    "--stream-tokens", type=click.IntRange(32), metavar="N", help="Prompt and reply of a stream. [the model's context]"
)
@click.option(
    "--drafter",
    type=click.Choice(["mtp", "ngram", "none"]),
    help="For requests that name none. [the model's, else ngram]",
)
@click.option("--deterministic", is_flag=True, default=None, help="Greedy text the same in any company, at its price.")
@click.option(
    "--prefix-mib", type=click.IntRange(0), metavar="N",
    help="Memory for checkpoints of prompts. [256; CUDA: 15 % of what is free]",
)  # fmt: skip
@click.option("--prefix-disk", metavar="DIR", help="Keep on disk what memory has no room for. [off]")
@click.option("--prefix-disk-gb", type=click.FloatRange(0, 1e6, min_open=True), metavar="N", help="At most. [8]")
@click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="TOML with a [node] section.")
def node(
    path: Path | None,
    join: str | None,
    model: str | None,
    tls: str | None,
    device: str | None,
    threads: int | None,
    transport: str | None,
    alias: str | None,
    cache_mib: int | None,
    throttle: float | None,
    probe: float | None,
    slots: int | None,
    stream_tokens: int | None,
    drafter: str | None,
    deterministic: bool | None,
    prefix_mib: int | None,
    prefix_disk: str | None,
    prefix_disk_gb: float | None,
) -> None:
    """Serve one model on one device to a router, for as long as it is wanted.

    The node measures itself first (5 s the first time), then dials the router, and dials again whenever the link is
    lost. Flags win over the file; what was resolved is printed. SIGTERM: no new work, finish what is held, leave.

    \b
    mainspring node --join router.example.org:7300 --model DIR --tls pki/node-ant
    mainspring node --config node.toml

    \b
    [node]
    join = "router.example.org:7300"
    model = "models/small"
    tls = "pki/node-ant"
    cache_mib = 4096
    """
    from mainspring.node.config import resolve
    from mainspring.node.launch import run

    config = resolve(
        path,
        {
            "join": join, "model": model, "tls": tls, "device": device, "threads": threads, "transport": transport,
            "alias": alias, "cache_mib": cache_mib, "throttle": throttle, "probe_s": probe, "slots": slots,
            "stream_tokens": stream_tokens, "drafter": drafter, "deterministic": deterministic,
            "prefix_mib": prefix_mib, "prefix_disk": prefix_disk, "prefix_disk_gb": prefix_disk_gb,
        },
    )  # fmt: skip
    for line in config.lines():
        click.echo(line)
    run(config)
