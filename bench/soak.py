"""A soak: minutes of load at twice what the node can do, with deadlines that expire and clients that leave.

Whole processes as in `bench/gateway.py`, `mainspring serve` with one null node of known speed that is stopped for 1 s
of every 10. First the caches of fixed size are filled, the one of earlier turns to its 64 MiB: only then does flat
memory mean anything. Then, for `--minutes`, requests come at over twice the rate that the node answers on average. The
router takes in nothing that it can't answer by its forecast, which leaves out higher classes that have yet to come: so
nearly half of the requests are of class interactive and overtake the others, which have deadlines of 5 to 7 s, are
taken in and expire in the queue. A fifth mean to hang up after up to 2 s, wherever they are then. When all is quiet it
has to hold, or the exit status is 1:

- it was a soak: at least `--expired` of all requests expired in the queue after they were admitted (`expired`);
  `--left` hung up before their answer;
- memory, in every process: over the last half it grows by at most `--slope` MiB a minute, and the last third's mean is
  within `--growth` MiB of the first third's. Full caches settle over some thousand requests (`bench/text_memory.py`),
  so a leak would show in the last half: `--slope` is 75 bytes a request;
- throughput: every minute answers at least 85 % of the median minute, times the share of its wish for a core that the
  service got where that was below the median's (from the scheduler's own account);
- counters: the router ended what it took, and holds nothing; the gateway ended what it began; what generator and
  gateway count by status differs by no more than those who had hung up.

    python bench/soak.py --minutes 20            # flat? about 23 minutes with the filling
    python bench/soak.py --minutes 1.5 --quick   # the same in under 4: shorter filling, memory is not judged
"""

import asyncio
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from gateway import LOADERS, Service, metrics, port_of, router_status, service
from mainspring.bench import environment
from mainspring.bench.http.figures import LoadReport
from mainspring.bench.http.run import Plan, load
from mainspring.bench.http.sender import Target
from mainspring.bench.http.traffic import Shape
from mainspring.bench.report import table
from mainspring.gateway.assemble import SEGMENT_BYTES
from mainspring.wire import messages as m
from soak_watch import Stopper, Watcher, conserved, memory, throughput
from soak_watch import slope as late_slope

PASS_S, REQUEST_S = 0.002, 0.045
"""A node of 20 requests a second, stops counted: no work for the machine, and memory and counters are looked at."""
STOP_S, EVERY_S = 1.0, 10.0
ROWS = 8 * 20
FILL_RATE, FILL_S, FILL_MOST_S = 80.0, 15.0, 420.0
FULL = 0.98
HURRY_MS = (5000.0, 7000.0)
URGENT = 0.45
LEAVE, PATIENCE_S = 0.19, (0.0, 2.0)
QUIET_S = 90.0
WARMUP_S = 20.0


def fill(made: Service, shape: Shape, most_s: float) -> float:
    """Turns that never came before until the cache of them is full; the bytes that it holds then."""
    until, seed, kept = time.monotonic() + most_s, 1000, 0.0
    while time.monotonic() < until and kept < FULL * SEGMENT_BYTES:
        target = Target(url=f"{made.urls[0]}/v1/scores")
        load(target, shape, Plan(rate=FILL_RATE, seconds=FILL_S, warmup_s=0.0, seed=seed))
        seed, kept = seed + 1, metrics(made.urls[0])["mainspring_kept_turns_bytes"]
    return kept


def quiet(made: Service) -> m.Status:
    """The router once nothing is open in it any more, or as it is after a while."""
    until = time.monotonic() + QUIET_S
    while True:
        told = asyncio.run(router_status(made.folder, port_of(made), made.transport))
        if not told.counters.get("open") or time.monotonic() > until:
            return told
        time.sleep(1.0)


def heard_by_status(report: LoadReport) -> dict[int, int]:
    """Of all requests, those of the warm-up too."""
    heard: Counter[int] = Counter({200: report.answered + report.warmup_answered})
    for reason, count in report.reasons.items():
        heard[int(reason.split()[0])] += count
    return heard


