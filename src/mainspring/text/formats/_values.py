"""Requests, responses, and values that an SDK could fill with anything: text, messages, a whole request, variables.

What is recognised is read as that; what is not becomes the user's or the assistant's text, as it stood if it was a
string and as compact JSON otherwise.
"""

from mainspring.text.formats._media import without_bytes
from mainspring.text.formats._messages import are_messages, is_message, read_message, read_messages
from mainspring.text.formats._parts import is_part, read_parts
from mainspring.text.formats._reading import Reading, compact, decoded, entries, join, label
from mainspring.text.formats._tools import read_tools
from mainspring.text.span import Json, Message, Text

_SYSTEM_KEYS = ("system", "system_instruction", "system_instructions", "systemInstruction", "instructions")
_MESSAGES_KEYS = ("messages", "prompt", "input", "contents", "conversations", "conversation")
_TOOLS_KEYS = ("tools", "functions")
_ANSWER_KEYS = ("choices", "output", "message", "completion", "generations", "messages", "response", "candidates")
_SPOKEN_KEYS = ("content", "text", "tool_calls", "toolCalls", "parts", "refusal", "reasoning", "reasoning_content")
_METADATA = frozenset((  # what may stand beside a prompt or an answer without being part of it
    "model", "id", "object", "created", "usage", "metadata", "index", "logprobs", "finish_reason", "finishReason",
    "stop_reason", "stopReason", "status", "system_fingerprint", "service_tier", "temperature", "top_p", "top_k",
    "max_tokens", "max_completion_tokens", "stream", "stop", "n", "seed", "user", "frequency_penalty",
    "presence_penalty", "response_format", "tool_choice", "tools", "functions", "name", "response_metadata",
    *_SYSTEM_KEYS,
))  # fmt: skip
_FINISH_KEYS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "status")


def read_request(r: Reading, value: dict[str, Json], where: str, used: tuple[str, ...] = ()) -> None:
    """System text, messages, tools and model of a request object; its other keys are noted."""
    taken = [*used, "model"]
    r.model = r.model or label(value.get("model"))
    for key in _SYSTEM_KEYS:
        if value.get(key) is not None:
            taken.append(key)
            read_system(r, value[key], join(where, key))
    for key in _MESSAGES_KEYS:
        if value.get(key) is not None:
            taken.append(key)
            r.input += read_messages(r, value[key], join(where, key))
            break
    for key in _TOOLS_KEYS:
        if value.get(key) is not None:
            taken.append(key)
            read_tools(r, value[key], join(where, key))
    r.unread(value, where, taken)


def read_system(r: Reading, value: Json, where: str) -> None:
    """Instructions apart from the messages: a string, parts, or messages."""
    value = decoded(r, value, where)
    if are_messages(value) or is_message(value):
        r.input += read_messages(r, value, where, default="system")
    elif isinstance(value, dict) and isinstance(value.get("parts"), list):
        r.input.append(Message("system", tuple(read_parts(r, value["parts"], join(where, "parts")))))
        r.unread(value, where, ("parts",))
    elif parts := tuple(read_parts(r, value, where)):
        r.input.append(Message("system", parts))


def read_input_value(r: Reading, value: Json, where: str) -> None:
    inner = decoded(r, value, where)
    if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], list):
        inner, where = inner[0], f"{where}[0]"
    if isinstance(inner, dict) and _is_request(inner):
        read_request(r, inner, where)
    elif are_messages(inner) or is_message(inner):
        r.input += read_messages(r, inner, where)
    elif inner is not None and inner not in ("", [], {}):
        r.input.append(Message("user", tuple(_shown(r, value, inner, where))))


def _is_request(value: dict[str, Json]) -> bool:
    """Messages under any key, or a prompt that is text: not the variables of somebody's template."""
    for key in _MESSAGES_KEYS:
        inner = value.get(key)
        if are_messages(inner) or (isinstance(inner, list) and len(inner) == 1 and are_messages(inner[0])):
            return True
    prompts = {key for key in ("prompt", "messages", "input") if isinstance(value.get(key), str) and value[key]}
    return len(prompts) == 1 and value.keys() <= prompts | _METADATA


