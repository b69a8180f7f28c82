"""PNG plots of a run or a comparison. Needs the extra `plots` (matplotlib); drawn without a display."""

from pathlib import Path
from typing import Any

from mainspring.simulate.observe import goodput_over_time
from mainspring.simulate.record import Outcome
from mainspring.simulate.vnode import VirtualNode

SPAN_BARS = 4000
"""Bars drawn on node timelines at most: a day has a quarter of a million passes."""


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_run(
    path: Path, outcomes: list[Outcome], nodes: dict[str, VirtualNode], queue: list[tuple[float, int]], horizon_s: float
) -> None:
    """Latency percentiles by class, goodput, queue and node timelines in one figure."""
    plt = _pyplot()
    figure, axes = plt.subplots(4, 1, figsize=(11, 13), constrained_layout=True)
    by_class: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.state == "answered":
            by_class.setdefault(outcome.slo.name, []).append(outcome.latency_s)
    for name, latencies in sorted(by_class.items()):
        latencies.sort()
        count = len(latencies)
        axes[0].plot([100.0 * (i + 1) / count for i in range(count)], latencies, label=name)
    axes[0].set(yscale="log", xlabel="percentile", ylabel="latency, s", title="Latency of what was answered")
    bins = 200
    for name, series in goodput_over_time(outcomes, horizon_s, bins).items():
        axes[1].plot([horizon_s * (i + 0.5) / bins for i in range(bins)], series, label=name)
    axes[1].set(xlabel="s", ylabel="weighted tokens/s", title="Goodput")
    axes[2].plot([when for when, _ in queue], [waiting for _, waiting in queue])
    axes[2].set(xlabel="s", ylabel="waiting", title="Queue")
    for row, (_, node) in enumerate(sorted(nodes.items())):
        step = max(1, len(node.trace) * len(nodes) // SPAN_BARS)
        axes[3].broken_barh([(begin, took) for begin, took, _, _ in node.trace[::step]], (row - 0.4, 0.8))
    axes[3].set(xlabel="s", title="Nodes", yticks=range(len(nodes)), yticklabels=sorted(nodes))
    for axis in axes[:2]:
        axis.legend(loc="upper left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_comparison(path: Path, report: dict[str, Any]) -> None:
    """Goodput of every policy as a share of the best published baseline's; hatched are those with our costs."""
    from mainspring.simulate.compare import INFORMED, best_published

    plt = _pyplot()
    scenarios = report["scenarios"]
    names = [entry["policy"] for entry in scenarios[0]["policies"]]
    figure, axis = plt.subplots(figsize=(13, 5), constrained_layout=True)
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        shares = [scenario["policies"][index]["goodput"] / best_published(scenario) for scenario in scenarios]
        places = [place + (index - len(names) / 2.0 + 0.5) * width for place in range(len(scenarios))]
        axis.bar(places, shares, width, label=name, hatch="///" if name in INFORMED else None)
    axis.axhline(1.0, color="grey", linewidth=0.8)
    axis.set_xticks(range(len(scenarios)), [s["name"] for s in scenarios], rotation=35, ha="right")
    axis.set(ylabel="goodput / best published baseline")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=len(names), fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
