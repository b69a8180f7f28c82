"""A soak: minutes of load at twice what the node can do, with deadlines that can't be met and clients that leave.

Whole processes as in `bench/gateway.py`, `mainspring serve` with one null node of known speed. Three in ten requests
carry a deadline of 0.5 to 9 s, about what they have to wait; one in ten hangs up within 0.2 s. Every 20 s the node is
stopped for 1.5 s, so that what was promised is late. Memory and counters are read every ten seconds. At the end, when
all is quiet, it has to hold, or the exit status is 1:

- memory: the last third's mean is within `--growth` MiB of the middle third's, in every process;
- throughput: every minute but the first answers at least 85 % of the median minute;
- gateway: begun = finished + open, and it answered what the generator counted, and those who hung up too late;
- router: submitted = answered + refused + expired + failed + cancelled + open, open 0, no bytes of payloads, no faults.

    python bench/soak.py --minutes 20
"""

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from gateway import LOADERS, Service, metrics, port_of, router_status, service
from mainspring.bench import environment
from mainspring.bench.http.figures import LoadReport
from mainspring.bench.http.processes import use_of
from mainspring.bench.http.run import Plan, load
from mainspring.bench.http.sender import Target
from mainspring.bench.http.traffic import Shape
from mainspring.bench.report import table
from mainspring.wire import messages as m

PASS_S, REQUEST_S = 0.005, 0.11
"""A node of about 9 requests a second: twice that is no work for the machine, and memory and counters are what is
looked at here."""
ROWS = 8 * 20
STOP_S = 1.5
EVERY_S = 10.0
WARMUP_S = 60.0
LEAST_SHARE = 0.85
QUIET_S = 90.0


class Watcher(threading.Thread):
    """Memory of every process, every ten seconds, and the highest number of requests that were open. Stops the node."""

    def __init__(self, made: Service) -> None:
        super().__init__(daemon=True)
        self._made, self._over = made, threading.Event()
        self.rss: dict[str, list[float]] = {name: [] for name in made.pids}
        self.most_open = 0.0
        self.missed = 0

    def run(self) -> None:
        looks = 0
        while not self._over.wait(EVERY_S):
            looks += 1
            if looks % 2:
                os.kill(self._made.pids["node"], signal.SIGSTOP)
                self._over.wait(STOP_S)
                os.kill(self._made.pids["node"], signal.SIGCONT)
            for name, pid in self._made.pids.items():
                self.rss[name].append(use_of(pid).rss_mib)
            try:
                self.most_open = max(self.most_open, metrics(self._made.urls[0])["mainspring_open_requests"])
            except OSError:
                self.missed += 1

    def end(self) -> None:
        self._over.set()
        self.join()


def quiet(made: Service) -> m.Status:
    """The router once nothing is open in it any more, or as it is after a while."""
    until = time.monotonic() + QUIET_S
    while True:
        told = asyncio.run(router_status(made.folder, port_of(made)))
        if not told.counters.get("open") or time.monotonic() > until:
            return told
        time.sleep(1.0)


def failures(
    report: LoadReport, watcher: Watcher, told: m.Status, counted: dict[str, float], growth_mib: float
) -> list[str]:
    """What does not hold, in words."""
    wrong: list[str] = []
    if watcher.missed:
        wrong.append(f"/metrics did not answer within 10 s, {watcher.missed} times")
    for name, values in watcher.rss.items():
        third = len(values) // 3
        if not third:
            wrong.append(f"{name} was looked at {len(values)} times only")
            continue
        middle, last = np.mean(values[third : 2 * third]), np.mean(values[2 * third :])
        if last - middle > growth_mib:
            wrong.append(f"{name} grew by {last - middle:.1f} MiB from the middle third to the last")
    rates = [each.answered_rate for each in report.slices]
    if min(rates) < LEAST_SHARE * float(np.median(rates)):
        wrong.append(f"a minute answered {min(rates):.1f}/s, the median one {np.median(rates):.1f}/s")
    router = told.counters
    ends = sum(router.get(name, 0.0) for name in ("answered", "refused", "expired", "failed", "cancelled", "open"))
    if router.get("submitted", 0.0) != ends:
        wrong.append(f"the router took {router.get('submitted', 0.0):.0f} requests and ended {ends:.0f}")
    wrong += [f"the router counts {router[name]:.0f} {name}" for name in ("open", "faults") if router.get(name)]
    if told.payload_bytes:
        wrong.append(f"the router holds {told.payload_bytes} bytes of requests that are over")
    if counted["mainspring_open_requests"] != 1.0:  # the one that asks
        wrong.append(f"the gateway has {counted['mainspring_open_requests']:.0f} requests open")
    return wrong


