import pytest

from mainspring.errors import SpanError
from mainspring.text.formats import read_span
from mainspring.text.span import Message, Text, ToolResult


@pytest.mark.parametrize(
    "text", ["An answer.", "  spaced\n\n", "Intro\nUser: not a turn", '"quoted"', "[sic] yes", "\ufeffx"]
)
def test_the_whole_is_the_output(text: str) -> None:
    read = read_span(text)
    assert read.format == "text"
    assert read.span.input == ()
    assert read.span.output == (Message("assistant", (Text(text),)),)


def test_transcript() -> None:
    span = read_span("\nSystem: brief\nUser: hi\n  more: x\n\nTool: 42\nASSISTANT:yo\nlast\n").span
    assert span.input == (
        Message("system", (Text("brief"),)),
        Message("user", (Text("hi\n  more: x"),)),
        Message("tool", (ToolResult("42"),)),
    )
    assert span.output == (Message("assistant", (Text("yo\nlast"),)),)


def test_transcript_without_answer() -> None:
    assert read_span("User: hi").span.output == ()
    assert read_span("User: hi\nAssistant:").span.output == (Message("assistant", ()),)


@pytest.mark.parametrize("data", ["", " \n", 3, None, {"a": 1}])
def test_no_text(data: object) -> None:
    with pytest.raises(SpanError):
        read_span(data, "text")
