"""One message in any of its spellings -> our messages, and the roles.

A source message becomes several of ours where it holds tool results among other things (Anthropic's user messages):
a run of results is a `tool` message, what stands before and after stays in order. Calls and reasoning in a user's or
system message are shown as text there, because templates know them only from the assistant.
"""

from itertools import groupby

from mainspring.errors import SpanError
from mainspring.text.formats._media import media
from mainspring.text.formats._parts import is_part, is_result, parts_in_string, read_parts
from mainspring.text.formats._reading import Reading, compact, decoded, entries, first, join, label
from mainspring.text.formats._tools import read_tool_call, read_tool_result, result_content
from mainspring.text.span import Json, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult

_ROLES: dict[str, Role] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model", "bot", "gpt"), "assistant"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
_SAID = frozenset(("system", "user", "assistant"))
_LANGCHAIN = frozenset(("system", "human", "ai", "tool", "function", "chat"))
_CONTENT_KEYS = ("content", "parts", "contents", "value")
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_CALLS_KEYS = ("tool_calls", "toolCalls")
_ID_KEYS = ("tool_call_id", "tool_use_id", "toolCallId", "call_id", "id")


def role_of(name: Json, where: str) -> Role:
    """Our role for a source's, LangChain's class names included; SpanError names what is none."""
    if not isinstance(name, str):
        raise SpanError("a message without a role" if name is None else "a role that is no string", param=where)
    plain = name.strip().lower().removesuffix("chunk")
    plain = plain.removesuffix("message") or plain
    if plain not in _ROLES:
        raise SpanError(f"unknown role {name[:40]!r}", param=where)
    return _ROLES[plain]


