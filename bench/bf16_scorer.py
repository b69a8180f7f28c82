"""How far bf16 on CUDA moves the embedded scorer's probabilities from fp32 on the CPU.

The shipped conversations against the shipped behaviors: differences of probabilities, and answers on the other side of
one half.

    python bench/bf16_scorer.py
"""

import json
from importlib.resources import files
from pathlib import Path

import click
import numpy as np

from mainspring import Scorer
from mainspring.hub import EMBEDDED


@click.command(help=__doc__)
@click.argument("spans", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(spans: tuple[Path, ...]) -> None:
    sides = [Scorer.embedded(), Scorer.from_pretrained(EMBEDDED, device="cuda", cache_bytes=0)]
    demo = files("mainspring") / "data" / "demo"
    behaviors = json.loads((demo / "behaviors.json").read_text("utf-8"))
    shipped = [demo / name for name in ("made_up_url.json", "refusal.json", "tool_call_gone_wrong.json")]
    gaps, flips = [], 0
    for path in spans or shipped:
        span = json.loads(path.read_text("utf-8"))
        pair = [np.array([result.p_present for result in side.score(span, behaviors)]) for side in sides]
        gap = np.abs(pair[0] - pair[1])
        flipped = int(((pair[0] > 0.5) != (pair[1] > 0.5)).sum())
        click.echo(f"{path.name}: {len(gap)} behaviors, difference at most {gap.max():.4f}, {flipped} flips")
        gaps.append(gap)
        flips += flipped
    all_gaps = np.concatenate(gaps)
    click.echo(
        f"{len(all_gaps)} probabilities on {sides[1].engine.backend.device}: difference median "
        f" {np.median(all_gaps):.5f}, p99 {np.quantile(all_gaps, 0.99):.5f}, most {all_gaps.max():.5f}; {flips} flips"
    )


if __name__ == "__main__":
    main()
