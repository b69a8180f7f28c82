"""What a surface asks for, in one shape: the conversation, how to write, where to end. No HTTP, no tokens yet."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from mainspring.gateway.calls import Terms
from mainspring.text.span import Span
from mainspring.wire import messages as m

Choice = Literal["auto", "none", "required"]


class Conversation(Struct, frozen=True, kw_only=True):
    """`places[i]` is the caller's name for `span.input[i]`, for errors. `schemas` of the tools' parameters by name;
    `force`: "required" any call, "named:NAME" that one, "" neither. `begun`: text that the reply begins with.
    `thinking` None leaves it to the template."""

    span: Span
    places: tuple[str, ...] = ()
    schemas: Mapping[str, Any] | None = None
    force: str = ""
    one_call: bool = False
    thinking: bool | None = None
    variables: Mapping[str, Any] = {}
    begun: str = ""


class Writing(Struct, frozen=True, kw_only=True):
    """How to write. `max_tokens` None: as many as fit. `sampling` is the first choice's; others get seeds of their own.
    `unsaid`: its fields that the caller left to the checkpoint; they hold the API's defaults. `grammar` is a JSON
    schema as text, "" for none; `logprobs` -1 none, else how many beside the chosen token's."""

    sampling: m.Sampling
    choices: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stops: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    special: bool = False
    grammar: str = ""
    logprobs: int = -1
    max_tokens_field: str = "max_tokens"
    unsaid: frozenset[str] = frozenset()


class GenerateCall(Struct, frozen=True, kw_only=True):
    """`prompts`: one conversation, or texts and token ids that are gone on with as they are. `size`: bytes it came in,
    0 where nobody counted: small ones are rendered on the loop."""

    model: str
    prompts: tuple[Conversation | str | tuple[int, ...], ...]
    writing: Writing
    terms: Terms
    field: str = "messages"
    size: int = 0
