import io
import json
import tracemalloc

import pytest

from mainspring.errors import MalformedError, SpanError, TooLargeError, UnknownFormatError
from mainspring.text.formats.documents import Item, Limits, read_document, read_stream

USER = {"role": "user", "content": "hi"}
SPAN = {"messages": [USER, {"role": "assistant", "content": "yo"}]}
LINE = json.dumps(SPAN).encode()
OTEL = {"name": "chat", "attributes": [
    {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps([USER])}},
    {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "3"}}]}  # fmt: skip
EXPORT = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [OTEL, {"name": "GET /"}, OTEL]}]}]}


def read(raw: bytes, **options: object) -> list[Item]:
    """By both ways, which must agree."""
    items = list(read_document(raw, **options))
    streamed = list(read_stream(io.BytesIO(raw), **options))
    assert [(item.index, item.read, str(item.error)) for item in items] == [
        (item.index, item.read, str(item.error)) for item in streamed
    ]
    assert [item.index for item in items] == list(range(len(items)))
    return items


def kinds(items: list[Item]) -> list[str]:
    return [item.read.format if item.read else type(item.error).__name__ for item in items]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (SPAN, ["openai-chat"]),
        (SPAN["messages"], ["openai-chat"]),
        ([SPAN, SPAN], ["openai-chat"] * 2),
        ([SPAN["messages"], SPAN["messages"]], ["openai-chat"] * 2),
        ({"spans": [SPAN, SPAN]}, ["openai-chat"] * 2),
        ({"data": [SPAN]}, ["openai-chat"]),
        ({"span": {"input": "hi", "output": "yo"}}, ["span-01"]),
        (EXPORT, ["otel", "UnknownFormatError", "otel"]),
        ([EXPORT, EXPORT], ["otel", "UnknownFormatError", "otel"] * 2),
        ([SPAN, 3, {"a": 1}, SPAN], ["openai-chat", "UnknownFormatError", "UnknownFormatError", "openai-chat"]),
        ([], ["SpanError"]),
        ({"spans": []}, ["SpanError"]),
        ([{"role": "judge", "content": "x"}], ["SpanError"]),
        ("just a string", ["text"]),
        (12, ["UnknownFormatError"]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json(data: object, expected: list[str], indent: int | None) -> None:
    assert kinds(read(json.dumps(data, indent=indent).encode())) == expected


def test_log_export_groups_the_events_of_one_span() -> None:
    def record(span: str, name: str, content: str) -> dict:
        body = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": content}}]}}
        return {"traceId": "t", "spanId": span, "eventName": name, "body": body}

    records = [record(span, "gen_ai.user.message", f"hi {span}") for span in ("a", "b")]
    records += [record(span, "gen_ai.assistant.message", "yo") for span in ("b", "a")]
    items = read(json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode())
    assert kinds(items) == ["otel-events"] * 2
    assert [item.read.span.input[0].text for item in items if item.read] == ["hi a", "hi b"]


def test_jsonl_goes_on_after_a_bad_line() -> None:
    items = read(b"\n".join([LINE, b'{"messages": [}', b"", LINE, json.dumps(EXPORT).encode()]) + b"\n")
    assert kinds(items) == ["openai-chat", "MalformedError", "openai-chat", "otel", "UnknownFormatError", "otel"]
    assert str(items[1].error).startswith("line 2, column 15: ")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_jsonl_whose_first_line_is_bad(end: bytes) -> None:
    raw = end.join([b'{"messages": [', LINE, LINE])
    assert kinds(list(read_document(raw))) == ["MalformedError", "openai-chat", "openai-chat"]
    assert kinds(read(raw, name="a.jsonl")) == ["MalformedError", "openai-chat", "openai-chat"]


def test_jsonl_without_utf8() -> None:
    items = read(LINE + b'\n{"a": "\xff"}\n' + LINE)
    assert kinds(items) == ["openai-chat", "MalformedError", "openai-chat"]
    assert str(items[1].error) == "line 2, column 8: not UTF-8"


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b'{"messages": [\n  {"role": }\n]}', "line 2, column 12"),
        (b"[1, 2", "line 1, column 6"),
        (b"{", "line 1, column 2"),
        (b"{} x", "line 1, column 4"),
        (b'["a\nb"]', "line 1, column 4"),
        (b'["\xc3\xa9", \n "\xff"]', "line 2, column 3"),
        (b"plain \xff", "line 1, column 7"),
    ],
)
def test_malformed(raw: bytes, place: str) -> None:
    (item,) = read(raw)
    assert isinstance(item.error, MalformedError)
    assert str(item.error).startswith(place)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"])
def test_encodings(encoding: str) -> None:
    bom = "\ufeff" if encoding in ("utf-16-be", "utf-16-le") else ""
    for text in (json.dumps(SPAN), json.dumps(SPAN) + "\n" + json.dumps(SPAN), "Hällo 😀"):
        items = read((bom + text).encode(encoding))
        assert all(item.read for item in items) or "16" in encoding
    assert read((bom + "Hällo 😀").encode(encoding))[0].read.span.output[0].text == "Hällo 😀"  # type: ignore[union-attr]


