"""OpenAI's bodies -> `Conversation` and `Writing`. ValidationError names the caller's field."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.gateway.errors import ValidationError
from mainspring.gateway.generation.asking import Conversation, Writing
from mainspring.gateway.generation.defaults import unsaid
from mainspring.gateway.schemas_openai import (
    REFUSED,
    AssistantIn,
    ChatIn,
    CompletionIn,
    Content,
    MessageIn,
    NamedToolIn,
    SamplingIn,
    ToolCallIn,
    ToolIn,
)
from mainspring.text.span import Json, Message, Part, Reasoning, Role, Span, Text, ToolCall, ToolDefinition, ToolResult
from mainspring.wire import messages as m

TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
ANY_OBJECT = '{"type":"object"}'
GRAMMAR_CHARS = 128 << 10


def conversation_of(asked: ChatIn) -> Conversation:
    """The messages; the tools unless `tool_choice` is none."""
    _refuse(asked)
    messages = tuple(_message(each, f"messages[{at}]") for at, each in enumerate(asked.messages))
    choice = asked.tool_choice
    tools = () if choice == "none" else tuple(asked.tools or ())
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise ValidationError("two tools have one name", param="tools")
    if isinstance(choice, NamedToolIn):
        if choice.function.name not in names:
            raise ValidationError("no such tool among tools", param="tool_choice.function.name")
        force = f"named:{choice.function.name}"
    else:
        force = "required" if choice == "required" else ""
    if force and not tools:
        raise ValidationError("a call is wanted and there are no tools", param="tool_choice")
    grammar = _grammar(asked)
    if grammar and tools:
        raise ValidationError(
            "not together with tools: a reply that follows a schema can't call", param="response_format"
        )
    thinking, variables = _thinking(asked)
    if grammar and thinking:
        raise ValidationError("not together with thinking", param="response_format")
    return Conversation(
        span=Span(messages, (), tuple(_tool(each) for each in tools)),
        places=tuple(f"messages[{at}]" for at in range(len(messages))),
        schemas={tool.function.name: tool.function.parameters for tool in tools} or None,
        force=force, one_call=asked.parallel_tool_calls is False, thinking=False if grammar else thinking,
        variables=variables,
    )  # fmt: skip


def writing_of(asked: ChatIn | CompletionIn) -> Writing:
    chat = isinstance(asked, ChatIn)
    wanted = asked.max_tokens
    field = "max_tokens"
    if isinstance(asked, ChatIn):
        if asked.max_completion_tokens is not None:
            wanted, field = asked.max_completion_tokens, "max_completion_tokens"
        if asked.top_logprobs and not asked.logprobs:
            raise ValidationError("needs logprobs: true", param="top_logprobs")
        logprobs = (asked.top_logprobs or 0) if asked.logprobs else -1
        grammar = _grammar(asked)
    else:
        logprobs, grammar = -1 if asked.logprobs is None else asked.logprobs, ""
    least = asked.min_tokens or 0
    if wanted is not None and least > wanted:
        raise ValidationError(f"above {field}", param="min_tokens", limit=wanted, actual=least)
    stops = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    if asked.stream_options is not None and not asked.stream:
        raise ValidationError("needs stream: true", param="stream_options")
    if asked.priority not in (None, 0, ""):
        raise ValidationError("classes have names here: send the header x-slo-class", param="priority")
    return Writing(
        sampling=sampling_of(asked, grammar, logprobs), choices=asked.n or 1, max_tokens=wanted,
        max_tokens_field=field, min_tokens=least, stops=stops, stop_ids=tuple(asked.stop_token_ids or ()),
        ignore_eos=bool(asked.ignore_eos), special=asked.skip_special_tokens is False, grammar=grammar if chat else "",
        logprobs=logprobs, unsaid=unsaid(asked),
    )  # fmt: skip


def sampling_of(asked: SamplingIn, grammar: str, logprobs: int) -> m.Sampling:
    """With the API's defaults where nothing is said; without a seed one is drawn, so that a reply that is begun anew on
    another node is the same."""
    return m.Sampling(
        temperature=_or(asked.temperature, 1.0), top_p=_or(asked.top_p, 1.0), top_k=max(0, asked.top_k or 0),
        min_p=_or(asked.min_p, 0.0), frequency_penalty=_or(asked.frequency_penalty, 0.0),
        presence_penalty=_or(asked.presence_penalty, 0.0), repetition_penalty=_or(asked.repetition_penalty, 1.0),
        seed=drawn_seed() if asked.seed is None else asked.seed & ((1 << 64) - 1),
        logit_bias={int(token): bias for token, bias in (asked.logit_bias or {}).items()},
        min_tokens=asked.min_tokens or 0, ignore_eos=bool(asked.ignore_eos), top_logprobs=logprobs,
        drafter=asked.drafter or "", grammar_kind="json_schema" if grammar else "", grammar=grammar,
    )  # fmt: skip


def drawn_seed() -> int:
    return secrets.randbits(53)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _refuse(asked: ChatIn) -> None:
    for name, why in REFUSED.items():
        if getattr(asked, name):
            raise ValidationError(why, param=name)
    if asked.modalities and asked.modalities != ["text"]:
        raise ValidationError("text alone is written here", param="modalities")


def _grammar(asked: ChatIn) -> str:
    wanted = asked.response_format
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return ANY_OBJECT
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise ValidationError("the schema is missing", param="response_format.json_schema.schema")
    try:
        text = msgspec.json.encode(wanted.json_schema.schema).decode()
    except RecursionError:
        raise ValidationError("nested too deeply", param="response_format.json_schema.schema") from None
    if len(text) > GRAMMAR_CHARS:
        raise ValidationError(f"at most {GRAMMAR_CHARS:,} characters", param="response_format.json_schema.schema",
                              limit=GRAMMAR_CHARS, actual=len(text))  # fmt: skip
    return text


def _thinking(asked: ChatIn) -> tuple[bool | None, dict[str, Any]]:
    """(whether to reason, None as the template has it; what else the template is told)."""
    variables = dict(asked.chat_template_kwargs or {})
    thinking = variables.pop("enable_thinking", None)
    if thinking is not None and not isinstance(thinking, bool):
        raise ValidationError("true or false", param="chat_template_kwargs.enable_thinking")
    if asked.reasoning_effort:
        variables.setdefault("reasoning_effort", asked.reasoning_effort)
        if thinking is None:
            thinking = asked.reasoning_effort != "none"
    return thinking, variables


def _message(asked: MessageIn, where: str) -> Message:
    if isinstance(asked, ToolIn):
        result = ToolResult(text_of(asked.content, f"{where}.content"), asked.tool_call_id, asked.name)
        return Message("tool", (result,))
    content = "" if asked.content is None else text_of(asked.content, f"{where}.content")
    parts: list[Part] = [Text(content)] if content else []
    if isinstance(asked, AssistantIn):
        reasoning = asked.reasoning_content or asked.reasoning
        if not content and asked.refusal:
            parts = [Text(asked.refusal)]
        parts = ([Reasoning(reasoning)] if reasoning else []) + parts
        parts += [_call(call) for call in asked.tool_calls or ()]
        return Message("assistant", tuple(parts), asked.name)
    role: Role = "user" if type(asked).__name__ == "UserIn" else "system"
    return Message(role, tuple(parts), asked.name)


def text_of(content: Content, where: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for at, part in enumerate(content):
        if part.type not in TEXTS:
            raise ValidationError("this model reads text parts only", param=f"{where}[{at}].type")
        texts.append((part.refusal if part.type == "refusal" else part.text) or "")
    return "\n".join(texts)


def _call(asked: ToolCallIn) -> ToolCall:
    return ToolCall(asked.function.name, arguments_of(asked.function.arguments), asked.id)


def arguments_of(given: str | dict[str, Any]) -> Json:
    """An object where the text is one, else the text."""
    if isinstance(given, dict):
        return given
    try:
        value = json.loads(given) if given.strip() else {}
    except (ValueError, RecursionError):
        return given
    return value if isinstance(value, dict) else given


def _tool(asked: Any) -> ToolDefinition:
    function = asked.function
    return ToolDefinition(function.name, function.description, function.parameters)


def texts_of_prompt(prompt: str | Sequence[Any]) -> tuple[str | tuple[int, ...], ...]:
    """Of `/v1/completions`: a text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return (prompt,)
    if prompt and all(isinstance(each, int) and not isinstance(each, bool) for each in prompt):
        return (tuple(prompt),)
    found: list[str | tuple[int, ...]] = []
    for at, each in enumerate(prompt):
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, list) and each and all(isinstance(x, int) and not isinstance(x, bool) for x in each):
            found.append(tuple(each))
        else:
            raise ValidationError("a text or a list of token ids", param=f"prompt[{at}]")
    if not found:
        raise ValidationError("at least one is needed", param="prompt")
    return tuple(found)
