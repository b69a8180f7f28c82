"""OpenAI Responses: items (`message`, `function_call`, `function_call_output`, `reasoning`, ...) and `instructions`.

Items of the assistant that follow one another are one message: reasoning, text, calls. `{input, output}`,
`{request, response}`, a response object that repeats its request, or a bare list of items.
"""

from collections.abc import Iterable

from mainspring.errors import SpanError
from mainspring.text.formats._messages import is_message, placed, read_message
from mainspring.text.formats._pairs import pair, peek
from mainspring.text.formats._parts import read_part
from mainspring.text.formats._reading import Reading, decoded, entries, join, label
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import read_system
from mainspring.text.span import Json, Message, ReadSpan

NAME = "openai-responses"
_ITEMS = frozenset((
    "message", "function_call", "function_call_output", "reasoning", "custom_tool_call", "custom_tool_call_output",
    "mcp_call", "web_search_call", "file_search_call", "code_interpreter_call", "computer_call",
    "computer_call_output", "image_generation_call", "local_shell_call", "local_shell_call_output",
    "item_reference", "mcp_list_tools", "mcp_approval_request", "compaction",
))  # fmt: skip


def matches(data: Json) -> bool:
    if _has_items(data):
        return True
    request, response = peek(data)
    if _is_response(request) or _is_response(response):
        return True
    if "messages" in request or not (isinstance(data, dict) and ("input" in request or "instructions" in request)):
        return False
    return _has_items(request.get("input")) or _has_items(request.get("output")) or "instructions" in request


def _has_items(value: Json) -> bool:
    """At least one item by type, and nothing but items and messages."""
    if not isinstance(value, list) or not any("type" in element for element in value if isinstance(element, dict)):
        return False
    typed = [_is_item(element) for element in value]
    return any(typed) and all(is_one or is_message(element) for is_one, element in zip(typed, value, strict=True))


def _is_item(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(kind := value.get("type"), str) and kind in _ITEMS


def _is_response(value: Json) -> bool:
    return isinstance(value, dict) and (value.get("object") == "response" or _has_items(value.get("output")))


def read(data: Json) -> ReadSpan:
    r = Reading(NAME, "input")
    if isinstance(data, list):
        r.root = ""
        r.input += _read_items(r, data, "", one_turn=False)
        r.split_answer()
        return r.done()
    if not isinstance(data, dict):
        raise SpanError("neither items nor a request with input")
    found = pair(r, data)
    _read_request(r, found.request, found.request_where, found.outer if found.request is data else ())
    if found.request is not data:
        r.unread(data, "", found.outer)
    if found.response is not None:
        _read_answer(r, found.response, found.response_where)
    return r.done()


def _read_request(r: Reading, value: dict[str, Json], where: str, used: tuple[str, ...]) -> None:
    """Also the whole of `{input, output}` and of a response that repeats its request's fields."""
    r.root = join(where, "input")
    read_system(r, value.get("instructions"), join(where, "instructions"))
    r.input += _read_items(r, decoded(r, value.get("input"), r.root), r.root, one_turn=False)
    read_tools(r, value.get("tools"), join(where, "tools"))
    r.model = label(value.get("model"))
    taken = ("instructions", "input", "tools", "model", *used)
    if "output" in value:
        _read_answer(r, {key: inner for key, inner in value.items() if key not in taken}, where)
    else:
        r.unread(value, where, taken)


def _read_answer(r: Reading, value: Json, where: str) -> None:
    used: tuple[str, ...] = ("output", "object", "model")
    if not isinstance(value, dict) or "output" not in value:
        output, at = value, where
    else:
        output, at = value["output"], join(where, "output")
        r.model = label(value.get("model")) or r.model
        incomplete = value.get("incomplete_details")
        reason = label(incomplete.get("reason")) if isinstance(incomplete, dict) else None
        r.finish_reason = reason or label(value.get("status"))
        repeated = not r.input and value.get("instructions") is not None
        if repeated:
            read_system(r, value["instructions"], join(where, "instructions"))
        r.unread(
            value, where, (*used, *(("incomplete_details",) if reason else ("status",)), "instructions" * repeated)
        )
    items = decoded(r, output, at)
    if turns := _read_items(r, items if isinstance(items, list | dict) else output, at, one_turn=True):
        r.answer(turns, at)


def _read_items(r: Reading, value: Json, where: str, *, one_turn: bool) -> list[Message]:
    """`one_turn`: all that the assistant says between two results is one message, a second text item included."""
    turns: list[Message] = []
    has_text = False
    for path, item in entries(value, where):
        is_text = not _is_item(item) or item["type"] == "message"
        for message in _read_item(r, item, path, "assistant" if one_turn else "user"):
            joins = message.role == "assistant" and bool(turns) and turns[-1].role == "assistant"
            if joins and (one_turn or not (is_text and has_text)):
                turns[-1] = Message("assistant", turns[-1].parts + message.parts, turns[-1].name or message.name)
                has_text |= is_text
            else:
                turns.append(message)
                has_text = is_text
    return turns


def _read_item(r: Reading, item: Json, where: str, speaker: "str") -> Iterable[Message]:
    if not _is_item(item):
        return read_message(r, item, where, "assistant" if speaker == "assistant" else None)
    if item["type"] == "message":
        return read_message(r, {k: v for k, v in item.items() if k not in ("type", "status")}, where, "assistant")
    if item["type"] in ("item_reference", "mcp_list_tools", "mcp_approval_request", "compaction"):
        r.note("not_rendered", where, "an item that stands for no text here: a reference, a listing, an approval")
        return []
    parts = read_part(r, {key: inner for key, inner in item.items() if key != "status"}, where)
    return placed(r, "assistant", parts, None, where) if parts else []
