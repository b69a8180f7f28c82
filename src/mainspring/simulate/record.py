"""What happened to every request, and the figures made of it.

Goodput is priority-weighted tokens answered within target; a class without a target counts what is
answered before the run's horizon. For a generation the answer in question is the first token.
"""

from math import ceil

from msgspec import Struct

from mainspring.core.nouns import Request, SloClass


class Outcome(Struct):
    """`state`: open, answered, refused (at arrival), missed (refused later), failed."""

    request: Request
    slo: SloClass
    arrival_s: float
    state: str = "open"
    done_s: float = 0.0
    retry_after_s: float | None = None
    code: str = ""
    admitted: bool = False
    first_s: float | None = None

    @property
    def latency_s(self) -> float:
        end = self.done_s if self.first_s is None else self.first_s
        return end - self.arrival_s

    @property
    def in_time(self) -> bool:
        if self.state != "answered":
            return False
        bound = min(
            self.slo.target_s if self.slo.target_s is not None else float("inf"),
            self.request.deadline_s if self.request.deadline_s is not None else float("inf"),
        )
        return self.latency_s <= bound + 1e-9


class Summary(Struct, kw_only=True):
    goodput: float
    throughput: float
    answered: int
    in_time: int
    refused: int
    missed: int
    failed: int
    open: int
    p50_by_class: dict[str, float]
    p99_by_class: dict[str, float]
    attained_by_class: dict[str, float]
    goodput_by_class: dict[str, float]
    refused_by_class: dict[str, int]


def quantile(values: list[float], q: float) -> float:
    """Nearest rank, of a sorted list; 0 where there is none."""
    return values[max(0, ceil(q * len(values)) - 1)] if values else 0.0


def summarise(outcomes: list[Outcome], duration_s: float) -> Summary:
    by_class: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_class.setdefault(outcome.slo.name, []).append(outcome)
    p50: dict[str, float] = {}
    p99: dict[str, float] = {}
    attained: dict[str, float] = {}
    goodput: dict[str, float] = {}
    refused: dict[str, int] = {}
    for name, members in sorted(by_class.items()):
        latencies = sorted(o.latency_s for o in members if o.state == "answered")
        p50[name], p99[name] = quantile(latencies, 0.5), quantile(latencies, 0.99)
        admitted = [o for o in members if o.admitted and o.state != "open"]
        attained[name] = sum(o.in_time for o in admitted) / max(1, len(admitted))
        counted = [o for o in members if o.in_time and (o.done_s <= duration_s or o.slo.target_s is not None)]
        goodput[name] = sum(o.slo.weight * o.request.tokens for o in counted) / duration_s
        refused[name] = sum(o.state == "refused" for o in members)
    count = {state: sum(o.state == state for o in outcomes) for state in ("refused", "missed", "failed", "open")}
    return Summary(
        goodput=sum(goodput.values()),
        throughput=sum(o.request.tokens for o in outcomes if o.state == "answered") / duration_s,
        answered=sum(o.state == "answered" for o in outcomes),
        in_time=sum(o.in_time for o in outcomes),
        p50_by_class=p50,
        p99_by_class=p99,
        attained_by_class=attained,
        goodput_by_class=goodput,
        refused_by_class=refused,
        **count,
    )
