"""Span -> messages in the convention of chat templates, every string of the user's a marked leaf.

A `Plan` says what is shown otherwise than the source has it: what the template would drop goes into the content as
text, and templates that refuse a conversation get it in a shape that they accept (`level`). Paths (`input[3].parts[0]`)
name leaves, so that a plan survives from one rendering to the next.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mainspring.text.guard import Guard, LeafKind
from mainspring.text.span import Json, Media, Message, Note, Reasoning, Span, Text, ToolCall, ToolDefinition, ToolResult
from mainspring.text.template import Number

LEVELS = 4  # as it is; later system messages as user's; plain turns in alternation; the same without a system turn

# What a template may look up or compare in a JSON schema: never marked, being no text of anyone's.
_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "description", "enum", "items", "title", "default", "format", "const"),
        *("anyOf", "oneOf", "allOf", "not", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
        *("uniqueItems", "pattern", "additionalProperties", "nullable", "examples", "$ref", "$defs", "definitions"),
        *("strict", "parameters", "name"),
    }
)
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null", "any", "function"})


@dataclass(frozen=True)
class Plan:
    """`reasoning`, `calls`: messages whose reasoning or calls go into the content; `short`: leaves that lost their
    middle, by path; `dropped`: input messages left out."""

    level: int = 0
    reasoning: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    tools: bool = False
    short: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()


class Turn(msgspec.Struct):
    """One message on its way to the template; strings are marked already."""

    role: str
    where: str
    contents: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    fields: dict[str, str] = {}

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.role, "content": "\n".join(self.contents), **self.fields}
        if self.reasoning:
            message["reasoning_content"] = "\n".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class Builder:
    """Turns of one span under one plan. `notes` collects what is shown otherwise than it stood."""

    def __init__(self, guard: Guard, plan: Plan) -> None:
        self._guard = guard
        self._plan = plan
        self.notes: list[Note] = []

    def leaf(self, text: str, where: str, kind: LeafKind = "text", *, cuttable: bool = True) -> str:
        return self._guard.leaf(self._plan.short.get(where, text), where, kind, cuttable=cuttable)

    def plain_messages(self, span: Span, choice: int) -> list[dict[str, Any]] | None:
        """What comes of `turns`, `arrange` and `Turn.message` where every message is one text, as nearly always, in a
        third of their time; None where it is not so, or the plan wants something."""
        plan = self._plan
        if plan.level or plan.dropped or plan.short or span.tools:
            return None
        said = span.output[choice : choice + 1]
        texts: list[str] = []
        for message in (*span.input, *said):
            parts = message.parts
            if len(parts) != 1 or not isinstance(part := parts[0], Text) or message.name is not None:
                return None
            texts.append(part.text)
        places = [f"input[{index}].parts[0]" for index in range(len(span.input))]
        places += [f"output[{choice}].parts[0]" for _ in said]
        mark = self._guard.marked
        return [
            {"role": message.role, "content": mark(text, where, cuttable=True)}
            for message, text, where in zip((*span.input, *said), texts, places, strict=True)
        ]

    def turns(self, span: Span, choice: int) -> list[Turn]:
        turns: list[Turn] = []
        left_out = 0
        for index, message in enumerate(span.input):
            if index in self._plan.dropped:
                left_out += 1
                continue
            if left_out:
                turns.append(Turn("user", f"input[{index}]", [f"[… {left_out:,} messages left out …]"]))
                left_out = 0
            turns += self._message(message, f"input[{index}]")
        for message in span.output[choice : choice + 1]:
            turns += self._message(message, f"output[{choice}]")
        return turns

    def tools(self, span: Span) -> list[dict[str, Any]]:
        return [self._tool(tool, f"tools[{index}]") for index, tool in enumerate(span.tools)]

    def with_tools_text(self, turns: list[Turn], span: Span) -> list[Turn]:
        """The tools as text of the system turn, for templates that have no place for them."""
        functions = [_function(tool) for tool in span.tools]
        text = "\n".join(["Tools:", *(json.dumps(function, ensure_ascii=False) for function in functions)])
        self.notes.append(Note("moved", "tools", "the template has no place for tools: shown as system text"))
        content = self.leaf(text, "tools")
        if turns and turns[0].role == "system":
            first = turns[0]
            return [Turn("system", first.where, [*first.contents, "", content], fields=first.fields), *turns[1:]]
        return [Turn("system", "tools", [content]), *turns]

    def _message(self, message: Message, where: str) -> Iterable[Turn]:
        parts = message.parts
        if len(parts) == 1 and isinstance(part := parts[0], Text) and message.name is None:  # nearly every message
            return (Turn(message.role, where, [self.leaf(part.text, f"{where}.parts[0]")]),)
        return self._with_parts(message, where)

    def _with_parts(self, message: Message, where: str) -> Iterator[Turn]:
        turn = Turn(message.role, where)
        if message.name is not None:
            turn.fields["name"] = self.leaf(message.name, f"{where}.name", "label", cuttable=False)
        for index, part in enumerate(message.parts):
            at = f"{where}.parts[{index}]"
            if isinstance(part, ToolResult):
                if turn.contents:
                    yield turn
                    turn = Turn(message.role, where)
                yield self._result(part, at)
            else:
                self._add(turn, part, at)
        if turn.contents or turn.reasoning or turn.calls or not any(isinstance(p, ToolResult) for p in message.parts):
            yield turn

    def _add(self, turn: Turn, part: Text | Reasoning | ToolCall | Media, at: str) -> None:
        if isinstance(part, Reasoning):
            self._add_reasoning(turn, part, at)
        elif isinstance(part, ToolCall):
            self._add_call(turn, part, at)
        elif isinstance(part, Media):
            shown = f"[{part.modality}: {part.mime_type or part.reference or 'unknown type'}]"
            turn.contents.append(self.leaf(shown, at, cuttable=False))
            self.notes.append(Note("placeholder", at, f"{len(shown)} characters stand for the media"))
        else:
            if turn.calls:
                self.notes.append(Note("moved", at, "text after a tool call is shown before it"))
            turn.contents.append(self.leaf(part.text, at))

    def _add_reasoning(self, turn: Turn, part: Reasoning, at: str) -> None:
        if turn.where not in self._plan.reasoning:
            turn.reasoning.append(self.leaf(part.text, at, "reasoning"))
            return
        self.notes.append(Note("moved", at, "the template drops this reasoning: shown as text of the message"))
        turn.contents.append(self.leaf(f"<think>\n{part.text}\n</think>\n", at))

    def _add_call(self, turn: Turn, call: ToolCall, at: str) -> None:
        if turn.where in self._plan.calls or self._plan.level >= 2:
            self.notes.append(Note("moved", at, "the template drops this tool call: shown as text of the message"))
            body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
            turn.contents.append(self.leaf(f"<tool_call>\n{body}\n</tool_call>", at))
            return
        arguments = {} if call.arguments is None else call.arguments
        if not isinstance(arguments, dict):
            self.notes.append(Note("moved", f"{at}.arguments", "no JSON object: shown as a parameter `arguments`"))
            arguments = {"arguments": arguments}
        function = {
            "name": self.leaf(call.name, f"{at}.name", "call", cuttable=False),
            "arguments": self._value(arguments, f"{at}.arguments", "call"),
        }
        entry: dict[str, Any] = {"type": "function", "function": function}
        if call.id is not None:
            entry["id"] = self.leaf(call.id, f"{at}.id", "label", cuttable=False)
        turn.calls.append(entry)

    def _result(self, part: ToolResult, at: str) -> Turn:
        content = part.content if isinstance(part.content, str) else json.dumps(part.content, ensure_ascii=False)
        turn = Turn("tool", at, [self.leaf(content, at)])
        if part.id is not None:
            turn.fields["tool_call_id"] = self.leaf(part.id, f"{at}.id", "label", cuttable=False)
        if part.name is not None:
            turn.fields["name"] = self.leaf(part.name, f"{at}.name", "label", cuttable=False)
        return turn

    def _tool(self, tool: ToolDefinition, where: str) -> dict[str, Any]:
        function: dict[str, Any] = {"name": self.leaf(tool.name, f"{where}.name", "tool", cuttable=False)}
        if tool.description is not None:
            function["description"] = self.leaf(tool.description, f"{where}.description")
        if tool.parameters is not None:
            function["parameters"] = self._value(tool.parameters, f"{where}.parameters", "text", schema=True)
        return {"type": "function", "function": function}

    def _value(self, value: Json, where: str, kind: LeafKind, *, schema: bool = False) -> Any:
        """JSON with its strings and keys marked, but for the keywords and type names of a schema. Paths number keys
        instead of naming them: notes don't quote."""
        if isinstance(value, str):
            return value if schema and value in _TYPES else self.leaf(value, where, kind)
        if isinstance(value, dict):
            return {
                (key if schema and key in _KEYWORDS else self.leaf(key, f"{where}.*", kind, cuttable=False)): (
                    self._value(item, f"{where}[{i}]", kind, schema=schema)
                )
                for i, (key, item) in enumerate(value.items())
            }
        if isinstance(value, list | tuple):
            return [self._value(item, f"{where}[{i}]", kind, schema=schema) for i, item in enumerate(value)]
        if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 1 << 63):
            return Number(value)
        return value


