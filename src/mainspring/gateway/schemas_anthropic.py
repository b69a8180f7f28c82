"""Bodies of `/v1/messages` and `/v1/messages/count_tokens`. Unknown fields are ignored; null is the same as absent."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mainspring.gateway.schemas import ModelName
from mainspring.gateway.schemas_openai import Drafter, Share, Stop, Tokens, ToolName


class BlockIn(Struct, frozen=True):
    """Of any type: which of the fields count depends on it. Images and documents are refused."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | list[BlockIn] | None" = None
    is_error: bool | None = None


Blocks = str | list[BlockIn]


class TurnIn(Struct, frozen=True):
    """A last turn of the assistant's is the beginning of the reply."""

    role: Literal["user", "assistant"]
    content: Blocks


class AnthropicToolIn(Struct, frozen=True):
    name: ToolName
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None


class AnthropicChoiceIn(Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingIn(Struct, frozen=True):
    """`budget_tokens` is not kept to: `max_tokens` bounds reasoning and text together."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class CountIn(Struct, frozen=True, kw_only=True):
    messages: Annotated[list[TurnIn], Meta(min_length=1, max_length=65_536)]
    model: ModelName = ""
    system: Blocks | None = None
    tools: Annotated[list[AnthropicToolIn], Meta(max_length=1024)] | None = None
    tool_choice: AnthropicChoiceIn | None = None
    thinking: ThinkingIn | None = None


class MessagesIn(CountIn, frozen=True, kw_only=True):
    max_tokens: Tokens
    temperature: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=0, le=1 << 31)] | None = None
    stop_sequences: Annotated[list[Stop], Meta(max_length=16)] | None = None
    stream: bool | None = None
    drafter: Drafter | None = None
