"""`mainspring evaluate FILE`: marks of a scorer on labelled rows."""

from pathlib import Path

import click

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Measure a scorer on labelled rows.")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--model", required=True, help="Model folder or hub id.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a calibration plot (PNG) there.")
@click.option("--report", "to", type=click.Path(path_type=Path), help="Write all marks as JSON there.")
@click.option("--fit", is_flag=True, help="Fit a temperature and biases on FILES and store them in the model's folder.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="Of the bootstrap.")
def evaluate(files: tuple[Path, ...], model: str, plot: Path | None, to: Path | None, fit: bool, rounds: int) -> None:
    """F1 on present, AUC, calibration error, Brier score, recall and precision of not_observable, with 95 % intervals.

    FILES are JSON lines with the columns of the public behavior benchmark: cell_id, task_id, source, def_id,
    behavior_definition, behavior_type, label, input, output, metadata.

    \b
    mainspring evaluate test.jsonl --model DIR --plot calibration.png
    """
    from mainspring.scorer import Scorer
    from mainspring.train import evaluate as marks
    from mainspring.train.pipeline import store_calibration

    scorer = Scorer.from_pretrained(model)
    scored = marks.evaluate_file(scorer, files, say=lambda text: click.echo(text, err=True))
    calibration = scorer.bundle.scoring.calibration.behavior
    if fit:
        if not Path(model).is_dir():
            raise click.UsageError("--fit stores what it finds: name a model folder with --model")
        calibration = marks.fitted(scored)
        store_calibration(Path(model), calibration)
    found = marks.report(scored, calibration, rounds=rounds)
    click.echo(marks.table(found))
    if to is not None:
        marks.write_report(found, to)
    if plot is not None and not marks.plot(scored, calibration, plot):
        click.echo("no plot: matplotlib is missing (pip install 'mainspring[plots]')", err=True)
