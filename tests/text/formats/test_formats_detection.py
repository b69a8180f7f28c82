import pytest

from mainspring.errors import InputError, SpanError, TooLargeError, UnknownFormatError
from mainspring.text.formats import FORMATS, read_span

LAYERS = [
    ("langfuse", {"langfuse.observation.input": "a", "langfuse.observation.output": "langfuse"}),
    ("otel", {"gen_ai.input.messages": [{"role": "user", "parts": []}]}),
    ("otel-flat", {"gen_ai.prompt.0.content": "a", "gen_ai.completion.0.content": "flat"}),
    ("openinference", {"llm.input_messages.0.message.content": "a"}),
    ("vercel-ai", {"ai.prompt": "a", "ai.response.text": "vercel"}),
    ("openinference", {"input.value": "a", "output.value": "value"}),
]


@pytest.mark.parametrize("start", range(len(LAYERS)))
def test_precedence(start: int) -> None:
    carried = {key: value for _, layer in LAYERS[start:] for key, value in layer.items()}
    assert read_span(carried).format == LAYERS[start][0]
    assert read_span({"attributes": carried}).format == LAYERS[start][0]


def test_losing_conventions_are_noted() -> None:
    carried = {key: value for _, layer in LAYERS for key, value in layer.items()}
    detail = " ".join(note.detail for note in read_span(carried).notes)
    assert all(key in detail for _, layer in LAYERS[1:] for key in layer)


def test_unknown() -> None:
    for data in ({}, [], {"a": 1}, 3, None, True, [1]):
        with pytest.raises(UnknownFormatError, match="openai-chat"):
            read_span(data)
    with pytest.raises(UnknownFormatError, match="otel-flat"):
        read_span({}, "nonsense")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("data", [{}, [], {"a": 1}, 3, None, [[]], {"input": {}}])
def test_by_name_with_another_shape(name: str, data: object) -> None:
    with pytest.raises(SpanError):
        read_span(data, name)


def test_depth() -> None:
    data: object = "x"
    for _ in range(200):
        data = [data]
    with pytest.raises(TooLargeError) as caught:
        read_span({"input": data, "output": "y"})
    assert caught.value.limit == 128


@pytest.mark.parametrize("data", [{"input": b"x", "output": "y"}, {"input": {1}, "output": "y"}, object()])
def test_what_is_no_json(data: object) -> None:
    with pytest.raises(InputError, match="not a JSON value"):
        read_span(data)


def test_messages_never_quote_the_conversation() -> None:
    for data in ({"input": [{"content": "SECRET"}], "output": "SECRET"},
                 {"messages": [{"role": "x", "content": "SECRET"}]},
                 {"gen_ai.input.messages": '[{"role":"user","parts":[{"content":"SECRET'}):  # fmt: skip
        with pytest.raises(SpanError) as caught:
            read_span(data)
        assert "SECRET" not in str(caught.value)
