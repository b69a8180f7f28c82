"""One LLM call as every reader delivers it and every template renders it.

Plain frozen records without behaviour beyond small conveniences. Text is kept exactly as the source had it, apart from
lone surrogates (not encodable in UTF-8), which readers replace by U+FFFD and report.
"""

from typing import Any, Literal, get_args

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
Json = Any  # what `msgspec.json.decode` returns: dict, list, str, int, float, bool, None


class Text(msgspec.Struct, frozen=True, tag="text", gc=False):
    text: str


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", gc=False):
    """The model's own thinking, where the source carries it."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """`arguments` is a JSON object where the source's arguments parse as one, else the string the model produced."""

    name: str
    arguments: Json = None
    id: str | None = None


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """`content` is text where the source has text, else any JSON value."""

    content: Json
    id: str | None = None
    name: str | None = None


class Media(msgspec.Struct, frozen=True, tag="media"):
    """An image, file, sound, anything but text: rendered as a marked placeholder, its bytes never kept."""

    modality: str
    mime_type: str | None = None
    reference: str | None = None  # a URI or file id (never a data: URI's payload)


Part = Text | Reasoning | ToolCall | ToolResult | Media


class Message(msgspec.Struct, frozen=True):
    """Parts in order of appearance; role `tool` carries ToolResult, role `assistant` all but ToolResult."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None

    @property
    def text(self) -> str:
        """All Text parts, a line break between two."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


class ToolDefinition(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: Json = None  # a JSON schema


class Span(msgspec.Struct, frozen=True):
    """`output` holds the choices the model returned: none (the call failed or was cut), one, or several.

    `finish_reason` and `model` describe the first choice and the answering model, where the source tells.
    """

    input: tuple[Message, ...]
    output: tuple[Message, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    model: str | None = None
    finish_reason: str | None = None


class Note(msgspec.Struct, frozen=True):
    """One thing that the source carries and the rendered view does not show as it stood.

    kind: `not_rendered` carried, not shown (a second choice, token counts, unknown parts); `placeholder` shown as a
    marker (image, file); `replaced` altered characters (lone surrogates); `cut` shortened to fit the limit;
    `moved` shown elsewhere than the source had it (reasoning a template would drop).
    """

    kind: Literal["not_rendered", "placeholder", "replaced", "cut", "moved"]
    where: str  # path in the source, or in the span for what rendering did
    detail: str  # never the conversation's text


class ReadSpan(msgspec.Struct, frozen=True):
    """A span, the name of the format it came in, and what was left out on the way."""

    span: Span
    format: str
    notes: tuple[Note, ...] = ()
