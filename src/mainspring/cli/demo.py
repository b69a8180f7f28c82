"""`mainspring demo`: a shipped conversation and shipped behaviors through a model made on the spot."""

from pathlib import Path

import click

from mainspring.cli._options import json_option


@click.command(short_help="See it work on a shipped conversation, without a model.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Leave the made model in this new folder.")
@click.option("--seed", type=int, default=2, show_default=True, help="Of the random weights.")
@json_option
def demo(keep: Path | None, seed: int, as_json: bool) -> None:
    """Score a shipped support conversation against eight shipped behaviors.

    The model is a small hybrid network made on the spot WITH RANDOM WEIGHTS: everything runs as with a real one, and
    the probabilities mean nothing.

    \b
    mainspring demo
    mainspring demo --keep demo-model
    mainspring score chat.json -b "the assistant made up a URL" --model demo-model
    """
    from contextlib import ExitStack
    from importlib.resources import as_file, files
    from tempfile import TemporaryDirectory

    from mainspring.cli import _reports
    from mainspring.cli._behaviors import gather
    from mainspring.cli._demo_model import write_demo_model
    from mainspring.cli._inputs import Inputs
    from mainspring.cli._scoring import How, open_scorer, score_inputs
    from mainspring.cli._terminal import stderr

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise click.UsageError(f"--keep needs a new or empty folder, {click.format_filename(keep)} is neither")
    screen = stderr()
    with ExitStack() as stack:
        data = stack.enter_context(as_file(files("mainspring") / "data" / "demo"))
        folder = keep or Path(stack.enter_context(TemporaryDirectory(prefix="mainspring-demo-")))
        size = write_demo_model(folder, seed)
        screen.line(
            f"Made a hybrid model of {size:,} parameters, its weights RANDOM: the probabilities mean nothing yet."
        )
        behaviors = gather((), [str(data / "behaviors.json")])
        inputs = Inputs([str(data / "conversation.json")])
        report: _reports.Report = _reports.JsonReport() if as_json else _reports.TableReport()
        tally = score_inputs(open_scorer(str(folder)), inputs, behaviors, report, How())
    screen.line(tally.line(len(behaviors)))
    if keep is not None:
        screen.line(f"The model is in {keep}: mainspring score FILE -b TEXT --model {keep}")
