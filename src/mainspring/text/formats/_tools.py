"""Tool calls, tool results and tool definitions under every name that providers and SDKs gave them.

Arguments become an object only where their string holds exactly one: text that JSON readers would change (a key twice,
NaN) stays the string that the model wrote.
"""

import json

from mainspring.errors import TooLargeError
from mainspring.text.formats._media import without_bytes
from mainspring.text.formats._reading import Reading, clean, compact, decoded, entries, first, join, label
from mainspring.text.span import Json, ToolCall, ToolDefinition, ToolResult

_NAME_KEYS = ("name", "toolName", "tool_name")
_CALL_ID_KEYS = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "id")
_ARGUMENT_KEYS = ("arguments", "args", "input", "parameters", "server_tool_call", "action", "code", "queries")
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "schema")
_DEFINITION_KEYS = (
    "name",
    "type",
    "function",
    "tool",
    "json_schema",
    "functionDeclarations",
    "function_declarations",
    "0",
)
_RESULT_KEYS = (
    "response", "result", "output", "content", "server_tool_call_response", "outputs", "results", "error",
)  # fmt: skip


def read_tool_call(r: Reading, value: Json, where: str) -> ToolCall:
    """`function: {name, arguments}`, flat, or under Anthropic's, Vercel's and the Responses API's names."""
    for wrapper in ("tool_call", "function", "custom", "functionCall", "kwargs"):
        if isinstance(value, dict) and isinstance(inner := value.get(wrapper), dict):
            call = read_tool_call(r, inner, join(where, wrapper))
            r.unread(value, where, (wrapper, "type", *_used(value, _CALL_ID_KEYS)))
            return ToolCall(call.name, call.arguments, call.id or _identifier(value, _CALL_ID_KEYS))
    if not isinstance(value, dict):
        r.note("not_rendered", where, "a tool call that is no object; its text stands for the arguments")
        return ToolCall("", value)
    name = label(*(value.get(key) for key in _NAME_KEYS))
    kind = label(value.get("type")) or ""
    arguments = without_bytes(r, first(value, *_ARGUMENT_KEYS), where)
    used = ("type", *_used(value, _NAME_KEYS), *_used(value, _ARGUMENT_KEYS), *_used(value, _CALL_ID_KEYS))
    r.unread(value, where, used)
    if name is None and not kind.endswith("_call"):
        r.note("not_rendered", where, "a tool call without a name")
    identifier = _identifier(value, _CALL_ID_KEYS)
    return ToolCall(name or kind.removesuffix("_call"), _parsed(r, arguments, where), identifier)


def _parsed(r: Reading, value: Json, where: str) -> Json:
    """An object where the string holds exactly one (no key twice, no NaN), else what the model wrote."""
    text = value
    for _ in range(2):
        if not isinstance(text, str):
            break
        try:
            text = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return value
    if not isinstance(text, dict) or text is value:
        return value
    try:
        return clean(r, text, where)
    except TooLargeError:
        return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError
    return found


def _refuse(literal: str) -> Json:
    raise ValueError(literal)


def read_tool_result(r: Reading, value: dict[str, Json], where: str) -> ToolResult:
    for wrapper in ("functionResponse",):
        if isinstance(inner := value.get(wrapper), dict):
            r.unread(value, where, (wrapper, "type"))
            return read_tool_result(r, inner, join(where, wrapper))
    key = next((key for key in _RESULT_KEYS if value.get(key) is not None), None)
    content = result_content(r, value[key], join(where, key)) if key else ""
    used = ("type", *_used(value, _NAME_KEYS), *_used(value, _CALL_ID_KEYS), key or "")
    r.unread(value, where, used)
    return ToolResult(content, _identifier(value, _CALL_ID_KEYS), label(*(value.get(key) for key in _NAME_KEYS)))


def result_content(r: Reading, content: Json, where: str) -> Json:
    """Text where the result is text (parts are joined by line breaks), else JSON without bytes."""
    if content is None or isinstance(content, str):
        return without_bytes(r, content or "", where)
    if isinstance(content, dict) and isinstance(kind := content.get("type"), str) and "value" in content:
        if kind in ("error-text", "error-json", "execution-denied"):
            r.note("not_rendered", join(where, "type"), "the result is marked as an error")
        r.unread(content, where, ("type", "value"))
        return result_content(r, content["value"], join(where, "value"))
    found = entries(content, where)
    if found and all(_is_text(value) for _, value in found):
        for path, value in found:
            if isinstance(value, dict):
                r.unread(value, path, ("type", "text"))
        return "\n".join(value if isinstance(value, str) else value["text"] for _, value in found)
    return without_bytes(r, content, where)


def _is_text(value: Json) -> bool:
    if isinstance(value, dict):
        return value.get("type") in ("text", "input_text", "output_text") and isinstance(value.get("text"), str)
    return isinstance(value, str)


def _identifier(value: dict[str, Json], keys: tuple[str, ...]) -> str | None:
    found = first(value, *keys)
    return compact(found) if isinstance(found, str | int) else None


def _used(value: dict[str, Json], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if value.get(key) is not None)[:1]


def read_tools(r: Reading, value: Json, where: str) -> None:
    """Definitions: `{type, function: {...}}`, flat, Anthropic's, JSON strings, or a mapping from name to definition."""
    value = decoded(r, value, where)
    if isinstance(value, dict) and not any(key in value for key in _DEFINITION_KEYS):
        named = [(join(where, key), key, inner) for key, inner in value.items()]
    else:
        named = [(path, "", inner) for path, inner in entries(value, where)]
    for path, name, inner in named:
        r.tools += _definitions(r, decoded(r, inner, path), path, name)


def _definitions(r: Reading, value: Json, where: str, name: str) -> list[ToolDefinition]:
    if not isinstance(value, dict):
        r.note("not_rendered", where, "a tool definition that is no object")
        return []
    for wrapper in ("tool", "json_schema", "function", "custom"):
        inner = decoded(r, value.get(wrapper), join(where, wrapper))
        if isinstance(inner, dict):
            r.unread(value, where, (wrapper, "type"))
            return _definitions(r, inner, join(where, wrapper), name)
    for wrapper in ("functionDeclarations", "function_declarations"):
        if wrapper in value:
            r.unread(value, where, (wrapper,))
            found = entries(value[wrapper], join(where, wrapper))
            return [tool for path, inner in found for tool in _definitions(r, inner, path, "")]
    key = next((key for key in _SCHEMA_KEYS if value.get(key) is not None), "")
    called = label(value.get("name"), name, value.get("type"))
    if called is None:
        r.note("not_rendered", where, "a tool definition without a name")
        return []
    kind = "type" if value.get("type") in ("function", "custom", called) else ""
    described = value.get("description") if isinstance(value.get("description"), str) else None
    r.unread(value, where, ("name", "description" if described is not None else "", key, kind))
    schema = decoded(r, value[key], join(where, key)) if key else None
    return [ToolDefinition(called, described, without_bytes(r, schema, join(where, key)))]
