"""How commands end: the one table from errors to exit codes, and one line on stderr instead of a traceback.

Only what this package raises on purpose is shortened; anything unexpected keeps its traceback.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from mainspring.cli._visible import visible
from mainspring.errors import InputError, MainspringError, ModelError

REFUSED, USAGE, BAD_MODEL, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141


def exit_code(error: MainspringError) -> int:
    """Of an error that ends a command; errors of single spans never get here."""
    return BAD_MODEL if isinstance(error, ModelError) else USAGE if isinstance(error, InputError) else REFUSED


@contextmanager
def ending() -> Iterator[None]:
    """Around a command: flushes what it printed, and turns what it raises into its exit."""
    try:
        yield
        sys.stdout.flush()
    except MainspringError as error:
        click.echo(f"error: {visible(str(error), encoding=sys.stderr.encoding)}", err=True)
        raise click.exceptions.Exit(exit_code(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _drop_stdout()
        raise click.exceptions.Exit(BROKEN_PIPE) from None


def _drop_stdout() -> None:
    """Nobody reads it any more: what is buffered goes nowhere, or the interpreter would complain when it exits."""
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
