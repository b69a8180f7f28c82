"""span-01, Mainspring's own shape: `{span: {input: [messages], output: {role, content}}}`, or the inside alone.

Strings stand for the user's and the assistant's text; a list of outputs for several choices.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import read_message, read_messages, role_of
from mainspring.text.formats._reading import Reading, decoded, entries, join, label
from mainspring.text.formats._telemetry import telemetry
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import take_finish
from mainspring.text.span import Json, ReadSpan

NAME = "span-01"


def matches(data: Json) -> bool:
    if not isinstance(data, dict):
        return False
    return isinstance(data.get("span"), dict) or ("input" in data and "output" in data and telemetry(data) is None)


def read(data: Json) -> ReadSpan:
    if not isinstance(data, dict):
        raise SpanError("a span is an object with input and output")
    r = Reading(NAME, "span.input" if isinstance(data.get("span"), dict) else "input")
    where = ""
    if isinstance(data.get("span"), dict):
        r.unread(data, "", ("span",))  # the rest of a scoring request
        data, where = data["span"], "span"
    r.input += read_messages(r, data.get("input"), join(where, "input"))
    _read_output(r, decoded(r, data.get("output"), join(where, "output")), join(where, "output"))
    read_tools(r, data.get("tools"), join(where, "tools"))
    r.model = label(data.get("model"))
    take_finish(r, data)
    r.unread(data, where, ("input", "output", "tools", "model", "finish_reason"))
    return r.done()


def _read_output(r: Reading, output: Json, where: str) -> None:
    for path, value in entries(output, where):
        if isinstance(value, dict) and value.get("role") is not None:
            if role_of(value["role"], join(path, "role")) != "assistant":
                raise SpanError("span output must be an assistant message", param=join(path, "role"))
            take_finish(r, value)
            value = {key: inner for key, inner in value.items() if key != "finish_reason"}
        r.answer(read_message(r, value, path, "assistant"), path)
