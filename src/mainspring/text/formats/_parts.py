"""Content parts as providers and SDKs spell them, one table from `type` to our parts.

Lenient: OpenAI, Anthropic, OpenTelemetry, Vercel, LangChain and Gemini spellings are told apart by their own keys and
not by the format they came in, because telemetry carries whatever its SDK was given. A part of unknown type becomes
Text of compact JSON. Bytes (base64, data: URIs) are dropped and noted wherever they stand.
"""

from collections.abc import Callable

from mainspring.text.formats._media import media, without_bytes
from mainspring.text.formats._reading import Reading, compact, decoded, entries, join
from mainspring.text.formats._tools import read_tool_call, read_tool_result, result_content
from mainspring.text.span import Json, Part, Reasoning, Text, ToolResult

_TEXT_KEYS = ("text", "content", "refusal", "value")
_REASONING_KEYS = ("thinking", "reasoning", "reasoningText", "text", "content", "summary")


def read_parts(r: Reading, content: Json, where: str) -> list[Part]:
    """A message's content: null, a string, a part, a list of parts or strings, or a bare scalar."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for path, value in entries(content, where):
        if isinstance(value, dict):
            parts += read_part(r, value, path)
        elif isinstance(value, str | list):
            parts += read_parts(r, value, path)
        elif value is not None:
            parts.append(Text(compact(value)))
    return parts


def read_part(r: Reading, value: dict[str, Json], where: str) -> list[Part]:
    if isinstance(inner := value.get("message_content"), dict):
        r.unread(value, where, ("message_content",))
        return read_part(r, inner, join(where, "message_content"))
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = next((key for key in _UNTYPED if key in value), "")
    reader = _READERS.get(kind)
    parts = reader(r, value, where) if reader else None
    if parts is None:
        parts = [Text(compact(without_bytes(r, value, where)))]
        r.note("not_rendered", where, "a part of unknown type, shown as JSON")
    return parts


def is_part(value: Json) -> bool:
    """Whether an object is a content part rather than a message or anything else."""
    return isinstance(value, dict) and isinstance(kind := value.get("type"), str) and kind in _READERS


def is_result(value: Json) -> bool:
    return isinstance(value, dict) and (value.get("type") in _RESULTS or "functionResponse" in value)


def _text(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    key = next((key for key in _TEXT_KEYS if value.get(key) is not None), None)
    if key is None:
        return None
    r.unread(value, where, ("type", "thought", key))
    inner, path = value[key], join(where, key)
    if isinstance(inner, dict) and isinstance(inner.get("value"), str):
        r.unread(inner, path, ("value",))
        inner = inner["value"]
    parts = read_parts(r, inner, path)
    return [Reasoning(p.text) if isinstance(p, Text) else p for p in parts] if value.get("thought") is True else parts


def _reasoning(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    used = [key for key in _REASONING_KEYS if value.get(key) is not None]
    parts: list[Part] = []
    for key in used:
        found = read_parts(r, value[key], join(where, key))
        parts += [Reasoning(part.text) if isinstance(part, Text) else part for part in found]
    r.unread(value, where, ("type", *used))  # signatures, encrypted content
    return parts


def _call(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    return [read_tool_call(r, value, where)]


def _result(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    return [read_tool_result(r, value, where)]


def _call_with_result(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    """Tools the provider runs itself: call and result in one item."""
    keys = [key for key in ("output", "outputs", "results", "error") if value.get(key)]
    call = read_tool_call(r, {key: inner for key, inner in value.items() if key not in keys}, where)
    parts: list[Part] = [call]
    for key in keys:
        content = result_content(r, value[key], join(where, key))
        parts.append(ToolResult(content, call.id, call.name or None))
    return parts


def _document(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    """Anthropic's document: plain text and nested blocks are content, anything else is a file."""
    source = value.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("text", "content"):
        return media(r, value, where, "document")
    key = "data" if source["type"] == "text" else "content"
    r.unread(value, where, ("type", "source"))
    r.unread(source, join(where, "source"), ("type", key, "media_type"))
    return read_parts(r, source.get(key), join(where, f"source.{key}"))


def _search_result(r: Reading, value: dict[str, Json], where: str) -> list[Part] | None:
    r.unread(value, where, ("type", "content", "title"))
    return read_parts(r, value.get("title"), join(where, "title")) + read_parts(
        r, value.get("content"), join(where, "content")
    )


def _media(modality: str) -> "Callable[[Reading, dict[str, Json], str], list[Part] | None]":
    return lambda r, value, where: media(r, value, where, modality)


def parts_in_string(r: Reading, content: Json, where: str) -> Json:
    """Content that a flattening SDK encoded: the list of parts inside a string, if every element is a part."""
    found = decoded(r, content, where) if isinstance(content, str) else content
    return found if isinstance(found, list) and found and all(is_part(value) for value in found) else content


_Reader = Callable[[Reading, dict[str, Json], str], list[Part] | None]
_CALLS = (
    "tool_call", "tool_use", "server_tool_use", "mcp_tool_use", "tool-call", "function_call", "function", "custom",
    "custom_tool_call", "server_tool_call", "functionCall", "computer_call", "local_shell_call", "shell_call",
    "apply_patch_call",
)  # fmt: skip
_RESULTS = (
    "tool_call_response", "tool_result", "tool-result", "tool-error", "function_call_output", "custom_tool_call_output",
    "server_tool_call_response", "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
    "computer_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output",
    "functionResponse", "function_response",
)  # fmt: skip
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"), _text),
    **dict.fromkeys(("reasoning", "thinking", "redacted_thinking", "redacted-reasoning"), _reasoning),
    **dict.fromkeys(_CALLS, _call),
    **dict.fromkeys(_RESULTS, _result),
    **dict.fromkeys(("mcp_call", "web_search_call", "file_search_call", "code_interpreter_call"), _call_with_result),
    **dict.fromkeys(("image", "image_url", "input_image", "image_file", "image_generation_call"), _media("image")),
    **dict.fromkeys(("audio", "input_audio", "audio_url"), _media("audio")),
    **dict.fromkeys(("video", "video_url", "input_video"), _media("video")),
    **dict.fromkeys(("file", "input_file", "blob", "uri", "media", "container_upload"), _media("file")),
    **dict.fromkeys(("inlineData", "inline_data", "fileData", "file_data"), _media("file")),
    "document": _document,
    "search_result": _search_result,
}
_UNTYPED = ("functionCall", "functionResponse", "inlineData", "inline_data", "fileData", "image_url", "text")
