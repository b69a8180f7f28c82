"""The loss curve and the calibration plot as pictures; without matplotlib (extra `plots`) nothing is drawn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mainspring.train.metrics import bins


def _pyplot() -> Any | None:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_curve(log: Path, to: Path, right: str = "AUC on calibration texts") -> None:
    """Training loss and held-out marks over steps, from `log.jsonl`; `right` says what the marks are."""
    pyplot = _pyplot()
    if pyplot is None or not log.is_file():
        return
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    losses = [(e["step"], e["loss"]) for e in entries if "loss" in e]
    looks = [(e["step"], e["held_out"]) for e in entries if "held_out" in e]
    figure, left = pyplot.subplots(figsize=(8, 4.5))
    left.plot(*zip(*losses, strict=True) if losses else ([], []), color="black", linewidth=0.8)
    left.set(xlabel="step", ylabel="training loss")
    marks = left.twinx()
    for name in sorted({name for _, found in looks for name in found}):
        points = [(step, found[name]) for step, found in looks if name in found]
        marks.plot(*zip(*points, strict=True), marker=".", linewidth=1, label=name.replace("_", " "))
    marks.set(ylabel=right, **({"ylim": (0.5, 1.0)} if right.startswith("AUC") else {}))
    if looks and any(found for _, found in looks):
        marks.legend(loc="lower right", fontsize=7)
    _save(pyplot, figure, to)


def draw_calibration(groups: dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]], to: Path) -> bool:
    """{name: (p_present, truth)}: share of present rows against the probability said, bins of equal mass."""
    pyplot = _pyplot()
    if pyplot is None:
        return False
    figure, axes = pyplot.subplots(figsize=(5, 5))
    axes.plot([0, 1], [0, 1], color="gray", linewidth=0.8)
    for name, (p, truth) in groups.items():
        said, came, _ = bins(p, truth)
        axes.plot(said, came, marker=".", linewidth=1, label=name.replace("_", " "))
    axes.set(xlabel="p_present", ylabel="share of rows labelled present", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=7)
    _save(pyplot, figure, to)
    return True


def _save(pyplot: Any, figure: Any, to: Path) -> None:
    figure.tight_layout()
    figure.savefig(to, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
