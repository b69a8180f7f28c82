"""`mainspring train scorer CONFIG`: train the embedded scorer, or one on labelled rows of your own."""

from pathlib import Path

import click


@click.group(short_help="Train a scorer.")
def train() -> None:
    """Train models.

    \b
    mainspring train scorer configs/scorer.toml
    """


@train.command("scorer", short_help="Train a scorer from a TOML file.")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", default="auto", show_default=True, help="cuda, cpu, or auto: cuda where there is one.")
@click.option("--minutes", type=float, help="Stop after that long; the same command goes on from there.")
@click.pass_context
def scorer(ctx: click.Context, config: Path, device: str, minutes: float | None) -> None:
    """Prepare data, train, calibrate: CONFIG says how (docs/scorer.md). Kept in the run folder it names, and resumed
    from there; interrupted or not, the result is the same.

    \b
    mainspring train scorer configs/scorer.toml
    """
    import math

    from mainspring.train.config import read_config
    from mainspring.train.pipeline import train_scorer

    stop = math.inf if minutes is None else 60 * minutes
    if train_scorer(read_config(config), device=device, stop_after_s=stop, say=click.echo) is None:
        ctx.exit(75)  # EX_TEMPFAIL: not done yet
