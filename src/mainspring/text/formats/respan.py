"""Respan logs: `input`, `output`, `log_type`; older ones `prompt_messages`, `completion_message`.

Input and output are JSON strings or structured. The service takes logs of at most 20 MB, the documents' own limit.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._reading import Reading, label
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import read_input_value, read_output_value, take_finish
from mainspring.text.span import Json, ReadSpan

NAME = "respan"
_INPUT_KEYS = ("input", "prompt_messages")
_OUTPUT_KEYS = ("output", "completion_message", "completion_messages")
_WITHOUT = ("embedding", "tool", "function", "speech", "transcription", "moderation", "retrieval", "score")


def matches(data: Json) -> bool:
    if not isinstance(data, dict):
        return False
    logged = "log_type" in data and any(key in data for key in (*_INPUT_KEYS, *_OUTPUT_KEYS))
    return logged or "prompt_messages" in data or "completion_message" in data


def read(data: Json) -> ReadSpan:
    if not isinstance(data, dict):
        raise SpanError("a log is an object with input and output")
    kind = data.get("log_type")
    if isinstance(kind, str) and kind.lower().startswith(_WITHOUT):
        raise SpanError(f"a log of type {kind[:40]!r} holds no conversation", param="log_type")
    asked = next((key for key in _INPUT_KEYS if data.get(key)), "input")
    said = next((key for key in _OUTPUT_KEYS if data.get(key)), "output")
    r = Reading(NAME, asked)
    read_input_value(r, data.get(asked), asked)
    if data.get(said) is not None:
        read_output_value(r, data[said], said)
    read_tools(r, data.get("tools"), "tools")
    r.model = label(data.get("model")) or r.model
    take_finish(r, {"finish_reason": data.get("finish_reason")})
    r.unread(data, "", (asked, said, "tools", "model", "log_type", "finish_reason"))
    return r.done()
