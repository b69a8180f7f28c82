"""What a measurement leaves behind: a Markdown table for people and JSON with every raw sample for programs.

The statistics in a report are derived from its samples once, when it is made; JSON carries both, so that a reader can
check one against the other. `schema` rises when a field changes its meaning or goes. A run that was not quiet says so
above its table.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mainspring.bench.environment import Environment
from mainspring.bench.load import Gate
from mainspring.bench.stats import ArmStats, Interval, RatioStats, Sample

SCHEMA = 1


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to measure. A round is one palindrome over the arms, so two samples of each."""

    rounds: int = 10
    warmups: int = 2
    seed: int = 0  # of the bootstrap
    wait: bool = True  # False: neither lock nor gate waits; a held lock still refuses, noise is still reported
    busy_share: float = 0.1  # of all cores, used by other processes: from here on a machine is not quiet
    quiet_limit_s: float = 120.0
    lock_limit_s: float = 900.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.warmups < 0:
            raise ValueError("rounds must be at least 1, warmups at least 0")
        if not 0 < self.busy_share <= 1:
            raise ValueError("busy_share must lie in (0, 1]")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    title: str
    unit: str
    quiet: bool  # at the gate and during the samples
    gate: Gate
    others_cores: float | None  # during the samples; None where not measured
    options: Options
    environment: Environment
    arms: tuple[ArmStats, ...]
    ratios: tuple[RatioStats, ...]
    samples: tuple[Sample, ...]

    def markdown(self) -> str:
        parts = [f"### {self.title}", *([] if self.quiet else [f"**{self.warning()}**"])]
        parts += [self._rates(), self._ratios(), self._footer()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def warning(self) -> str:
        """One line on why the numbers are suspect; empty when they are not."""
        if self.quiet:
            return ""
        during = "an unknown number of" if self.others_cores is None else f"{self.others_cores:.2f}"
        return (
            f"NOT QUIET: other processes used {self.gate.others_cores:.2f} cores before and {during} cores during the "
            f"samples (limit {self.gate.limit_cores:.2f}). Do not quote these numbers."
        )

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Raises ValueError for another schema, msgspec.ValidationError (a ValueError) for other shapes."""
        raw: Any = msgspec.json.decode(text)
        found = raw.get("schema") if isinstance(raw, dict) else None
        if found != SCHEMA:
            raise ValueError(f"report schema {found!r}, this version reads {SCHEMA}")
        return msgspec.convert(raw, cls)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write `<title>.md` and `<title>.json` into `folder`, made if missing; earlier ones are replaced."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "report"
        markdown, json = folder / f"{stem}.md", folder / f"{stem}.json"
        markdown.write_text(self.markdown(), encoding="utf-8")
        json.write_text(self.to_json(), encoding="utf-8")
        return markdown, json

    def _rates(self) -> str:
        head = ("arm", f"{self.unit}/s", "95 %", "min", "median", "max", "samples", "seconds", "others, cores")
        rows = [
            (
                arm.arm,
                f"**{figure(arm.rate)}**",
                _span(arm.interval),
                figure(arm.minimum),
                figure(arm.median),
                figure(arm.maximum),
                str(arm.samples),
                figure(arm.seconds),
                "?" if arm.others_cores is None else f"{arm.others_cores:.2f}",
            )
            for arm in self.arms
        ]
        return table(head, rows)

    def _ratios(self) -> str:
        rows = [(f"{r.arm} / {r.baseline}", f"**{figure(r.ratio)}**", _span(r.interval)) for r in self.ratios]
        return table(("ratio", "of rates", "95 %"), rows) if rows else ""

    def _footer(self) -> str:
        e, o = self.environment, self.options
        commit = "no commit" if e.commit is None else e.commit[:12] + (" + uncommitted changes" if e.dirty else "")
        versions = [f"{name} {v}" for name, v in (("torch", e.torch), ("numpy", e.numpy)) if v is not None]
        threads = "" if e.threads is None else f", {e.threads} torch threads by default"
        load = " ".join(f"{value:.2f}" for value in e.load_average)
        lines = (
            f"Units over seconds, summed before dividing; {o.rounds} palindrome rounds, {o.warmups} warm-ups an arm; "
            f"bootstrap over rounds, seed {o.seed}.",
            f"{e.device}, {e.usable_cores} of {e.cores} cores{threads}, {e.kernel}; load average {load}.",
            f"mainspring {e.package} ({commit}), {', '.join([e.python, *versions])}; {e.date}.",
            f"`{e.command}`",
        )
        return "\n".join(f"- {line}" for line in lines)


def figure(value: float) -> str:
    """Four significant digits, thousands separated, never an exponent for everyday sizes."""
    if value == 0 or 1e-4 <= abs(value) < 1e9:
        digits = max(0, 4 - len(str(int(abs(value))))) if abs(value) >= 1 else 4
        return f"{value:,.{digits}f}"
    return f"{value:.3e}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table: first column left, the others right; bars in cells escaped."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *(tuple(c.replace("|", r"\|") for c in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _span(interval: Interval | None) -> str:
    return "–" if interval is None else f"{figure(interval.low)} to {figure(interval.high)}"  # noqa: RUF001
