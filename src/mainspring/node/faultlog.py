"""Faults in a log without a word of what they were about: kinds of exceptions and the places they passed.

An exception's own message may quote what it choked on, a prompt's text too, and `log.exception` prints it, along with
those of its causes. Places and kinds are enough to find a fault.
"""

import logging
from pathlib import PurePath
from traceback import extract_tb

PLACES = 8
CAUSES = 4


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