@click.command(help=__doc__)
@click.option("--minutes", type=click.FloatRange(0.1), default=20.0, show_default=True)
@click.option(
    "--tokens", type=click.IntRange(16), default=3000, show_default=True, help="Kept turns are full in 5 minutes."
)
@click.option("--times", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Of the node's capacity.")
@click.option("--growth", type=float, default=4.0, show_default=True, help="MiB that count as flat.")
@click.option("--pin/--no-pin", "pinned", default=True, show_default=True, help="Not on a core that others hold.")
@click.option("--transport", type=click.Choice(["tcp", "quic"]), default="tcp", show_default=True)
def main(minutes: float, tokens: int, times: float, growth: float, pinned: bool, transport: str) -> None:
    shape = Shape(tokens=tokens, behaviors=8)
    each = REQUEST_S / (tokens + ROWS)
    cost = (PASS_S, each, each)
    capacity = 1.0 / REQUEST_S  # passes are full: their own share of time is small
    seconds = 60.0 * minutes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) / "service"
        made = stack.enter_context(service(folder, transport, 0, cost, probes=("probe",), pinned=pinned))
        made.pin(LOADERS)
        before = metrics(made.urls[0])
        watcher = Watcher(made)
        watcher.start()
        target = Target(url=f"{made.urls[0]}/v1/scores", hang_up=0.1, hurry=0.3, hurry_ms=(500.0, 9000.0))
        warmup = min(WARMUP_S, seconds / 10.0)
        plan = Plan(rate=times * capacity, seconds=seconds, warmup_s=warmup, slice_s=max(5.0, min(60.0, seconds / 5.0)))
        report = load(target, shape, plan, made.pids)
        watcher.end()
        told, counted = quiet(made), metrics(made.urls[0])
        wrong = failures(report, watcher, told, counted, growth)
        scored = counted.get("scores 200", 0.0) - before.get("scores 200", 0.0)
        heard = report.answered + report.warmup_answered
        if not heard <= scored <= heard + report.reasons.get("0 hung_up", 0):
            wrong.append(f"the gateway answered {scored:.0f}, the generator heard {heard}")
    click.echo(f"### {minutes:g} minutes at {times:g} times {capacity:.0f} requests/s, {tokens} tokens, {transport}\n")
    click.echo(report.markdown())
    rss = [
        (name, *(f"{np.mean(part):.1f}" for part in np.array_split(values, 4)), f"{max(values):.1f}")
        for name, values in watcher.rss.items()
    ]
    click.echo(table(("RSS, MiB, by quarter", "1", "2", "3", "4", "most"), rss))
    click.echo(f"\nMost requests open at once: {watcher.most_open:.0f}. Router, at the end: ")
    click.echo(", ".join(f"{name} {value:.0f}" for name, value in sorted(told.counters.items())))
    where = environment.record()
    click.echo(
        f"\n{where.device}, {where.cores} cores; {where.kernel}; {where.commit}; `{where.command}`; {where.date}"
    )
    for line in wrong:
        click.secho(f"DOES NOT HOLD: {line}", fg="red", bold=True)
    if not wrong:
        click.echo("Memory flat, counters conserved, throughput flat.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
