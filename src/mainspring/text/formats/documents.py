"""Documents of spans: JSON (one span, a list, an OTLP export), JSONL, plain text -> one Item a span.

An error never ends the others: whatever is wrong with a span, a line or the whole document arrives as an Item with an
error. A list of messages is one span and a list of spans is many, by content. What begins with `{` or `[` is JSON and,
when broken, malformed. Of a key that an object has twice, the last one counts, as in every JSON reader. What stands
around the spans of an export (resource, scope) is not read. Limits are arguments: bytes of a document or line, levels
of nesting, spans of a document or line.
"""

import codecs
import io
from collections.abc import Iterator
from itertools import islice
from typing import IO

import msgspec

from mainspring.errors import MainspringError, SpanError, TooLargeError
from mainspring.text.formats import MAX_DEPTH, check_name, is_span, plain_text, read_span
from mainspring.text.formats._decode import decode, text_of
from mainspring.text.formats._reading import Reading, clean
from mainspring.text.formats._telemetry import DETAILS, as_event
from mainspring.text.span import Json, ReadSpan

MAX_BYTES = 20 * 1024 * 1024
MAX_SPANS = 10_000
_LINES_JUDGED = 64
_LISTS = ("spans", "data", "observations", "items")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Limits(msgspec.Struct, frozen=True):
    """`spans` counts those of one document or of one line: a stream of lines has no end."""

    bytes: int = MAX_BYTES
    depth: int = MAX_DEPTH
    spans: int = MAX_SPANS


class Item(msgspec.Struct, frozen=True):
    """The `index`-th span of the document `name`, or the reason why there is none."""

    name: str
    index: int
    read: ReadSpan | None = None
    error: MainspringError | None = None


def read_document(
    raw: bytes,
    *,
    format: str | None = None,  # noqa: A002
    name: str = "<stdin>",
    limits: Limits = Limits(),  # noqa: B008
) -> Iterator[Item]:
    """All spans of a whole document. Only an unknown `format` raises, and at once."""
    check_name(format)
    return _numbered(_document(raw, format, name, limits), name)


def read_stream(
    file: IO[bytes],
    *,
    format: str | None = None,  # noqa: A002
    name: str = "<stdin>",
    limits: Limits = Limits(),  # noqa: B008
) -> Iterator[Item]:
    """As `read_document`, holding one line at a time if the stream is JSONL (by its name or first line)."""
    check_name(format)
    return _numbered(_stream(file, format, name, limits), name)


_Outcome = ReadSpan | MainspringError


def _numbered(outcomes: Iterator[_Outcome], name: str) -> Iterator[Item]:
    for index, outcome in enumerate(outcomes):
        failed = isinstance(outcome, MainspringError)
        yield Item(name, index, error=outcome) if failed else Item(name, index, outcome)  # type: ignore[arg-type]


def _stream(file: IO[bytes], name_of_format: str | None, name: str, limits: Limits) -> Iterator[_Outcome]:
    head = _head(file, limits.bytes)
    lines = not head.startswith(_UTF16) and name_of_format != plain_text.NAME
    if lines and (_is_jsonl_name(name) or _is_container(head, limits)):
        yield from _lines(head, file, name_of_format, limits)
        return
    raw = head + file.read(max(0, limits.bytes + 1 - len(head)))
    yield from _document(raw, name_of_format, name, limits)


def _head(file: IO[bytes], limit: int) -> bytes:
    """All up to the end of the first line that is not blank."""
    lines: list[bytes] = []
    size = 0
    while size <= limit and (line := file.readline(limit + 1)):
        lines.append(line)
        size += len(line)
        if line.strip(codecs.BOM_UTF8 + b" \t\r\n"):
            break
    return b"".join(lines)


def _document(raw: bytes, name_of_format: str | None, name: str, limits: Limits) -> Iterator[_Outcome]:
    try:
        if raw.startswith(_UTF16) and len(raw) <= limits.bytes:
            raw = text_of(raw).encode()
        if name_of_format != plain_text.NAME and _is_jsonl(raw, name, limits):
            yield from _lines(b"", io.BytesIO(raw), name_of_format, limits)
            return
        if len(raw) > limits.bytes:
            raise _too_long("document", len(raw), limits)
        text = text_of(raw)
        if name_of_format == plain_text.NAME or (name_of_format is None and not _looks_like_json(text, limits)):
            yield read_span(text, plain_text.NAME, max_depth=limits.depth)
            return
        data = decode(text, limits.depth)
    except MainspringError as error:
        yield error
        return
    yield from _spans(data, name_of_format, limits)


def _looks_like_json(text: str, limits: Limits) -> bool:
    """Braces and brackets settle it; a lone scalar or quoted string counts if all of the document is one."""
    if text.lstrip()[:1] in ("{", "["):
        return True
    try:
        decode(text, limits.depth)
    except MainspringError:
        return False
    return True


def _is_jsonl_name(name: str) -> bool:
    return name.lower().endswith((".jsonl", ".ndjson"))


