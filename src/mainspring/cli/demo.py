"""`mainspring demo`: shipped conversations and shipped behaviors through the embedded scorer."""

import click

from mainspring.cli._options import json_option

CONVERSATIONS = ("made_up_url.json", "refusal.json", "tool_call_gone_wrong.json")


@click.command(short_help="See it work on shipped conversations.")
@json_option
def demo(as_json: bool) -> None:
    """Score three shipped conversations (a made-up URL, a refusal, a tool call gone wrong) against a dozen shipped
    behaviors with the small scorer of this package.

    \b
    mainspring demo
    mainspring demo --json
    """
    from contextlib import ExitStack
    from importlib.resources import as_file, files

    from mainspring.cli import _reports
    from mainspring.cli._behaviors import gather
    from mainspring.cli._inputs import Inputs
    from mainspring.cli._scoring import How, open_scorer, score_inputs
    from mainspring.cli._terminal import stderr
    from mainspring.hub import EMBEDDED

    with ExitStack() as stack:
        data = stack.enter_context(as_file(files("mainspring") / "data" / "demo"))
        behaviors = gather((), [str(data / "behaviors.json")])
        report: _reports.Report = _reports.JsonReport() if as_json else _reports.TableReport()
        inputs = Inputs([str(data / name) for name in CONVERSATIONS])
        tally = score_inputs(open_scorer(EMBEDDED), inputs, behaviors, report, How())
    stderr().line(tally.line(len(behaviors)))
