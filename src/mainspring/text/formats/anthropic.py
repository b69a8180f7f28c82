"""Anthropic messages: blocks (`text`, `thinking`, `tool_use`, `tool_result`, `image`, `document`), `system` apart.

Request and response in one object, the response's `content` beside the request's `messages`, or the request alone,
whose last message is the output if the assistant wrote it.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import read_message
from mainspring.text.formats._pairs import pair, peek
from mainspring.text.formats._reading import Reading, join, label
from mainspring.text.formats._values import read_output_value, read_request, take_finish
from mainspring.text.span import Json, ReadSpan

NAME = "anthropic"
_BLOCKS = frozenset((
    "thinking", "redacted_thinking", "tool_use", "tool_result", "document", "server_tool_use",
    "web_search_tool_result",
))  # fmt: skip


def matches(data: Json) -> bool:
    if isinstance(data, list):
        return any(_has_blocks(message) for message in data) and all(_is_plain(message) for message in data)
    request, response = peek(data)
    if _is_reply(response):
        return True
    messages = request.get("messages")
    if not isinstance(messages, list):
        return False
    tools = request.get("tools")
    has_schema = isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
    choices = "choices" in request or (isinstance(response, dict) and "choices" in response)
    spread = "stop_reason" in request or isinstance(request.get("content"), list)
    return not choices and ("system" in request or has_schema or spread or any(_has_blocks(m) for m in messages))


def _is_plain(message: Json) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message


def _has_blocks(message: Json) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(_is_block(block) for block in content)


def _is_block(block: Json) -> bool:
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return False
    return kind in _BLOCKS or (kind == "image" and "source" in block)


def _is_reply(value: Json) -> bool:
    return isinstance(value, dict) and (
        (value.get("type") == "message" and "content" in value) or ("stop_reason" in value and "content" in value)
    )


def read(data: Json) -> ReadSpan:
    if isinstance(data, list):
        data = {"messages": data}
    if not isinstance(data, dict):
        raise SpanError("neither messages nor a request with messages")
    r = Reading(NAME, "messages")
    found = pair(r, data)
    is_spread = found.request is data
    spread = {key: data[key] for key in ("content", "stop_reason") if is_spread and data.get(key) is not None}
    own = (*found.outer, *spread, *(("role", "type") if "content" in spread else ())) if is_spread else ()
    read_request(r, found.request, found.request_where, own)
    r.root = join(found.request_where, "messages")
    if found.request is not data:
        r.unread(data, "", found.outer)
    if _is_reply(found.response):
        _read_reply(r, found.response, found.response_where)
    elif found.response is not None:
        read_output_value(r, found.response, found.response_where)
    elif "content" in spread:
        take_finish(r, spread)
        r.answer(read_message(r, {"role": "assistant", "content": spread["content"]}, ""), "content")
    else:
        r.split_answer()
    return r.done()


def _read_reply(r: Reading, value: dict[str, Json], where: str) -> None:
    r.model = label(value.get("model")) or r.model
    take_finish(r, value)
    message = {key: inner for key, inner in value.items() if key not in ("type", "model", "stop_reason")}
    r.answer(read_message(r, message, where, "assistant"), where)