def _is_jsonl(raw: bytes, name: str, limits: Limits) -> bool:
    """By name; or several lines, of which the first, or half of those judged, are objects or lists by themselves."""
    if _is_jsonl_name(name):
        return True
    stripped = raw.removeprefix(codecs.BOM_UTF8).strip()
    if b"\n" not in stripped or stripped[:1] not in (b"{", b"["):
        return False
    lines = list(islice((line for line in io.BytesIO(stripped[: limits.bytes]) if line.strip()), _LINES_JUDGED))
    if _is_container(lines[0], limits):
        return True
    return 2 * sum(_is_container(line, limits) for line in lines[1:]) >= len(lines)


def _is_container(line: bytes, limits: Limits) -> bool:
    line = line.removeprefix(codecs.BOM_UTF8).strip()
    if line[:1] not in (b"{", b"[") or line[-1:] not in (b"}", b"]") or len(line) > limits.bytes:
        return False
    try:
        return isinstance(decode(text_of(line), limits.depth), dict | list)
    except MainspringError:
        return False


def _lines(head: bytes, file: IO[bytes], name_of_format: str | None, limits: Limits) -> Iterator[_Outcome]:
    number = 0
    for line, size in _bounded_lines(head, file, limits.bytes):
        number += 1
        try:
            if size > limits.bytes:
                raise _too_long(f"line {number}", size, limits)
            text = text_of(line, number).rstrip()
            if not text:
                continue
            data = decode(text, limits.depth, number)
        except MainspringError as error:
            yield error
            continue
        yield from _spans(data, name_of_format, limits)


def _bounded_lines(head: bytes, file: IO[bytes], limit: int) -> Iterator[tuple[bytes, int]]:
    """Each line and its bytes; what is beyond the limit is counted and thrown away."""
    *whole, rest = head.split(b"\n")
    for line in whole:
        yield line, len(line)
    while chunk := file.readline(limit + 2):
        line = rest + chunk
        rest = b""
        size = len(line.removesuffix(b"\n"))
        while not line.endswith(b"\n") and (more := file.readline(65_536)):
            size += len(more.removesuffix(b"\n"))
            line = (line + more)[-1:] if size > limit else line + more
        yield line, size
    if rest:
        yield rest, len(rest)


def _too_long(what: str, size: int, limits: Limits) -> TooLargeError:
    return TooLargeError(f"{what} is longer than {limits.bytes} bytes", limit=limits.bytes, actual=size)


def _spans(data: Json, name_of_format: str | None, limits: Limits) -> Iterator[_Outcome]:
    """Every span of one decoded value. Each is cleaned as it is read, so that its notes say what was replaced."""
    try:
        cleaned = clean(Reading(""), data, max_depth=limits.depth)
    except MainspringError as error:
        yield error
        return
    count = 0
    for count, value in enumerate(_expanded(data, cleaned), start=1):
        if count > limits.spans:
            yield TooLargeError(f"more than {limits.spans} spans", limit=limits.spans, actual=count)
            return
        try:
            yield read_span(value, name_of_format, max_depth=limits.depth)
        except MainspringError as error:
            yield error
    if not count:
        yield SpanError("holds no span")


def _expanded(data: Json, cleaned: Json) -> Iterator[Json]:
    """The values that are spans by themselves, in order; what is no collection is one, recognised or not.

    `cleaned` is `data` as recognition wants it. The values stay as they are: reading them notes what it replaces.
    """
    if isinstance(data, dict):
        found, fit = _exported(data), _exported(cleaned)
        if found is None or fit is None:
            key = next((key for key in _LISTS if _are_objects(data.get(key))), None)
            if key is None or is_span(cleaned):
                yield data
                return
            found, fit = data[key], cleaned[key]
    elif isinstance(data, list) and not is_span(cleaned):
        found, fit = data, cleaned
    else:
        yield data
        return
    if len(found) != len(fit):  # two ids of spans that cleaning made one
        found = fit
    for inner, clean_inner in zip(found, fit, strict=True):
        if inner:
            yield from _expanded(inner, clean_inner)
        else:
            yield inner


def _are_objects(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict | list) for element in value)


def _exported(data: dict[str, Json]) -> list[Json] | None:
    """Spans of an OTLP trace export; of a log export the records, those of one older span together."""
    if (resources := _either(data, "resourceSpans", "resource_spans")) is not None:
        scopes = _inner(resources, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")
        return _inner(scopes, "spans")
    if (resources := _either(data, "resourceLogs", "resource_logs")) is None:
        return None
    spans: dict[str, list[Json]] = {}
    found: list[Json] = []
    for record in _inner(_inner(resources, "scopeLogs", "scope_logs"), "logRecords", "log_records"):
        event = as_event(record, "")
        if event is None or event.name == DETAILS:
            found.append(record)
            continue
        key = f"{_either(record, 'traceId', 'trace_id')} {_either(record, 'spanId', 'span_id')}"
        if key not in spans:
            found.append(spans.setdefault(key, []))
        spans[key].append(record)
    return found


def _either(value: Json, *keys: str) -> Json:
    return next((value[key] for key in keys if key in value), None) if isinstance(value, dict) else None


def _inner(values: Json, *keys: str) -> list[Json]:
    """The elements of the lists that these objects have under one of the keys."""
    lists = [_either(value, *keys) for value in values] if isinstance(values, list) else []
    return [element for elements in lists if isinstance(elements, list) for element in elements]