@click.command(help=__doc__)
@click.option("--minutes", type=click.FloatRange(0.5), default=20.0, show_default=True)
@click.option("--tokens", type=click.IntRange(16), default=3000, show_default=True)
@click.option("--times", type=click.FloatRange(0.1), default=2.2, show_default=True, help="Of the node's capacity.")
@click.option("--growth", type=float, default=4.0, show_default=True, help="MiB, first third to last.")
@click.option("--slope", type=float, default=0.2, show_default=True, help="MiB a minute in the last half.")
@click.option("--expired", type=float, default=0.3, show_default=True, help="Share of the requests.")
@click.option("--left", type=float, default=0.1, show_default=True, help="Share of the requests.")
@click.option("--pin/--no-pin", "pinned", default=True, show_default=True, help="Not on a core that others hold.")
@click.option("--transport", type=click.Choice(["tcp", "quic"]), default="tcp", show_default=True)
@click.option("--quick", is_flag=True, help="Fill for a minute only, judge no memory.")
def main(
    minutes: float, tokens: int, times: float, growth: float, slope: float, expired: float, left: float, pinned: bool,
    transport: str, quick: bool,
) -> None:  # fmt: skip
    shape = Shape(tokens=tokens, behaviors=8)
    each = REQUEST_S / (tokens + ROWS)
    capacity = (1.0 - STOP_S / EVERY_S) / REQUEST_S
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) / "service"
        made = stack.enter_context(
            service(folder, transport, 0, (PASS_S, each, each), probes=("probe",), pinned=pinned)
        )
        made.pin(LOADERS)
        kept = fill(made, shape, 60.0 if quick else FILL_MOST_S)
        quiet(made)
        before, first = metrics(made.urls[0]), asyncio.run(router_status(folder, port_of(made), made.transport))
        watcher, stopper = Watcher(made), Stopper(made.pids["node"], STOP_S, EVERY_S)
        target = Target(
            url=f"{made.urls[0]}/v1/scores", hang_up=LEAVE, patience_s=PATIENCE_S, hurry=1.0, hurry_ms=HURRY_MS,
            slo_class="standard", second=URGENT, second_class="interactive",
        )  # fmt: skip
        plan = Plan(
            rate=times * capacity,
            seconds=60.0 * minutes,
            warmup_s=WARMUP_S,
            slice_s=min(60.0, 30.0 * minutes),
        )
        watcher.start()
        stopper.start()
        report = load(target, shape, plan, made.pids)
        stopper.end()
        watcher.end()
        told, counted = quiet(made), metrics(made.urls[0])
    heard, planned = heard_by_status(report), sum(heard_by_status(report).values())
    hung_up = report.reasons.get("0 hung_up", 0)
    ended = {name: told.counters.get(name, 0.0) - first.counters.get(name, 0.0) for name in told.counters}
    slow, got = throughput(report, watcher, ("serve", "node"))
    shares = {"expired in the queue": (ended["expired"] / planned, expired), "hung up": (hung_up / planned, left)}
    wrong = {
        "it was a soak": [f"{share:.1%} {name}, at least {least:.1%} are wanted"
                          for name, (share, least) in shares.items() if share < least],
        "counters conserved": conserved(heard, heard[0], counted, told, before),
        "throughput flat": slow,
        "alive throughout": [f"/metrics did not answer within 10 s, {watcher.missed} times"] if watcher.missed else [],
    }  # fmt: skip
    if not quick:
        full = kept >= FULL * SEGMENT_BYTES
        wrong["memory flat"] = memory(watcher, growth, slope)
        wrong["caches were full"] = [] if full else [f"the one of turns held {kept / 2**20:.1f} MiB only"]
    click.echo(f"### {minutes:g} minutes at {times:g} times {capacity:.0f} requests/s, {tokens} tokens, {transport}\n")
    click.echo(report.markdown())
    rss = [
        (name, *(f"{np.mean([look.rss_mib for look in part]):.1f}" for part in np.array_split(np.array(looks), 4)),
         f"{max(look.rss_mib for look in looks):.1f}", f"{late_slope(looks):.2f}")
        for name, looks in watcher.looks.items()
    ]  # fmt: skip
    click.echo(table(("RSS, MiB, by quarter", "1", "2", "3", "4", "most", "last half, a minute"), rss))
    click.echo(f"\nTurns kept before the load: {kept / 2**20:.1f} MiB of {SEGMENT_BYTES >> 20}. Of {planned:,} "
               "requests " + ", ".join(f"{share:.1%} {name}" for name, (share, _) in shares.items())
               + f". Share of the CPU it wished for, by slice: {', '.join(f'{share:.2f}' for share in got)}. "
               f"Most requests open at once: {watcher.most_open:.0f}. Router, since the filling:")  # fmt: skip
    click.echo(", ".join(f"{name} {value:.0f}" for name, value in sorted(ended.items()) if value))
    where = environment.record()
    click.echo(
        f"\n{where.device}, {where.cores} cores; {where.kernel}; {where.commit}; load {where.load_average[0]:.2f}; "
        f"`{where.command}`; {where.date}"
    )
    for name, faults in wrong.items():
        click.secho(f"{'FAIL' if faults else 'pass'}: {name}", fg="red" if faults else "green", bold=True)
        for line in faults:
            click.echo(f"      {line}")
    if quick:
        click.echo("not judged: memory flat (--quick)")
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
