"""One run of load from its parameters to its report, with the CPU that named processes used meanwhile."""

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from mainspring.bench.http.arrivals import Pattern, arrivals
from mainspring.bench.http.figures import Cpu, LoadReport, summarise
from mainspring.bench.http.processes import Use, use_of
from mainspring.bench.http.sender import Sender, Target
from mainspring.bench.http.traffic import Shape, Traffic


class Plan(Struct, frozen=True, kw_only=True):
    """`warmup_s` of load come first and are not counted, in figures or CPU."""

    rate: float
    seconds: float
    warmup_s: float = 3.0
    pattern: Pattern = "poisson"
    slice_s: float = 0.0
    seed: int = 0


def load(target: Target, shape: Shape, plan: Plan, processes: Mapping[str, int] | None = None) -> LoadReport:
    """`processes`: name -> process id. OSError where one is not there or ends meanwhile."""
    return asyncio.run(_load(target, shape, plan, dict(processes or {})))


async def _load(target: Target, shape: Shape, plan: Plan, processes: dict[str, int]) -> LoadReport:
    sender = Sender(target, seed=plan.seed)
    total_s = plan.warmup_s + plan.seconds
    traffic = Traffic(shape, plan.seed)
    times = arrivals(plan.rate, total_s, plan.pattern, plan.seed)
    before: dict[str, Use] = {}

    async def mark() -> None:
        await asyncio.sleep(plan.warmup_s)
        before.update({name: use_of(pid) for name, pid in processes.items()})

    marking = asyncio.create_task(mark())
    ended = await sender.run(traffic, times)
    await marking
    after = {name: use_of(pid) for name, pid in processes.items()}
    report = summarise(ended, plan.rate, total_s, slice_s=plan.slice_s, warmup_s=plan.warmup_s)
    measured_s = max(1e-9, ended.seconds - plan.warmup_s)
    cpu = tuple(
        Cpu(name, used := after[name].cpu_s - before[name].cpu_s, 1e3 * used / max(1, report.answered),
            used / measured_s, (before[name].rss_mib, after[name].rss_mib))
        for name in processes
    )  # fmt: skip
    return LoadReport(**{**{name: getattr(report, name) for name in report.__struct_fields__}, "cpu": cpu})
