"""`mainspring bench load`: open-loop load on a running service."""

from pathlib import Path

import click


@click.group(name="bench", short_help="Put load on a running service and say how it fared.")
def command() -> None:
    """Measure a running service.

    \b
    mainspring bench load http://127.0.0.1:8000 --rate 100 --seconds 30
    """


@command.command()
@click.argument("url", default="http://127.0.0.1:8000", metavar="[URL]")
@click.option("--rate", type=click.FloatRange(0.01, 1e5), default=50.0, show_default=True, help="Requests a second.")
@click.option("--seconds", type=click.FloatRange(0.1, 86_400), default=30.0, show_default=True)
@click.option(
    "--warmup", type=click.FloatRange(0, 3600), default=3.0, show_default=True, help="Seconds before it counts."
)
@click.option("--even", is_flag=True, help="Evenly spaced arrivals; else Poisson.")
@click.option(
    "--tokens", type=click.IntRange(16, 1_000_000), default=1000, show_default=True, help="Of a conversation."
)
@click.option("--behaviors", type=click.IntRange(1, 100_000), default=8, show_default=True, help="Of a request.")
@click.option(
    "--share", type=click.FloatRange(0, 0.95), default=0.5, show_default=True, help="Of turns that came before."
)
@click.option("--cold", is_flag=True, help="Nothing came before: no turn, no behavior.")
@click.option("--model", default="", metavar="NAME", help="Which model to ask.  [the service's default]")
@click.option("--class", "slo", default="", metavar="NAME", help="Class of the requests.  [the key's]")
@click.option("--deadline-ms", type=click.FloatRange(1, 86_400_000), help="Deadline of every request.")
@click.option("--hang-up", type=click.FloatRange(0, 1), default=0.0, help="Share of requests that leave early.")
@click.option("--hurry", type=click.FloatRange(0, 1), default=0.0, help="Share with a deadline of 20 to 200 ms.")
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Holds the API key.")
@click.option("--slices", type=click.FloatRange(0, 86_400), default=0.0, help="Figures for every so many seconds.")
@click.option("--pid", "pids", multiple=True, metavar="NAME=PID", help="Tell this process's CPU a request, too.")
@click.option("--core", type=click.IntRange(0, 4095), help="Run the generator on this core.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def load(
    url: str, rate: float, seconds: float, warmup: float, even: bool, tokens: int, behaviors: int, share: float,
    cold: bool, model: str, slo: str, deadline_ms: float | None, hang_up: float, hurry: float, key_file: Path | None,
    slices: float, pids: tuple[str, ...], core: int | None, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Ask for scores at times fixed beforehand, whatever the answers do: latencies count from when a request was due.

    Conversations never repeat whole; half of each came before, as in chats that go on. Refusals are not tried again.

    \b
    mainspring bench load http://127.0.0.1:8000 --rate 100 --seconds 30
    mainspring bench load --rate 20 --tokens 4000 --cold --pid serve=4711
    """
    import msgspec

    from mainspring.bench.http.processes import pin
    from mainspring.bench.http.run import Plan
    from mainspring.bench.http.run import load as run
    from mainspring.bench.http.sender import Target
    from mainspring.bench.http.traffic import Shape
    from mainspring.client.requests import Where

    where = Where.of(url)
    host = f"[{where.host}]" if ":" in where.host else where.host
    target = Target(
        url=f"{where.scheme}://{host}:{where.port}{where.prefix}/v1/scores", slo_class=slo, deadline_ms=deadline_ms,
        api_key=None if key_file is None else key_file.read_text(encoding="utf-8").strip(), hang_up=hang_up,
        hurry=hurry,
    )  # fmt: skip
    shape = Shape(tokens=tokens, behaviors=behaviors, share=0.0 if cold else share, fresh_behaviors=cold, model=model)
    plan = Plan(rate=rate, seconds=seconds, warmup_s=warmup, pattern="even" if even else "poisson", slice_s=slices,
                seed=seed)  # fmt: skip
    pin(core)
    report = run(target, shape, plan, dict(_pid(each) for each in pids))
    click.echo(msgspec.json.encode(report).decode() if as_json else report.markdown(), nl=as_json)
    if not report.answered:
        raise click.ClickException("nothing was answered")


def _pid(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals or not number.isdecimal():
        raise click.BadParameter(f"{text!r} is not NAME=PID", param_hint="--pid")
    return name, int(number)
