"""CPU a request takes in all gateways together: two processes before one router against one, in turn, the same bodies.

Requests go to two gateways in turn, and turns that came before come again at the gateway that had them: what a balancer
does that hashes the conversation (docs/cells.md). `--scattered` lets them come again anywhere; then each gateway
tokenises what the other has once more. `--cold` has none that came before. A process costs less a request the more it
has to do at a time, so `--alone` sets another rate for the single gateway: half of `--rate` gives each process the
same. The script ends with an error where gateways and router count differently.

    python bench/gateway_pair.py --rounds 3              # about 3 minutes
    python bench/gateway_pair.py --rounds 3 --alone 75
"""

import statistics
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from gateway import LOADERS, agree, measure, service
from mainspring.bench import environment
from mainspring.bench.http.traffic import Shape
from mainspring.bench.report import table

COST = (1e-3, 5e-8, 1e-7)


def sample(gateways: int, rate: float, seconds: float, shape: Shape, transport: str, pinned: bool) -> tuple[float, int]:
    """CPU seconds of all gateways and requests answered, of one run of fresh processes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) / "service"
        made = stack.enter_context(service(folder, transport, gateways, COST, ("probe",), pinned=pinned))
        made.pin(LOADERS)
        report = measure(made, rate, seconds, shape)
        agree(made)
    return sum(each.seconds for each in report.cpu if each.name.startswith("gateway")), report.answered


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Two samples of each a round.")
@click.option("--rate", type=float, default=150.0, show_default=True)
@click.option("--alone", type=float, default=None, help="Rate of the single gateway; that of the two by default.")
@click.option("--scattered", is_flag=True, help="Turns come again at either gateway.")
@click.option("--seconds", type=click.FloatRange(1.0), default=6.0, show_default=True)
@click.option("--tokens", type=click.IntRange(16), default=8000, show_default=True)
@click.option("--transport", type=click.Choice(["tcp", "quic"]), default="tcp", show_default=True)
@click.option("--cold", is_flag=True, help="No turn and no behavior came before.")
@click.option("--pin/--no-pin", "pinned", default=True, show_default=True, help="Not on a core that others hold.")
def main(
    rounds: int, rate: float, alone: float | None, scattered: bool, seconds: float, tokens: int, transport: str,
    cold: bool, pinned: bool,
) -> None:  # fmt: skip
    shape = Shape(tokens=tokens, share=0.0 if cold else 0.5, fresh_behaviors=cold, lanes=1 if scattered else 2)
    rates = {1: rate if alone is None else alone, 2: rate}
    samples: dict[int, list[tuple[float, int]]] = {1: [], 2: []}
    for number in range(rounds):
        for gateways in (1, 2, 2, 1) if number % 2 else (2, 1, 1, 2):
            samples[gateways].append(sample(gateways, rates[gateways], seconds, shape, transport, pinned))
    rows, means = [], {}
    for gateways, found in samples.items():
        each = [1e3 * cpu / max(1, answered) for cpu, answered in found]
        means[gateways] = 1e3 * sum(cpu for cpu, _ in found) / max(1, sum(answered for _, answered in found))
        figures = (means[gateways], min(each), statistics.median(each), max(each))
        rows.append((f"{gateways} at {rates[gateways]:g}/s", *(f"{value:.3f}" for value in figures)))
    known = "nothing" if cold else "half, scattered" if scattered else "half"
    click.echo(f"### {rate:g} requests/s, {tokens} tokens, {transport}, {known} known\n")
    click.echo(table(("gateways", "CPU ms a request, all", "min", "median", "max"), rows))
    where = environment.record()
    click.echo(f"\nTwo against one: {means[2] / means[1]:.3f}. Gateways and router agree in every run.\n")
    click.echo(f"{where.device}; "
               f"{where.commit}; load {where.load_average[0]:.2f}; `{where.command}`; {where.date}")  # fmt: skip


if __name__ == "__main__":
    main()