def is_message(value: Json) -> bool:
    """Whether an object says who speaks, in any of the spellings `read_message` takes; a `role` alone may be data."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("message"), dict):
        return is_message(value["message"])
    if isinstance(role := value.get("role"), str):
        return role.lower() in _ROLES or any(key in value for key in (*_CONTENT_KEYS, *_CALLS_KEYS))
    return _langchain_role(value) is not None or _is_sharegpt(value)


def are_messages(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(is_message(element) for element in value)


def read_messages(r: Reading, value: Json, where: str, *, default: Role | None = None) -> list[Message]:
    """A list of messages, or a single one, or a plain string where a list belongs (the user's, unless `default`)."""
    value = _unbatched(decoded(r, value, where))
    if value == "":
        return []
    if not isinstance(value, list):
        return [message for path, inner in entries(value, where) for message in read_message(r, inner, path, default)]
    messages: list[Message] = []
    for index, inner in enumerate(value):
        messages += _plainly_said(inner) or read_message(r, inner, f"{where}[{index}]", default)
    return messages


def _unbatched(value: Json) -> Json:
    """LangChain's `[[...]]`: a batch of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value


def read_message(r: Reading, value: Json, where: str, default: Role | None = None) -> list[Message]:
    """`default` is the role of a message that names none; without it that is an error."""
    value = decoded(r, value, where) if isinstance(value, str) and value.lstrip()[:1] == "{" else value
    if value is None:
        return []
    if isinstance(value, dict):
        return _plainly_said(value) or _read_object(r, value, where, default)
    if isinstance(value, list):
        return [Message(default, tuple(read_parts(r, value, where)))] if default else _refuse(where)
    return [Message(default or "user", tuple(read_parts(r, value, where)))]


def _refuse(where: str) -> list[Message]:
    raise SpanError("a message that is neither object nor text", param=where)


def _plainly_said(value: Json) -> list[Message] | None:
    plain = plainly_said(value)
    return [plain] if plain else None


def plainly_said(value: Json) -> Message | None:
    """`{role, content}` with text that can't be JSON, nearly every message there is: as `_read_object` reads it, in a
    tenth of its time."""
    if type(value) is not dict or len(value) != 2:
        return None
    role, content = value.get("role"), value.get("content")
    if type(role) is not str or role not in _SAID or type(content) is not str or not content[:1].isalnum():
        return None
    return Message(_ROLES[role], (Text(content),))


def _read_object(r: Reading, value: dict[str, Json], where: str, default: Role | None) -> list[Message]:
    for wrapper in ("message", "kwargs", "data"):
        inner = value.get(wrapper)
        wrapped = "role" not in value if wrapper == "message" else _langchain_role(value) is not None
        if isinstance(inner, dict) and wrapped:
            r.unread(value, where, (wrapper, "type", "lc", "id"))
            role = label(inner.get("role"), _langchain_role(inner), _langchain_role(value)) or default
            return _read_object(r, {**inner, **({"role": role} if role else {})}, join(where, wrapper), default)
    if not is_message(value) and is_part(value):
        role = default or role_of(None, join(where, "role"))
        return placed(r, role, read_parts(r, value, where), None, where)
    said = first(value, "role", "from") or _langchain_role(value)
    role = default if said is None and default else role_of(said, join(where, "role"))
    return _tool_message(r, value, where) if role == "tool" else _speech(r, role, value, where)


def _langchain_role(value: dict[str, Json]) -> str | None:
    """`{type: "human", content}`, `{type: "human", data}` or the serialised constructor's class name."""
    kind, path = value.get("type"), value.get("id")
    if kind == "constructor" and isinstance(path, list) and path and isinstance(path[-1], str):
        return path[-1] if "message" in path[-1].lower() else None
    return kind if isinstance(kind, str) and kind in _LANGCHAIN and ("content" in value or "data" in value) else None


def _is_sharegpt(value: dict[str, Json]) -> bool:
    return isinstance(value.get("from"), str) and "value" in value


def _speech(r: Reading, role: Role, value: dict[str, Json], where: str) -> list[Message]:
    parts: list[Part] = []
    used = ["role", "from", "name"]
    if _langchain_role(value):
        used.append("type")
    for key in _REASONING_KEYS:
        if isinstance(text := value.get(key), str) and text:
            parts.append(Reasoning(text))
            used.append(key)
            break
    for key in _CONTENT_KEYS:
        if key in value:
            parts += read_parts(r, parts_in_string(r, value[key], join(where, key)), join(where, key))
            used.append(key)
    for key in ("text", "refusal"):
        if isinstance(text := value.get(key), str) and text:
            parts.append(Text(text))
            used.append(key)
    if isinstance(value.get("audio"), dict):
        parts += media(r, value["audio"], join(where, "audio"), "audio")
        used.append("audio")
    calls, names = _calls(r, value, where, parts)
    r.unread(value, where, (*used, *names))
    name = value.get("name")
    return placed(r, role, parts + calls, name if isinstance(name, str) else None, where)


def _calls(r: Reading, value: dict[str, Json], where: str, parts: list[Part]) -> tuple[list[Part], list[str]]:
    """Calls beside the content; LangChain repeats in `tool_calls` the blocks its content already has."""
    known = {part.id for part in parts if isinstance(part, ToolCall) and part.id}
    key = next((key for key in _CALLS_KEYS if value.get(key)), None)
    found: list[Part] = []
    used: list[str] = []
    if key:
        used.append(key)
        for path, call in entries(decoded(r, value[key], join(where, key)), join(where, key)):
            read = read_tool_call(r, call, path)
            if not (read.id and read.id in known):
                found.append(read)
    elif value.get("function_call"):
        used.append("function_call")
        found.append(read_tool_call(r, decoded(r, value["function_call"], where), join(where, "function_call")))
    elif value.get("function_call_name"):  # OpenInference's flattened form of the same
        used += ["function_call_name", "function_call_arguments_json"]
        call = {"name": value["function_call_name"], "arguments": value.get("function_call_arguments_json")}
        found.append(read_tool_call(r, call, where))
    return found, used


def _tool_message(r: Reading, value: dict[str, Json], where: str) -> list[Message]:
    """Results among the content stand for themselves; any other content is the result of this message's call."""
    key = next((key for key in _CONTENT_KEYS if value.get(key) is not None), "content")
    name = label(value.get("name"), value.get("tool_name"), value.get("toolName"))
    id_key = next((key for key in _ID_KEYS if isinstance(value.get(key), str | int)), None)
    identifier = compact(value[id_key]) if id_key else None
    name_keys = ("name", "tool_name", "toolName") if name else ()
    r.unread(
        value, where, ("role", "from", key, id_key or "", *name_keys, *(("type",) if _langchain_role(value) else ()))
    )
    content, path = parts_in_string(r, value.get(key), join(where, key)), join(where, key)
    found = entries(content, path)
    if not any(is_result(inner) for _, inner in found):
        return [Message("tool", (ToolResult(result_content(r, content, path), identifier, name),), name)]
    results = (
        read_tool_result(r, inner, at) if is_result(inner) else ToolResult(result_content(r, inner, at), identifier)
        for at, inner in found
    )
    return [Message("tool", tuple(results), name)]


def placed(r: Reading, role: Role, parts: list[Part], name: str | None, where: str) -> list[Message]:
    """Messages of our kind for one message's parts, in order."""
    messages = []
    for is_tool, group in groupby(parts, key=lambda part: isinstance(part, ToolResult)):
        run = tuple(group)
        if is_tool:
            messages.append(Message("tool", run, name if role == "tool" else None))
        else:
            messages.append(Message(role, run if role == "assistant" else _as_text(r, run, where), name))
    if name and messages and all(message.name is None for message in messages):
        r.note("not_rendered", where, "name")
    return messages or [Message(role, (), name)]


def _as_text(r: Reading, parts: tuple[Part, ...], where: str) -> tuple[Part, ...]:
    shown: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            r.note("moved", where, "a tool call outside an assistant message, shown as text")
            shown.append(Text(compact({"name": part.name, "arguments": part.arguments, "id": part.id})))
        elif isinstance(part, Reasoning):
            r.note("moved", where, "reasoning outside an assistant message, shown as text")
            shown.append(Text(part.text))
        else:
            shown.append(part)
    return tuple(shown)
