"""Faults in a log without a word of what they were about: kinds of exceptions and the places they passed.

An exception's own message may quote what it choked on, a prompt's text too, and `log.exception` prints it, along with
those of its causes. Places and kinds are enough to find a fault. Whatever serves says its faults by `log_fault`,
however logging is set up; `Formatter` and `said` are for what others log in a serving process: asyncio above all, which
prints tasks with their exceptions and callbacks with their arguments.
"""

import logging
import re
from pathlib import PurePath
from traceback import extract_tb
from typing import TextIO

PLACES = 8
CAUSES = 4
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_fault(
    log: logging.Logger, error: BaseException, message: str, *values: object, level: int = logging.ERROR
) -> None:
    """`message % values`, which must not be anybody's text, then what `error` is and where it came from."""
    log.log(level, message + ": %s", *values, described(error))


def described(error: BaseException) -> str:
    """As `ValueError in writer.py:88 run, streams.py:157 round; caused by KeyError in ...`, innermost place last."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < CAUSES:
        frames = extract_tb(seen.__traceback__)[-PLACES:]
        places = ", ".join(f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
        parts.append(f"{type(seen).__name__} in {places or 'no place known'}")
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "; caused by ".join(parts)


def said(record: logging.LogRecord) -> str:
    """Its message; of asyncio's complaints what comes before any value: `Exception in callback Link.received`."""
    message = record.getMessage()
    if record.name == "asyncio" and record.levelno >= logging.WARNING:
        return re.split(r"[\n(<]", message, maxsplit=1)[0].rstrip()
    return message


class Formatter(logging.Formatter):
    """Lines of text. The traceback that another handler's formatter may have left in the record is not looked at."""

    def __init__(self) -> None:
        super().__init__(LINE)

    def format(self, record: logging.LogRecord) -> str:
        record.message, record.asctime = said(record), self.formatTime(record)
        line = self.formatMessage(record)
        error = record.exc_info[1] if record.exc_info else None
        return line if error is None else f"{line}: {described(error)}"


def set_up(stream: TextIO) -> None:
    """Root logging of a serving process, as lines of text."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
