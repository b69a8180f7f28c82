"""The command line: `mainspring COMMAND`, one file a command.

Importing this package, and `--help`, load click and nothing heavier: commands are imported when they are named and
import what they need when they run. Errors become one line on stderr and an exit code in `_failures.py`.
"""

import click

from mainspring.cli._lazy import LazyGroup
from mainspring.version import __version__

COMMANDS = {
    "score": "mainspring.cli.score:score",
    "explain": "mainspring.cli.explain:explain",
    "demo": "mainspring.cli.demo:demo",
    "serve": "mainspring.cli.serve:serve",
    "evaluate": "mainspring.cli.evaluate:evaluate",
    "train": "mainspring.cli.train:train",
    "simulate": "mainspring.cli.simulate:command",
    "doctor": "mainspring.cli.doctor:doctor",
    "node": "mainspring.cli.node:node",
    "gateway": "mainspring.cli.gateway:gateway",
    "keys": "mainspring.cli.keys:command",
    "pki": "mainspring.cli.pki:command",
    "router": "mainspring.cli.router:command",
    "bench": "mainspring.cli.bench:command",
}


@click.group(cls=LazyGroup, commands_at=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="mainspring")
def main() -> None:
    """Score LLM conversations against behaviors written in plain language, in one forward pass.

    \b
    mainspring demo                               see it work, without a model
    mainspring score chat.json -b "the assistant made up a URL" --model DIR
    mainspring serve                              the same over HTTP, with a dashboard
    mainspring explain chat.json --model DIR      what the model gets to read
    mainspring simulate compare --quick           the router beside other schedulers, in virtual time
    mainspring doctor                             which device would be used, and why
    mainspring pki init                           certificates for a fleet of your own

    \b
    Exit codes:
      0    everything was scored
      1    a span was refused or failed; the others were scored
      2    usage: an option, a file that is not there, a behavior that can't be asked
      3    the model can't be loaded
      130  interrupted
      141  nobody reads the output any more
    """
