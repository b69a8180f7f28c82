"""What a run of load amounts to: rates, latencies by quantile, endings by status and reason, slices in time.

A rate is answers over the whole time from the first planned request to the last planned one. Latencies count from the
planned time. `overhead` is the latency less the time of the pass itself (`device` in `server-timing`): lateness of the
generator, HTTP, text, links, and every wait. `server` leaves out the router's `queue` as well, which is the wait for a
node, but for a part of the router's own wait for its loop too: where passes are short, the former says more.
"""

from collections import Counter

import msgspec
import numpy as np
from msgspec import Struct

from mainspring.bench.report import figure, table

MOST = 5_000_000
"""Requests of one run."""
LATE_S = 0.005
REASONS = 256


class Ending(Struct, frozen=True):
    """Of one request: planned at `at_s`, sent `late_s` after, over `latency_s` after the plan. `status` 0: none."""

    at_s: float
    late_s: float
    latency_s: float
    status: int
    reason: str = ""
    timing: str = ""
    predicted: str = ""


class Endings:
    """Columns, appended as answers come."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.late_s: list[float] = []
        self.latency_s: list[float] = []
        self.status: list[int] = []
        self.device_s: list[float] = []
        self.queue_s: list[float] = []
        self.predicted_s: list[float] = []
        self.reasons: Counter[str] = Counter()
        self.sent_s = self.seconds = 0.0

    def __len__(self) -> int:
        return len(self.status)

    def add(self, ending: Ending) -> None:
        if len(self) >= MOST:
            raise ValueError(f"a run of load holds {MOST:,} requests at most")
        self.at_s.append(ending.at_s)
        self.late_s.append(ending.late_s)
        self.latency_s.append(ending.latency_s)
        self.status.append(ending.status)
        parts = durations_ms(ending.timing)
        self.device_s.append(parts.get("device", 0.0) / 1e3 if parts else float("nan"))
        self.queue_s.append(parts.get("queue", 0.0) / 1e3 if parts else float("nan"))
        self.predicted_s.append(float(ending.predicted) / 1e3 if ending.predicted else float("nan"))
        if ending.reason or ending.status != 200:
            self.reasons[f"{ending.status} {ending.reason}".strip()] += 1

    def reason_of(self, body: bytes) -> str:
        """Of an error in either surface, bounded: a service that makes up reasons must not fill this."""
        try:
            told = msgspec.json.decode(body)
            inner = told.get("error")
            reason = inner.get("code") if isinstance(inner, dict) else told.get("reason")
        except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
            return "unreadable"
        if not isinstance(reason, str):
            return "none"
        return reason[:64] if len(self.reasons) < REASONS else "other"


class Quantiles(Struct, frozen=True):
    """Milliseconds."""

    count: int
    min: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: np.ndarray) -> "Quantiles | None":
        found = seconds[np.isfinite(seconds)] * 1e3
        if not len(found):
            return None
        low, p50, p90, p99, high = np.quantile(found, [0.0, 0.5, 0.9, 0.99, 1.0]).tolist()
        return cls(len(found), low, p50, p90, p99, high)


class Slice(Struct, frozen=True):
    """A stretch of the run: `answered` a second, p50 and p99 in ms."""

    from_s: float
    planned: int
    answered_rate: float
    p50_ms: float | None
    p99_ms: float | None


class Cpu(Struct, frozen=True):
    """Of one process: seconds of CPU while the load lasted, a request answered, and as a share of one core."""

    name: str
    seconds: float
    ms_a_request: float
    cores: float
    rss_mib: tuple[float, float]


class LoadReport(Struct, frozen=True, kw_only=True):
    rate: float
    seconds: float
    planned: int
    answered: int
    answered_rate: float
    reasons: dict[str, int]
    latency: Quantiles | None
    overhead: Quantiles | None
    server: Quantiles | None
    refused: Quantiles | None
    late: Quantiles | None
    prediction_error: Quantiles | None
    slices: tuple[Slice, ...]
    cpu: tuple[Cpu, ...] = ()
    warmup_answered: int = 0

    @property
    def kept_up(self) -> bool:
        """Whether the generator sent on time; else the figures tell of it and not of the service."""
        return self.late is None or self.late.p99 <= 1e3 * LATE_S

    def markdown(self) -> str:
        head = f"{self.planned:,} requests at {self.rate:g}/s for {self.seconds:.1f} s: {self.answered:,} answered, "
        head += f"**{self.answered_rate:.1f}/s**"
        rows = [
            (name, *(figure(getattr(each, key)) for key in ("count", "min", "p50", "p90", "p99", "max")))
            for name, each in (
                ("latency", self.latency), ("overhead: less the pass", self.overhead),
                ("less queue and device", self.server), ("of refusals", self.refused),
                ("sent late", self.late), ("latency less prediction", self.prediction_error),
            )
            if each is not None
        ]  # fmt: skip
        parts = [head, table(("ms", "count", "min", "p50", "p90", "p99", "max"), rows)]
        if not self.kept_up:
            parts.append("**The generator fell behind its plan: these figures are its own as much as the service's.**")
        if self.reasons:
            ends = [(name, f"{count:,}") for name, count in sorted(self.reasons.items(), key=lambda item: -item[1])]
            parts.append(table(("not answered", "requests"), ends))
        if self.cpu:
            cells = [
                (
                    each.name,
                    f"{each.ms_a_request:.3f}",
                    f"{each.cores:.3f}",
                    f"{each.rss_mib[0]:.0f} to {each.rss_mib[1]:.0f}",
                )
                for each in self.cpu
            ]
            parts.append(table(("process", "CPU ms a request", "cores", "RSS MiB"), cells))
        if len(self.slices) > 1:
            told = [
                (f"{s.from_s:.0f}", f"{s.planned:,}", f"{s.answered_rate:.1f}", _ms(s.p50_ms), _ms(s.p99_ms))
                for s in self.slices
            ]
            parts.append(table(("from s", "planned", "answered/s", "p50 ms", "p99 ms"), told))
        return "\n\n".join(parts) + "\n"


def summarise(
    ended: Endings, rate: float, seconds: float, *, slice_s: float = 0.0, warmup_s: float = 0.0
) -> LoadReport:
    """`seconds` is the planned length; what was planned before `warmup_s` counts for nothing but the reasons."""
    at, status = np.array(ended.at_s), np.array(ended.status, np.int64)
    measured = at >= warmup_s
    good = measured & (status >= 200) & (status < 300)
    latency, late = np.array(ended.latency_s), np.array(ended.late_s)
    device, queue, predicted = (np.array(each) for each in (ended.device_s, ended.queue_s, ended.predicted_s))
    span_s = max(1e-9, seconds - warmup_s)
    step = slice_s or span_s
    slices = []
    for from_s in np.arange(warmup_s, seconds, step).tolist():
        inside = (at >= from_s) & (at < from_s + step)
        kept = Quantiles.of(latency[inside & good])
        width = min(step, seconds - from_s)
        slices.append(Slice(
            from_s, int(inside.sum()), float((inside & good).sum()) / width,
            kept.p50 if kept else None, kept.p99 if kept else None,
        ))  # fmt: skip
    return LoadReport(
        rate=rate, seconds=seconds, planned=int(measured.sum()), answered=int(good.sum()),
        answered_rate=float(good.sum()) / span_s, reasons=dict(ended.reasons),
        latency=Quantiles.of(latency[good]), overhead=Quantiles.of((latency - device)[good]),
        server=Quantiles.of((latency - device - queue)[good]),
        refused=Quantiles.of(latency[measured & (status >= 400)]), late=Quantiles.of(late[measured & (status != 0)]),
        prediction_error=Quantiles.of((latency - predicted)[good]), slices=tuple(slices),
        warmup_answered=int((~measured & (status >= 200) & (status < 300)).sum()),
    )  # fmt: skip


def durations_ms(header: str) -> dict[str, float]:
    """Of `server-timing`: name -> `dur`. What is not a number is left out."""
    found: dict[str, float] = {}
    for entry in header[:2048].split(","):
        name, *parameters = entry.strip().split(";")
        for parameter in parameters:
            key, _, value = parameter.strip().partition("=")
            if key == "dur":
                try:
                    found[name] = float(value.strip('"'))
                except ValueError:
                    continue
    return found


def _ms(value: float | None) -> str:
    return "-" if value is None else figure(value)