def read_output_value(r: Reading, value: Json, where: str) -> None:
    """An answer as text, message, parts, choices, or the response around them; null is no answer."""
    inner = decoded(r, value, where)
    if isinstance(inner, dict) and inner.get("error") and inner.keys() <= {"error", "type"} | _METADATA:
        r.unread(inner, where)  # the call failed: no answer
    elif isinstance(inner, dict) and _is_envelope(inner):
        read_response(r, inner, where)
    elif isinstance(inner, dict) and (is_message(inner) or _is_answer(inner)):
        take_finish(r, inner)
        r.answer(read_message(r, _without(inner, _FINISH_KEYS), where, "assistant"), where)
    elif are_messages(inner):
        r.answer(read_messages(r, inner, where), where)
    elif inner is not None:
        r.output.append(Message("assistant", tuple(_shown(r, value, inner, where))))


def _is_envelope(value: dict[str, Json]) -> bool:
    """A response around an answer, and not structured output that happens to have a field `output`."""
    key = next((key for key in _ANSWER_KEYS if value.get(key) is not None), None)
    if key is None or "role" in value:
        return False
    inner = value[key]
    if key in ("choices", "generations", "candidates") and isinstance(inner, list):
        return True
    return are_messages(inner) or is_message(inner) or value.keys() <= {key, *_METADATA}


def _is_answer(value: dict[str, Json]) -> bool:
    """A message without a role; an object with more than a message has is structured output."""
    spoken = any(isinstance(value.get(key), str | list) for key in _SPOKEN_KEYS)
    return is_part(value) or (spoken and value.keys() <= {*_SPOKEN_KEYS, *_METADATA})


def _shown(r: Reading, value: Json, inner: Json, where: str) -> list[Text]:
    """Anything else as text: the source's own string, or JSON."""
    if isinstance(inner, list) and inner and all(is_part(part) or isinstance(part, str) for part in inner):
        return read_parts(r, inner, where)  # type: ignore[return-value]
    text = value if isinstance(value, str) and not isinstance(inner, str) else compact(without_bytes(r, inner, where))
    return [Text(text)] if text else []


def read_response(r: Reading, value: dict[str, Json], where: str, used: tuple[str, ...] = ()) -> None:
    """The first answer key that is there; finish reason and model; other keys are noted."""
    key = next((key for key in _ANSWER_KEYS if value.get(key) is not None), None)
    r.model = label(value.get("model")) or r.model
    if key in ("choices", "generations", "candidates"):
        read_choices(r, value[key], join(where, key))
    elif key:
        read_output_value(r, value[key], join(where, key))
    take_finish(r, value)
    r.unread(value, where, (*used, key or "", "model", *_FINISH_KEYS))


def read_choices(r: Reading, value: Json, where: str) -> None:
    """OpenAI's choices, LangChain's generations, Gemini's candidates: one output message each."""
    value = decoded(r, value, where)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value, where = value[0], f"{where}[0]"
    for path, choice in entries(value, where):
        if not isinstance(choice, dict):
            read_output_value(r, choice, path)
            continue
        take_finish(r, choice)
        key = next((key for key in ("message", "delta", "content") if isinstance(choice.get(key), dict)), None)
        if key and "role" not in choice:
            r.unread(choice, path, (key, "index", *_FINISH_KEYS, *(("text",) if _repeats(choice, key) else ())))
            r.answer(read_message(r, choice[key], join(path, key), "assistant"), path)
        else:
            r.answer(read_message(r, _without(choice, (*_FINISH_KEYS, "index")), path, "assistant"), path)


def _repeats(choice: dict[str, Json], key: str) -> bool:
    """LangChain gives a generation's text twice."""
    message = choice[key].get("kwargs", choice[key])
    return isinstance(message, dict) and message.get("content") == choice.get("text")


def take_finish(r: Reading, value: dict[str, Json]) -> None:
    if r.finish_reason is None:
        r.finish_reason = label(*(value.get(key) for key in _FINISH_KEYS))


def _without(value: dict[str, Json], keys: tuple[str, ...]) -> dict[str, Json]:
    return {key: inner for key, inner in value.items() if key not in keys}