def test_utf16_jsonl() -> None:
    text = json.dumps(SPAN) + "\n{\n" + json.dumps(SPAN)
    assert kinds(read(text.encode("utf-16"))) == ["openai-chat", "MalformedError", "openai-chat"]


def test_utf32_is_refused_by_name() -> None:
    (item,) = read(json.dumps(SPAN).encode("utf-32"))
    assert "UTF-32" in str(item.error)


def test_text() -> None:
    assert kinds(read(b"User: hi\nAssistant: yo\n")) == ["text"]
    assert kinds(read(b'{"a":1}', format="text")) == ["text"]
    assert kinds(read(b"")) == ["SpanError"]
    assert kinds(read(b"hello", format="otel")) == ["MalformedError"]


@pytest.mark.parametrize(
    "raw",
    [rb'{"messages": [{"role": "user", "content": "a\ud83d"}]}', b'{"messages": [{"role": "user", "content": NaN}]}',
     b'{"messages": [{"role": "user", "content": 1e999}]}',
     b'{"messages": [{"role": "user", "content": %s}]}' % (b"9" * 5000),
     b'{"messages": 1, "messages": [{"role": "user", "content": "last"}]}'],
)  # fmt: skip
def test_json_at_its_edges(raw: bytes) -> None:
    (item,) = read(raw)
    assert item.read is not None
    assert item.read.span.input[0].text


def test_work_is_bounded_by_the_limits() -> None:
    """Each of these took minutes, or all memory, where a step was quadratic or a limit was checked at the end."""
    for raw in (b"[" + b"[]," * 1_000_000 + b"[]]", b"[" * 5000 + b'"\\' * 1_000_000, b"{\n" * 1_000_000):
        assert 1 <= len(list(read_document(raw))) <= 10_001
    assert len(list(read_stream(io.BytesIO(b"\n" * 1_000_000 + LINE)))) == 1


@pytest.mark.parametrize("levels", [130, 1000, 100_000])
def test_depth(levels: int) -> None:
    for raw in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
        (item,) = read(raw)
        assert isinstance(item.error, TooLargeError)
        assert item.error.limit == 128
        assert item.error.actual > 128


def test_bytes() -> None:
    limits = Limits(bytes=len(LINE))
    (item,) = list(read_document(json.dumps(SPAN, indent=9).encode(), limits=limits))
    assert isinstance(item.error, TooLargeError)
    long = LINE.replace(b"yo", b"y" * 100_000)
    items = read(b"\n".join([LINE, long, LINE, long]), limits=limits)
    assert kinds(items) == ["openai-chat", "TooLargeError", "openai-chat", "TooLargeError"]
    assert isinstance(items[1].error, TooLargeError)
    assert (items[1].error.limit, items[1].error.actual) == (len(LINE), len(long))
    assert "line 2" in str(items[1].error)


def test_spans() -> None:
    items = read(json.dumps([SPAN] * 5).encode(), limits=Limits(spans=3))
    assert kinds(items) == ["openai-chat"] * 3 + ["TooLargeError"]
    assert kinds(read(b"\n".join([LINE] * 5), limits=Limits(spans=3))) == ["openai-chat"] * 5


def test_format_is_insisted_on_and_checked_at_once() -> None:
    assert kinds(read(LINE, format="otel")) == ["SpanError"]
    with pytest.raises(UnknownFormatError):
        read_document(b"{}", format="x")
    with pytest.raises(UnknownFormatError):
        read_stream(io.BytesIO(), format="x")


def test_an_error_in_a_span_names_its_place_inside_the_span() -> None:
    items = read(json.dumps([SPAN, {"messages": [{"role": "x", "content": ""}]}]).encode())
    assert isinstance(items[1].error, SpanError)
    assert items[1].error.param == "messages[0].role"


class Endless(io.RawIOBase):
    """Two hundred megabytes of lines that are made when asked for."""

    def __init__(self, count: int, line: bytes) -> None:
        self.left = count
        self.line = line

    def readable(self) -> bool:
        return True

    def readline(self, _size: int | None = -1) -> bytes:
        self.left -= 1
        return self.line if self.left >= 0 else b""


def test_a_stream_of_lines_is_not_held() -> None:
    line = LINE.replace(b"yo", b"y" * 1_000_000) + b"\n"
    tracemalloc.start()
    count = sum(item.read is not None for item in read_stream(Endless(200, line)))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200
    assert peak < 20_000_000


@pytest.mark.parametrize(
    "wrap", ["%s", "[%s, %s]", '{"spans": [%s]}', '{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}']
)
def test_what_is_replaced_is_noted_span_by_span(wrap: str) -> None:
    span = r'{"attributes": {"gen_ai.prompt.0.content": "a \ud800", "gen_ai.completion.0.content": "b"}}'
    for item in read((wrap % ((span,) * wrap.count("%s"))).encode()):
        assert item.read
        assert [(note.kind, note.where) for note in item.read.notes] == [
            ("replaced", "attributes.gen_ai.prompt.0.content")
        ]
