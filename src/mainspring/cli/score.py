"""`mainspring score`: spans from files or stdin against behaviors, as tables or JSON lines."""

import click

from mainspring.cli._failures import REFUSED
from mainspring.cli._options import behavior_options, files_argument, json_option, model_options, span_options


@click.command(short_help="Score conversations against behaviors.")
@files_argument
@behavior_options
@model_options
@span_options
@json_option
@click.option("--device", type=click.Choice(["cpu"]), default="cpu", show_default=True, help="Where the model runs.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads. [measured]")
@click.pass_context
def score(
    ctx: click.Context,
    files: tuple[str, ...],
    definitions: tuple[str, ...],
    behavior_files: tuple[str, ...],
    model: str,
    revision: str | None,
    format_name: str | None,
    cut: bool,
    limit_tokens: int | None,
    choice: int,
    as_json: bool,
    device: str,
    threads: int | None,
) -> None:
    """Score conversations against behaviors: how probable it is that each one is present, absent, or that the
    conversation can't tell (n/o, "not observable").

    FILE is a conversation in any known span format (OpenTelemetry, OpenInference, Langfuse, OpenAI, Anthropic, plain
    text, ...), a list of them, JSON lines, an export, a folder of such files, or - for stdin. Lines are read one at a
    time, so a stream may have any length; one document or line holds at most 20 MiB.

    Without --model the small scorer of this package answers (mainspring.Scorer.embedded). `familiarity`, 0 to 1, says
    how near a behavior's wording is to what such a model was trained on; models that don't know it leave it out.

    \b
    mainspring score chat.json -b "the assistant made up a URL"
    mainspring score spans/ --behaviors policy.json --model owner/name --cut
    mainspring score - --behaviors policy.txt --model DIR --json < spans.jsonl

    \b
    With --json, a line is one of
      {"name", "index", "format", "results": [{"id", "p_present", "p_absent",
       "p_not_observable", "familiarity"}], "usage": {"input_tokens"}, "notes": [...]}
      {"name", "index", "error": {"code", "message", "param"}}

    Exit code 1 if a span was refused or failed. From Python, the same is mainspring.scorer.Scorer.
    """
    from mainspring.cli import _reports
    from mainspring.cli._behaviors import gather
    from mainspring.cli._inputs import Inputs
    from mainspring.cli._scoring import How, open_scorer, score_inputs
    from mainspring.cli._terminal import stderr

    behaviors = gather(definitions, behavior_files)
    inputs = Inputs(files, format_name)
    scorer = open_scorer(model, device=device, revision=revision, threads=threads)
    report: _reports.Report = _reports.JsonReport() if as_json else _reports.TableReport()
    how = How("cut" if cut else "refuse", limit_tokens, choice)
    tally = score_inputs(scorer, inputs, behaviors, report, how)
    screen = stderr()
    if screen.is_terminal or not (as_json or tally.scored + tally.failed == 1):
        screen.line(tally.line(len(behaviors)))
    if tally.failed:
        ctx.exit(REFUSED)
