"""Anthropic's bodies -> `Conversation` and `Writing`. ValidationError names the caller's field.

A user's turn with tool results becomes messages of their own, in order, as chat templates have them. A last turn of the
assistant's is the beginning of the reply.
"""

from collections.abc import Sequence

from mainspring.gateway.errors import ValidationError
from mainspring.gateway.generation.asking import Conversation, Writing
from mainspring.gateway.generation.defaults import unsaid
from mainspring.gateway.generation.openai import drawn_seed
from mainspring.gateway.schemas_anthropic import BlockIn, Blocks, CountIn, MessagesIn, TurnIn
from mainspring.text.span import Message, Part, Reasoning, Span, Text, ToolCall, ToolDefinition, ToolResult
from mainspring.wire import messages as m


def conversation_of(asked: CountIn) -> Conversation:
    turns = list(asked.messages)
    begun = ""
    if turns[-1].role == "assistant":
        begun = _plain(turns[-1].content, f"messages[{len(turns) - 1}].content").rstrip()
        turns.pop()
    messages: list[Message] = []
    places: list[str] = []
    if asked.system:
        messages.append(Message("system", (Text(_plain(asked.system, "system")),)))
        places.append("system")
    for at, turn in enumerate(turns):
        found = _turn(turn, f"messages[{at}].content")
        messages += found
        places += [f"messages[{at}]"] * len(found)
    choice = asked.tool_choice
    tools = () if choice is not None and choice.type == "none" else tuple(asked.tools or ())
    for at, tool in enumerate(tools):
        if tool.type not in (None, "custom"):
            raise ValidationError("tools of the service itself are not here", param=f"tools[{at}].type")
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise ValidationError("two tools have one name", param="tools")
    force = ""
    if choice is not None and choice.type in ("any", "tool"):
        if not tools or (choice.type == "tool" and choice.name not in names):
            raise ValidationError("no such tool among tools", param="tool_choice")
        if begun:
            raise ValidationError("the reply has begun with text already", param="tool_choice")
        force = "required" if choice.type == "any" else f"named:{choice.name}"
    return Conversation(
        span=Span(tuple(messages), (), tuple(ToolDefinition(t.name, t.description, t.input_schema) for t in tools)),
        places=tuple(places), schemas={tool.name: tool.input_schema for tool in tools} or None, force=force,
        one_call=bool(choice is not None and choice.disable_parallel_tool_use), begun=begun,
        thinking=asked.thinking is not None and asked.thinking.type != "disabled",
    )  # fmt: skip


def writing_of(asked: MessagesIn) -> Writing:
    sampling = m.Sampling(
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p, top_k=asked.top_k or 0, seed=drawn_seed(),
        drafter=asked.drafter or "",
    )  # fmt: skip
    return Writing(
        sampling=sampling, max_tokens=asked.max_tokens, stops=tuple(asked.stop_sequences or ()), unsaid=unsaid(asked)
    )


def _turn(turn: TurnIn, where: str) -> list[Message]:
    if isinstance(turn.content, str):
        return [Message(turn.role, (Text(turn.content),))]
    if turn.role == "assistant":
        parts = [part for at, block in enumerate(turn.content) for part in _said(block, f"{where}[{at}]")]
        return [Message("assistant", tuple(parts))]
    messages: list[Message] = []
    texts: list[Part] = []
    for at, block in enumerate(turn.content):
        here = f"{where}[{at}]"
        if block.type == "tool_result":
            if texts:
                messages.append(Message("user", tuple(texts)))
                texts = []
            content = "" if block.content is None else _plain(block.content, f"{here}.content")
            messages.append(Message("tool", (ToolResult(f"Error: {content}" if block.is_error else content,
                                                        block.tool_use_id),)))  # fmt: skip
        else:
            texts.append(Text(_text(block, here)))
    if texts or not messages:
        messages.append(Message("user", tuple(texts)))
    return messages


def _said(block: BlockIn, where: str) -> Sequence[Part]:
    """Redacted thinking is for its service alone."""
    if block.type == "thinking":
        return [Reasoning(block.thinking or "")]
    if block.type == "redacted_thinking":
        return []
    if block.type == "tool_use":
        if not block.name:
            raise ValidationError("a call needs a name", param=f"{where}.name")
        return [ToolCall(block.name, block.input or {}, block.id)]
    return [Text(_text(block, where))]


def _plain(content: Blocks, where: str) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_text(block, f"{where}[{at}]") for at, block in enumerate(content))


def _text(block: BlockIn, where: str) -> str:
    if block.type != "text":
        raise ValidationError("this model reads text blocks only here", param=f"{where}.type")
    return block.text or ""
