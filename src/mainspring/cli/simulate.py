"""`mainspring simulate`: run the real router in virtual time, compare it, plan a fleet with it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


@click.group(name="simulate", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the real router on virtual nodes: scenarios, traces, a whole day, comparisons, plans.

    \b
    mainspring simulate compare --quick            eight policies, seventeen scenarios
    mainspring simulate run --scenario day --plot day.png
    mainspring simulate plan fleet.toml            how many of which node, at what cost
    """


def _progress(label: str, *, quiet: bool) -> Callable[[float], None] | None:
    if quiet or not sys.stderr.isatty():
        return None

    def show(share: float) -> None:
        click.echo(f"\r{label} {share:6.1%}", nl=share >= 1.0, err=True)

    return show


@command.command()
@click.option("--scenario", default="bursts", show_default=True, help="A scenario of `compare`, or `day`.")
@click.option("--trace", "trace_path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Replay requests from JSONL on the scenario's fleet.")  # fmt: skip
@click.option("--policy", default="mainspring", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--scale", default=1.0, show_default=True, help="Stretches the horizon; of `day`, the share of 24 hours.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a PNG.")
@click.option("--chrome", type=click.Path(dir_okay=False, path_type=Path), help="Write a timeline for a trace viewer.")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Write every action, a line each.")
def run(
    scenario: str,
    trace_path: Path | None,
    policy: str,
    seed: int,
    scale: float,
    as_json: bool,
    plot: Path | None,
    chrome: Path | None,
    log: Path | None,
) -> None:
    """One run of one policy; equal seeds give equal bytes."""
    import msgspec

    from mainspring.simulate import daylong
    from mainspring.simulate.compare import POLICIES
    from mainspring.simulate.observe import Watch
    from mainspring.simulate.scenarios import SCENARIOS
    from mainspring.simulate.simulation import Simulation
    from mainspring.simulate.tracefile import chrome_trace, read_trace
    from mainspring.simulate.workload import Trace

    builders = {entry.name: entry.build for entry in SCENARIOS}
    builders["day"] = lambda day_seed, share: daylong.build(day_seed, 24.0 * share)
    if scenario not in builders:
        raise click.UsageError(f"no scenario {scenario!r}; there are {', '.join(builders)}")
    if policy not in POLICIES:
        raise click.UsageError(f"no policy {policy!r}; there are {', '.join(POLICIES)}")
    world = builders[scenario](seed, scale)
    load, horizon = world.load, world.horizon_s
    if trace_path is not None:
        entries = read_trace(trace_path)
        load, horizon = Trace(entries), max((when for when, _ in entries), default=0.0) + 1.0
    scheduler = POLICIES[policy](world.classes)
    watch = Watch(scheduler, horizon / 500.0)
    simulation = Simulation(scheduler, world.plans, load, world.classes, seed, watch)
    if log is not None:
        simulation.log = []
    summary = simulation.run(
        horizon, _progress(scenario, quiet=as_json), tail_s=world.tail_s if not trace_path else 0.0
    )
    if log is not None and simulation.log is not None:
        log.write_text("".join(f"{when:.9f} {kind} {text}\n" for when, kind, text in simulation.log))
    if chrome is not None:
        chrome.write_bytes(chrome_trace(simulation.nodes))
    if plot is not None:
        from mainspring.simulate.plots import plot_run

        plot_run(plot, list(simulation.outcomes.values()), simulation.nodes, watch.queue, horizon)
    report = {"scenario": scenario, "policy": policy, "seed": seed, **msgspec.to_builtins(summary)}
    click.echo(json.dumps(report, indent=1) if as_json else _card(report))


@command.command()
@click.option("--quick", is_flag=True, help="3 seeds and short horizons instead of 20 seeds and twice that.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--only", multiple=True, help="Scenario to run; may be given again.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a PNG.")
def compare(quick: bool, as_json: bool, only: tuple[str, ...], plot: Path | None) -> None:
    """All policies in all scenarios: goodput, p99 by class, refusals."""
    from mainspring.simulate.compare import compare as compare_all
    from mainspring.simulate.compare import table
    from mainspring.simulate.scenarios import SCENARIOS

    known = {entry.name for entry in SCENARIOS}
    if unknown := set(only) - known:
        raise click.UsageError(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    report = compare_all(quick=quick, only=only, progress=lambda name: click.echo(f"{name} ...", err=True))
    if plot is not None:
        from mainspring.simulate.plots import plot_comparison

        plot_comparison(plot, report)
    click.echo(json.dumps(report, indent=1) if as_json else table(report))


@command.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True)
def plan(path: Path, as_json: bool) -> None:
    """The cheapest fleet that keeps the targets of a small TOML file."""
    from mainspring.errors import MainspringError
    from mainspring.simulate.planning import read_plan, solve

    try:
        report = solve(read_plan(path), path.parent, None if as_json else lambda line: click.echo(line, err=True))
    except MainspringError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    best = report["best"]
    if best is None:
        raise click.ClickException("no fleet within the limits keeps the targets")
    fleet = ", ".join(f"{count} x {name}" for name, count in best["fleet"].items() if count)
    click.echo(f"{fleet} at {best['price_per_hour']:.2f} an hour; answered in time: {best['attained']}")


def _card(report: dict[str, Any]) -> str:
    lines = [f"{report['scenario']}, {report['policy']}, seed {report['seed']}"]
    lines.append(f"goodput {report['goodput']:,.0f} weighted tokens/s; answered {report['answered']}, "
                 f"refused {report['refused']}, missed {report['missed']}, failed {report['failed']}")  # fmt: skip
    lines.append(f"{'class':14}{'p50 s':>10}{'p99 s':>10}{'in time':>10}{'refused':>10}")
    for name, p50 in report["p50_by_class"].items():
        kept, refused = report["attained_by_class"][name], report["refused_by_class"][name]
        lines.append(f"{name:14}{p50:10.3f}{report['p99_by_class'][name]:10.3f}{kept:10.4f}{refused:10d}")
    return "\n".join(lines)
