"""For `bench/soak.py`: who looks at the processes while the load runs, who stops the node, and what has to hold."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from gateway import Service, metrics
from mainspring.bench.http.figures import LoadReport
from mainspring.bench.http.processes import use_of
from mainspring.wire import messages as m

LOOK_S = 5.0
LEAST_SHARE = 0.85
LEAST_LOOKS = 6
ENDS = ("answered", "refused", "expired", "failed", "cancelled", "open")


class Look(Struct, frozen=True):
    """One process at `at_s`: MiB resident, CPU seconds it got and those it waited for a core, both since it began."""

    at_s: float
    rss_mib: float
    cpu_s: float
    waited_s: float


class Watcher(threading.Thread):
    """Every few seconds a look at every process, and the most requests that were open."""

    def __init__(self, made: Service) -> None:
        super().__init__(daemon=True)
        self._made, self._over = made, threading.Event()
        self.began_s = time.monotonic()
        self.looks: dict[str, list[Look]] = {name: [] for name in made.pids}
        self.most_open = 0.0
        self.missed = 0

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            at_s = time.monotonic() - self.began_s
            for name, pid in self._made.pids.items():
                use = use_of(pid)
                self.looks[name].append(Look(at_s, use.rss_mib, use.cpu_s, use.waited_s))
            try:
                self.most_open = max(self.most_open, metrics(self._made.urls[0])["mainspring_open_requests"])
            except OSError:
                self.missed += 1

    def end(self) -> None:
        self._over.set()
        self.join()

    def got(self, name: str, from_s: float, to_s: float) -> float:
        """Share of the time it could run in which it did; 1 where there were no two looks."""
        inside = [look for look in self.looks[name] if from_s <= look.at_s < to_s]
        if len(inside) < 2:
            return 1.0
        ran_s, waited_s = inside[-1].cpu_s - inside[0].cpu_s, inside[-1].waited_s - inside[0].waited_s
        return ran_s / max(1e-9, ran_s + waited_s)


class Stopper(threading.Thread):
    """Stops the node for `stop_s` of every `every_s`: what was promised is late."""

    def __init__(self, pid: int, stop_s: float, every_s: float) -> None:
        super().__init__(daemon=True)
        self._pid, self._stop_s, self._run_s = pid, stop_s, every_s - stop_s
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.wait(self._run_s):
                os.kill(self._pid, signal.SIGSTOP)
                self._over.wait(self._stop_s)
                os.kill(self._pid, signal.SIGCONT)
        finally:
            os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        self._over.set()
        self.join()


def slope(looks: Sequence[Look]) -> float:
    """MiB a minute, by least squares over the last half of the time."""
    at_s = np.array([look.at_s for look in looks])
    late = at_s >= (at_s[0] + at_s[-1]) / 2.0
    rss_mib = np.array([look.rss_mib for look in looks])
    return 60.0 * float(np.polyfit(at_s[late], rss_mib[late], 1)[0])


def memory(watcher: Watcher, growth_mib: float, slope_mib: float) -> list[str]:
    """The caches were full before, and settle over some thousand requests more: so growth from the first third to the
    last has a bound, and whether it has ended is told by the last half."""
    wrong = []
    for name, looks in watcher.looks.items():
        if len(looks) < LEAST_LOOKS:
            wrong.append(f"{name} was looked at {len(looks)} times only")
            continue
        parts = np.array_split([look.rss_mib for look in looks], 3)
        if (more := float(np.mean(parts[-1]) - np.mean(parts[0]))) > growth_mib:
            wrong.append(f"{name} grew by {more:.1f} MiB from the first third to the last, at most {growth_mib:g}")
        if (more := slope(looks)) > slope_mib:
            wrong.append(f"{name} grew by {more:.2f} MiB a minute in the last half, at most {slope_mib:g}")
    return wrong


def throughput(report: LoadReport, watcher: Watcher, names: tuple[str, ...]) -> tuple[list[str], list[float]]:
    """What is wrong, and the share of the CPU each slice got: the least of those processes'. A slice has to answer
    `LEAST_SHARE` of the median slice, less what it lacked of the median's share of the CPU."""
    ends = [*[each.from_s for each in report.slices][1:], report.seconds]
    got = [
        min(watcher.got(name, each.from_s, end) for name in names)
        for each, end in zip(report.slices, ends, strict=True)
    ]
    rate, usual = float(np.median([each.answered_rate for each in report.slices])), float(np.median(got))
    wrong = [
        f"from {each.from_s:.0f} s {each.answered_rate:.1f}/s were answered, {rate:.1f} in the median slice, with "
        f"{share:.2f} of the CPU against {usual:.2f}"
        for each, share in zip(report.slices, got, strict=True)
        if each.answered_rate < LEAST_SHARE * rate * min(1.0, share / usual)
    ]
    return wrong, got


def conserved(
    heard: dict[int, int], left: int, counted: dict[str, float], told: m.Status, before: dict[str, float]
) -> list[str]:
    """Client, gateway and router against each other. `heard` by status and `left` are the client's: who hangs up may
    have been counted by the gateway under any status, or not at all."""
    wrong: list[str] = []
    router, since = told.counters, _since(counted, before)
    ended = sum(router.get(name, 0.0) for name in ENDS)
    if router.get("submitted", 0.0) != ended:
        wrong.append(f"the router took {router.get('submitted', 0.0):.0f} requests and ended {ended:.0f}")
    wrong += [f"the router counts {router[name]:.0f} {name}" for name in ("open", "faults") if router.get(name)]
    if told.payload_bytes:
        wrong.append(f"the router holds {told.payload_bytes} bytes of requests that are over")
    if counted["mainspring_open_requests"] != 1.0:  # the one that asks
        wrong.append(f"the gateway has {counted['mainspring_open_requests']:.0f} requests open")
    surplus = 0.0
    statuses = {int(name[7:]) for name in counted if name.startswith("scores ")} | set(heard)
    for status in sorted(statuses - {499, 0}):
        more = since(f"scores {status}") - heard.get(status, 0)
        surplus += more
        if more < 0:
            wrong.append(f"the generator heard {status} {heard[status]} times, the gateway said it {-more:.0f} fewer")
    surplus += since("scores 499")
    if surplus > left:
        wrong.append(f"the gateway ended {surplus:.0f} requests that nobody heard of, {left} clients left")
    return wrong


def _since(counted: dict[str, float], before: dict[str, float]) -> Callable[[str], float]:
    return lambda name: counted.get(name, 0.0) - before.get(name, 0.0)
