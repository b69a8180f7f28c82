"""Marks of any scorer on labelled rows, through the same `Scorer` that serves.

Rows that share a span are scored together. Reported over all rows and by `behavior_type`, with 95 % intervals by
resampling tasks; temperature and bias can be fitted on one file and stored in a model folder.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mainspring.scorer import Scorer
from mainspring.text.probability import Calibration, probabilities
from mainspring.text.question import Behavior
from mainspring.train import metrics
from mainspring.train.calibrate import fit
from mainspring.train.curve import draw_calibration
from mainspring.train.labelled import Labelled, read_rows

Floats = npt.NDArray[np.float64]
ALL = "all"


@dataclass(frozen=True)
class Scored:
    """Raw label logits [rows, 3] with the rows they belong to."""

    rows: Sequence[Labelled]
    logits: Floats

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return np.array([row.label for row in self.rows], np.int64)

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = np.unique([getattr(row, name) for row in self.rows], return_inverse=True)[1]
        return found


def score_rows(scorer: Scorer, rows: Iterable[Labelled], *, say: Callable[[str], None] = lambda _: None) -> Scored:
    """Every row's logits; spans that stand in several rows are read once."""
    asked: dict[bytes, tuple[Any, list[tuple[int, str]]]] = {}
    kept = list(rows)
    for number, row in enumerate(kept):
        view = scorer.view(row.span, on_overflow="cut")
        asked.setdefault(view.tokens.tobytes(), (view, []))[1].append((number, row.definition))
    logits = np.zeros((len(kept), 3))
    for done, (view, questions) in enumerate(asked.values()):
        found, _ = scorer._run(view, [Behavior(str(n), text) for n, text in questions], "data")
        for (number, _), values in zip(questions, found, strict=True):
            logits[number] = values
        if done % 500 == 499:
            say(f"{done + 1:,} of {len(asked):,} spans")
    return Scored(kept, logits)


def fitted(scored: Scored) -> Calibration:
    return fit(scored.logits, scored.labels)


def report(scored: Scored, calibration: Calibration, *, rounds: int = 200) -> dict[str, Any]:
    """{group: marks with intervals}; `all` first."""
    p = probabilities(scored.logits, calibration)
    groups = np.array([row.group for row in scored.rows])
    tasks = np.array([row.task_id for row in scored.rows])
    labels, behaviors = scored.labels, scored.numbers("def_id")
    found = {}
    for name in (ALL, *sorted(set(groups) - {ALL})):
        mine = np.ones(len(p), bool) if name == ALL else groups == name
        found[name] = _group(p[mine], labels[mine], behaviors[mine], tasks[mine], rounds)
    return found


def _group(
    p: Floats, labels: npt.NDArray[np.int64], behaviors: npt.NDArray[np.int64], tasks: Any, rounds: int
) -> dict[str, Any]:
    marks: dict[str, Any] = asdict(metrics.marks(p, labels, behaviors))
    measures: dict[str, Callable[[npt.NDArray[np.int64]], float]] = {
        "f1": lambda rows: metrics.f1(p[rows], labels[rows]),
        "auc": lambda rows: metrics.macro_auc(p[rows], labels[rows], behaviors[rows])[0],
        "ece": lambda rows: metrics.ece(p[rows, 0], (labels[rows] == 0).astype(np.float64)),
    }
    marks["intervals"] = {name: metrics.bootstrap(f, tasks, rounds=rounds) for name, f in measures.items()}
    return marks


def plot(scored: Scored, calibration: Calibration, to: Path) -> bool:
    """False where matplotlib is missing."""
    p, truth = probabilities(scored.logits, calibration)[:, 0], (scored.labels == 0).astype(np.float64)
    groups = np.array([row.group for row in scored.rows])
    parts = {ALL: (p, truth)} | {str(n): (p[groups == n], truth[groups == n]) for n in sorted(set(groups) - {ALL})}
    return draw_calibration(parts, to)


def table(found: dict[str, Any]) -> str:
    """For the terminal and the card, as Markdown."""
    lines = [
        "| rows of | n | F1 present | AUC (behaviors) | ECE | Brier | untold recall / precision |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, m in found.items():
        low, high = m["intervals"]["auc"]
        auc = f"{m['auc']:.3f} [{low:.3f}, {high:.3f}] ({m['behaviors']})" if m["behaviors"] else "-"
        f_low, f_high = m["intervals"]["f1"]
        lines.append(
            f"| {name.replace('_', ' ')} | {m['rows']:,} | {m['f1']:.3f} [{f_low:.3f}, {f_high:.3f}] | {auc} "
            f"| {m['ece']:.3f} | {m['brier']:.3f} | {m['untold_recall']:.2f} / {m['untold_precision']:.2f} |"
        )
    return "\n".join(lines)


def evaluate_file(scorer: Scorer, paths: Sequence[Path], *, say: Callable[[str], None]) -> Scored:
    return score_rows(scorer, read_rows(paths), say=say)


def write_report(found: dict[str, Any], to: Path) -> None:
    to.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
