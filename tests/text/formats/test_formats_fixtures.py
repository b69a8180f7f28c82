"""Real spans of several SDKs (Apache-2.0, see LICENSE beside them): each reads without loss or is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mainspring.errors import SpanError
from mainspring.text import formats
from mainspring.text.formats.documents import read_document
from mainspring.text.span import Json, ReadSpan

FIXTURES = Path(__file__).parents[2] / "fixtures" / "spans"
READ = {
    "ai-generateObject-doGenerate.json": "vercel-ai",
    "ai-generateText-doGenerate.json": "vercel-ai",
    "ai-generateText.json": "vercel-ai",
    "openinference_client_span_input_output_only.json": "openinference",
    "openinference_client_span_tool_calls.json": "openinference",
    "otel_genai_client_span_tool_calls.json": "otel",
    "otel_genai_deprecated_client_span_tool_calls.json": "otel-flat",
}
REFUSED = {"otel_genai_tool_execution_span.json": "tool execution"}
# Structure, not content: what a role, a type or a finish reason says is in the Span's own fields.
STRUCTURAL = re.compile(r"(^|[.\]])(role|type|finish_reason|finishReason)$")


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of every string, those inside JSON strings by their own paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{i}]")
    elif isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, dict | list):
            yield from leaves(inner, path)
        elif value:
            yield path, value


def strings(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


def is_noted(read: ReadSpan, path: str) -> bool:
    for note in read.notes:
        inside = path.removeprefix(note.where).lstrip(".")
        if path.startswith(note.where) and any(
            inside == key or inside.startswith((key + ".", key + "[")) for key in note.detail.split(", ")
        ):
            return True
    return False


def spans() -> list[tuple[str, Json]]:
    found = []
    for path in sorted(FIXTURES.glob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        found += [(path.name, span) for span in (data if isinstance(data, list) else [data])]
    return found


def test_every_fixture_is_listed() -> None:
    assert {name for name, _ in spans()} == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize(("name", "data"), [pair for pair in spans() if pair[0] in READ])
def test_every_string_is_in_the_span_or_noted(name: str, data: Json) -> None:
    read = formats.read_span(data)
    assert read.format == READ[name]
    assert read.span.input
    assert read.span.output
    shown = "\n".join(strings(msgspec.to_builtins(read.span)))
    lost = [
        path for path, text in leaves(data) if not (text in shown or is_noted(read, path) or STRUCTURAL.search(path))
    ]
    assert lost == []


@pytest.mark.parametrize(("name", "data"), [pair for pair in spans() if pair[0] in REFUSED])
def test_spans_without_a_conversation_are_refused_with_the_reason(name: str, data: Json) -> None:
    with pytest.raises(SpanError, match=REFUSED[name]):
        formats.read_span(data)


@pytest.mark.parametrize("name", sorted(READ | REFUSED))
def test_as_documents(name: str) -> None:
    items = list(read_document((FIXTURES / name).read_bytes(), name=name))
    assert [item.read is not None for item in items] == [name in READ] * len(items)
    assert len(items) == sum(1 for other, _ in spans() if other == name)