def _function(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    return function if tool.parameters is None else {**function, "parameters": tool.parameters}


def arrange(turns: list[Turn], level: int, notes: list[Note]) -> list[Turn]:
    """The turns in the shape that `level` promises the template."""
    if level == 0:
        return turns
    leading = next((index for index, turn in enumerate(turns) if turn.role != "system"), len(turns))
    first = turns[:leading] if level == 1 else _merged(turns[:leading])
    rest = [_as_user(turn, notes) if turn.role == "system" else turn for turn in turns[leading:]]
    if level == 1:
        return first + rest
    rest = _merged([_as_user(turn, notes) if turn.role == "tool" else turn for turn in rest])
    if rest and rest[0].role == "assistant":
        rest.insert(0, Turn("user", rest[0].where, ["[start of the conversation]"]))
    if not rest or rest[-1].role == "user":
        rest.append(Turn("assistant", rest[-1].where if rest else "output", ["[no answer]"]))
    if level == 2 or not first:
        return first + rest
    rest = rest if rest[0].role == "user" else [Turn("user", first[0].where), *rest]
    return _merged([_as_user(first[0], notes), *rest])


def _as_user(turn: Turn, notes: list[Note]) -> Turn:
    notes.append(Note("moved", turn.where, f"the template refuses this {turn.role} message: shown as a user's"))
    name = "system message" if turn.role == "system" else "tool result"
    return Turn("user", turn.where, [f"[{name}]", *turn.contents])


def _merged(turns: list[Turn]) -> list[Turn]:
    """Neighbours of one role as one turn."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            last = merged[-1]
            contents = [*last.contents, "", *turn.contents] if last.contents else turn.contents
            merged[-1] = Turn(last.role, last.where, contents, last.reasoning + turn.reasoning)
        else:
            merged.append(turn)
    return merged
