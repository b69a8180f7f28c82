"""The options every benchmark script shares, and where its report goes.

    @click.command()
    @shared_options
    def main(options: Options, publish: Publish) -> None:
        publish(measure(arms, options, title="...", unit="tokens"))

Without --json the Markdown goes to stdout; a run that was not quiet is announced on stderr in either case.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mainspring.bench.lock import LockHeldError
from mainspring.bench.report import Options, Report

Publish = Callable[[Report], None]


def shared_options(script: Callable[..., None]) -> Callable[..., None]:
    """Add --rounds --warmups --out --json --no-wait --seed; pass `options` and `publish` to the script."""

    @click.option("--rounds", type=click.IntRange(1), default=10, show_default=True, help="Palindromes over the arms.")
    @click.option("--warmups", type=click.IntRange(0), default=2, show_default=True, help="Unrecorded runs an arm.")
    @click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the .md and .json files.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, with every sample, instead of Markdown.")
    @click.option("--no-wait", is_flag=True, help="Wait neither for the lock (fail) nor for quiet (mark the report).")
    @click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap intervals.")
    @wraps(script)
    def wrapped(
        *, rounds: int, warmups: int, out: Path | None, as_json: bool, no_wait: bool, seed: int, **others: Any
    ) -> None:
        def publish(report: Report) -> None:
            click.echo(report.to_json() if as_json else report.markdown(), nl=False)
            for path in report.write(out) if out is not None else ():
                click.echo(f"wrote {path}", err=True)
            if not report.quiet:
                click.secho(report.warning(), fg="red", bold=True, err=True)

        options = Options(rounds=rounds, warmups=warmups, seed=seed, wait=not no_wait)
        try:
            script(options=options, publish=publish, **others)
        except LockHeldError as error:
            raise click.ClickException(str(error)) from error

    return wrapped
