"""Options that commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mainspring.hub import EMBEDDED

Command = TypeVar("Command", bound=Callable[..., Any])


def behavior_options(command: Command) -> Command:
    command = click.option(
        "--behaviors",
        "behavior_files",
        multiple=True,
        metavar="FILE",
        help="A file of them: a JSON list of texts or {id, definition}, JSONL, or text with one a line (# comments).",
    )(command)
    return click.option(
        "-b", "--behavior", "definitions", multiple=True, metavar="TEXT", help="A behavior; give as many as you like."
    )(command)


def span_options(command: Command) -> Command:
    for option in (
        click.option(
            "--choice", type=click.IntRange(0), default=0, metavar="K", help="Which output, where a span has several."
        ),
        click.option(
            "--limit-tokens", type=click.IntRange(1), metavar="N", help="Of a span as the model reads it. [the model's]"
        ),
        click.option("--cut", is_flag=True, help="Cut the middles of long texts instead of refusing the span."),
        click.option(
            "--format",
            "format_name",
            metavar="NAME",
            help="Insist on a span format (otel, openai-chat, ...) [by content]",
        ),
    ):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    command = click.option("--revision", metavar="REV", help="Of a hub model: a commit, tag or branch.")(command)
    return click.option(
        "--model",
        default=EMBEDDED,
        show_default=True,
        envvar="MAINSPRING_MODEL",
        show_envvar=True,
        metavar="DIR_OR_HUB_ID",
        help="A model folder, owner/name on a hub, or the small scorer of this package.",
    )(command)


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a span, a line each, on stdout.")
