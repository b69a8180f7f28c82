"""Bodies of `/v1/chat/completions` and `/v1/completions`. Unknown fields are ignored; null is the same as absent.

What would silently change what a request means is not ignored: `REFUSED` names such fields.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mainspring.gateway.schemas import ModelName, TokenId

Text = str
ToolName = Annotated[str, Meta(pattern=r'^[^\s<>"]{1,128}\Z')]
TokenText = Annotated[str, Meta(pattern=r"^[0-9]{1,10}\Z")]
Temperature = Annotated[float, Meta(ge=0.0, le=100.0)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
Tokens = Annotated[int, Meta(ge=1, le=1 << 24)]
Stop = Annotated[str, Meta(min_length=1, max_length=1024)]
Choices = Annotated[int, Meta(ge=1, le=128)]
Drafter = Literal["", "mtp", "ngram", "none"]


class PartIn(Struct, frozen=True):
    """`text` parts alone are read here."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content = str | list[PartIn]


class FunctionCallIn(Struct, frozen=True):
    """`arguments` is JSON text, or already an object."""

    name: ToolName
    arguments: str | dict[str, Any] = ""


class ToolCallIn(Struct, frozen=True):
    function: FunctionCallIn
    id: str | None = None
    type: Literal["function"] = "function"


class SystemIn(Struct, frozen=True, tag_field="role", tag="system"):
    content: Content
    name: str | None = None


class DeveloperIn(Struct, frozen=True, tag_field="role", tag="developer"):
    """The same as system."""

    content: Content
    name: str | None = None


class UserIn(Struct, frozen=True, tag_field="role", tag="user"):
    content: Content
    name: str | None = None


class AssistantIn(Struct, frozen=True, tag_field="role", tag="assistant"):
    content: Content | None = None
    tool_calls: list[ToolCallIn] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    name: str | None = None


class ToolIn(Struct, frozen=True, tag_field="role", tag="tool"):
    content: Content
    tool_call_id: str | None = None
    name: str | None = None


MessageIn = SystemIn | DeveloperIn | UserIn | AssistantIn | ToolIn


class FunctionIn(Struct, frozen=True):
    """`parameters` is a JSON schema."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinitionIn(Struct, frozen=True):
    function: FunctionIn
    type: Literal["function"] = "function"


class NamedFunctionIn(Struct, frozen=True):
    name: ToolName


class NamedToolIn(Struct, frozen=True):
    function: NamedFunctionIn
    type: Literal["function"] = "function"


class SchemaIn(Struct, frozen=True):
    name: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormatIn(Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaIn | None = None


class StreamOptionsIn(Struct, frozen=True):
    include_usage: bool = False


class SamplingIn(Struct, frozen=True, kw_only=True):
    """What both routes take. `top_k` 0 or -1: all tokens; `seed` none: one is drawn."""

    model: ModelName = ""
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] | None = None
    logit_bias: Annotated[dict[TokenText, Bias], Meta(max_length=1024)] | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    n: Choices | None = None
    max_tokens: Tokens | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=1 << 24)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=256)] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptionsIn | None = None
    drafter: Drafter | None = None
    priority: int | str | None = None


class ChatIn(SamplingIn, frozen=True, kw_only=True):
    messages: Annotated[list[MessageIn], Meta(min_length=1, max_length=65_536)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[ToolDefinitionIn], Meta(max_length=1024)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedToolIn | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormatIn | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Annotated[str, Meta(pattern=r"^[a-z]{1,16}\Z")] | None = None
    functions: Any = None
    function_call: Any = None
    audio: Any = None
    modalities: Any = None
    web_search_options: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None


class CompletionIn(SamplingIn, frozen=True, kw_only=True):
    """`prompt`: a text, token ids, or a list of either."""

    prompt: str | list[Any]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


REFUSED = {
    "functions": "send tools instead",
    "function_call": "send tool_choice instead",
    "audio": "text alone is written here",
    "web_search_options": "nothing is searched here",
    "guided_json": "send response_format instead",
    "guided_regex": "send response_format instead",
    "guided_choice": "send response_format instead",
    "guided_grammar": "send response_format instead",
    "structured_outputs": "send response_format instead",
}


class TokenizeIn(Struct, frozen=True, kw_only=True):
    """`prompt` or `messages`."""

    model: ModelName = ""
    prompt: str | None = None
    messages: Annotated[list[MessageIn], Meta(min_length=1, max_length=65_536)] | None = None
    tools: Annotated[list[ToolDefinitionIn], Meta(max_length=1024)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeIn(Struct, frozen=True, kw_only=True):
    tokens: list[TokenId]
    model: ModelName = ""
