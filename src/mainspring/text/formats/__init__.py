"""Every span format known here, one reader a file: one decoded JSON value in, one Span and its notes out.

Reading loses nothing: what a format carries is in the Span or in a note with its path. The order of `FORMATS` is the
order of recognition: where a span carries several conventions at once, Langfuse wins over OpenTelemetry (current over
older), that over OpenInference, that over Vercel, and `input.value` comes last. Anything raised is a MainspringError.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

from mainspring.errors import SpanError, TooLargeError, UnknownFormatError
from mainspring.text.formats import (
    anthropic,
    langfuse,
    openai_chat,
    openai_responses,
    openinference,
    otel,
    otel_events,
    otel_flat,
    plain_text,
    respan,
    span_01,
    vercel_ai,
)
from mainspring.text.formats._reading import MAX_DEPTH, Reading, clean, decoded
from mainspring.text.formats._telemetry import telemetry
from mainspring.text.formats.plain_chat import read_plain
from mainspring.text.span import Json, ReadSpan

__all__ = ["FORMATS", "MAX_DEPTH", "Format", "detect", "is_span", "read_span"]


class Format(NamedTuple):
    """`matches` recognises a span of this format by itself; `read` raises SpanError where it holds no conversation."""

    name: str
    matches: Callable[[Json], bool]
    read: Callable[[Json], ReadSpan]


FORMATS = MappingProxyType(
    {
        module.NAME: Format(module.NAME, module.matches, module.read)
        for module in (
            langfuse,
            otel,
            otel_events,
            otel_flat,
            openinference,
            vercel_ai,
            respan,
            openai_responses,
            anthropic,
            openai_chat,
            span_01,
            plain_text,
        )
    }
)


def check_name(name: str | None) -> None:
    if name is not None and name not in FORMATS:
        raise UnknownFormatError(f"no span format {name[:40]!r}; known are {', '.join(FORMATS)}", param="format")


def detect(data: Json) -> Format | None:
    """The first format that recognises `data`, which must be clean."""
    return next((known for known in FORMATS.values() if known.matches(data)), None)


def is_span(data: Json) -> bool:
    """Whether one format at least takes `data` as one span: a list of messages is, a list of spans is not."""
    return detect(data) is not None or telemetry(data) is not None


def read_span(data: Json, format: str | None = None, *, max_depth: int = MAX_DEPTH) -> ReadSpan:  # noqa: A002
    """One decoded JSON value as a span. `format` None recognises it; a name insists on that format.

    UnknownFormatError: nothing matches, or no such name. SpanError: a known format without a conversation.
    TooLargeError: nested deeper than `max_depth`.
    """
    check_name(format)
    if format is None and max_depth == MAX_DEPTH and (plain := read_plain(data)) is not None:
        return plain
    try:
        return _read(data, format, max_depth)
    except RecursionError:
        raise TooLargeError("nested too deeply to read", limit=max_depth, actual=max_depth) from None


def _read(data: Json, name: str | None, max_depth: int) -> ReadSpan:
    r = Reading("")
    data = clean(r, data, max_depth=max_depth)
    if name != plain_text.NAME:
        data = decoded(r, data, "")
    known = FORMATS[name] if name is not None else detect(data)
    if known is None:
        raise _unrecognised(data)
    read = known.read(data)
    cleaned = r.done(needs_input=False).notes
    return ReadSpan(read.span, read.format, cleaned + read.notes) if cleaned else read


def _unrecognised(data: Json) -> SpanError | UnknownFormatError:
    span = telemetry(data)
    if span is None:
        return UnknownFormatError(f"no known span format; known are {', '.join(FORMATS)}")
    try:
        span.refuse()
    except SpanError as error:
        return error
    return SpanError("a telemetry span without messages: the instrumentation did not capture content")
