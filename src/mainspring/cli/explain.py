"""`mainspring explain`: what a model would read of a span, and what it would be asked. Needs a bundle, no weights."""

import click

from mainspring.cli._failures import REFUSED
from mainspring.cli._options import behavior_options, files_argument, json_option, model_options, span_options


@click.command(short_help="Show what the model gets to read.")
@files_argument
@behavior_options
@model_options
@span_options
@json_option
@click.option("--tokens", "with_tokens", is_flag=True, help="List ids and texts of all tokens.")
@click.pass_context
def explain(
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
    with_tokens: bool,
) -> None:
    """Show a conversation as the model reads it: the rendered text with control tokens apart from the template's text
    and the users', its size in tokens, and notes on what was left out, moved, cut or replaced on the way.

    With -b also the question that a behavior becomes, with the words and ids of its answers. Only tokenizer and
    templates are needed: the model folder may lack weights, and from a hub none are fetched.

    \b
    mainspring explain chat.json --model DIR
    mainspring explain chat.json --model DIR -b "the assistant made up a URL" --tokens
    mainspring explain spans.jsonl --model DIR --cut --limit-tokens 4096 --json

    \b
    With --json, a line is one of
      {"name", "index", "format", "span": {"roles", "input", "output", "tools", "model",
       "finish_reason"}, "view": {"tokens", "limit", "pieces": [{"kind", "text"}]},
       "notes": [...], "branches": [{"id", "tokens", "pieces", "answers": [...]}]}
      {"name", "index", "error": {"code", "message", "param"}}
    and --tokens adds "ids" to the view and the branches.
    """
    from mainspring.cli import _explaining, _reports
    from mainspring.cli._behaviors import gather
    from mainspring.cli._inputs import Inputs
    from mainspring.errors import MainspringError

    behaviors = gather(definitions, behavior_files) if definitions or behavior_files else ()
    inputs = Inputs(files, format_name)
    reader = _explaining.Reader.open(
        model, revision, behaviors, on_overflow="cut" if cut else "refuse", limit_tokens=limit_tokens, choice=choice
    )
    page = None if as_json else _explaining.Page(reader, with_tokens=with_tokens)
    report: _reports.Report = _reports.JsonReport() if page is None else _reports.TableReport()
    failed = 0
    for item in inputs:
        try:
            reading = reader.read(item)
        except MainspringError as error:
            failed += 1
            report.failed(item, error)
        else:
            if page is None:
                _reports.write_json(_explaining.reading_json(reader, reading, with_tokens=with_tokens))
            else:
                page.show(reading)
    if failed:
        ctx.exit(REFUSED)
