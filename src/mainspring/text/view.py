"""Span -> View: the tokens that every question about the span shares.

Rendered with the model's own chat template, all of the user's text marked (text/guard.py). Nothing is lost silently:
what the template drops is moved into text where it matters (reasoning, tool calls, tools) and noted where it does not
(names, ids). Templates that refuse a conversation get it in plainer shapes, each noted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from mainspring.errors import SpanError, TemplateError
from mainspring.text.chat import Chat, Segments, split_at, text_of
from mainspring.text.fast import EncodeMany, Ids
from mainspring.text.guard import Guard, Leaf, Piece
from mainspring.text.messages import LEVELS, Builder, Plan, arrange
from mainspring.text.span import ROLES, Note, Span
from mainspring.text.template import RefusalError

_ROLES = frozenset(ROLES)
SEPARATE_NOTES = 4  # more leaves than this of one kind share a note


@dataclass(frozen=True, eq=False)
class View:
    """`tokens` [n] uint32; `pieces` the rendered text by origin; `notes` what is not shown as the source had it."""

    tokens: Ids
    pieces: tuple[Piece, ...]
    notes: tuple[Note, ...] = ()

    @property
    def text(self) -> str:
        """The rendered text, control tokens by their names."""
        return text_of(self.pieces)


@dataclass(frozen=True)
class Rendered:
    """One rendering of a span under a plan: pieces before and after the question's place."""

    plan: Plan
    pieces: list[Piece]
    suffix: list[Piece]
    guard: Guard
    notes: list[Note]

    @cached_property
    def hidden(self) -> list[Leaf]:
        """What the template does not show of the span."""
        shown = self.guard.shown(self.pieces)
        return [
            leaf for number, leaf in enumerate(self.guard.leaves) if number not in shown and leaf.where != "question"
        ]


def render_prompt(chat: Chat, span: Span, *, thinking: bool = False, limit: int | None = None) -> View:
    """The input of a span with the generation prompt after it; the template has the last word on its shape."""
    check_roles(span)
    with shallow():
        guard, size = chat.guard(span)
        builder = Builder(guard, Plan())
        messages = [turn.message() for turn in builder.turns(msgspec.structs.replace(span, output=()), 0)]
        pieces = chat.render(messages, guard, tools=builder.tools(span), chars=size, thinking=thinking)
    return View(chat.encode(pieces, limit), tuple(pieces), tuple(builder.notes))


def finish(
    chat: Chat, rendered: Rendered, span: Span, suffix: str, choice: int, limit: int | None, cuts: Sequence[Note] = (),
    encode: EncodeMany | None = None, segments: Segments | None = None,
) -> View:  # fmt: skip
    """The view of a settled rendering. TooLargeError beyond `limit` tokens; `suffix` is that of every branch; `encode`
    as for `Chat.encode`, `segments` those of the pieces where the caller has them."""
    if text_of(rendered.suffix) != suffix:
        raise TemplateError(f"{chat.template.name} ends a user turn differently from one conversation to the next")
    segments = chat.segments(rendered.pieces) if segments is None else segments
    tokens = chat.encode_segments(segments, limit, encode)
    return View(tokens, tuple(rendered.pieces), (*notes_of(rendered, span, choice), *cuts))


def settle(chat: Chat, span: Span, choice: int, plan: Plan | None = None) -> Rendered:
    """The rendering under the first plan that the template accepts and in which it drops nothing that matters."""
    check(span, choice)
    rendered = _accepted(chat, span, choice, plan or Plan())
    for _ in range(3):
        better = _moved(rendered)
        if better == rendered.plan:
            break
        rendered = _accepted(chat, span, choice, better)
    return rendered


def check(span: Span, choice: int) -> None:
    if not span.input and not span.output:
        raise SpanError("the span holds no message", param="span")
    check_roles(span)
    if choice < 0 or choice >= max(1, len(span.output)):
        raise SpanError(f"the span has {len(span.output)} choices, number {choice} is not among them", param="choice")


def check_roles(span: Span) -> None:
    """Roles are the one text that templates get unmarked, and records made in Python are checked by nobody else."""
    if _ROLES.issuperset([str(message.role) for messages in (span.input, span.output) for message in messages]):
        return
    for side, messages in (("input", span.input), ("output", span.output)):
        for index, message in enumerate(messages):
            if str(message.role) not in ROLES:
                raise SpanError(f"unknown role, known are {', '.join(ROLES)}", param=f"{side}[{index}].role")


@contextmanager
def shallow() -> Iterator[None]:
    """JSON deeper than Python's stack is the span's fault."""
    try:
        yield
    except RecursionError:
        raise SpanError("JSON nested too deeply to be rendered", param="span") from None


def render(chat: Chat, span: Span, choice: int, plan: Plan) -> Rendered:
    """One rendering, as the plan says. TemplateError, RefusalError."""
    with shallow():
        guard, size = chat.guard(span)
        builder = Builder(guard, plan)
        messages, tools = builder.plain_messages(span, choice), list[dict[str, Any]]()
        if messages is None:
            turns = builder.turns(span, choice)
            if span.tools and plan.tools:
                turns = builder.with_tools_text(turns, span)
            tools = [] if plan.tools else builder.tools(span)
            messages = [turn.message() for turn in arrange(turns, plan.level, builder.notes)]
        question, number = chat.ask(guard)
        pieces = chat.render([*messages, question], guard, tools=tools, chars=size)
    before, after = split_at(pieces, number, chat.template.name)
    return Rendered(plan, before, after, guard, builder.notes)


def _accepted(chat: Chat, span: Span, choice: int, plan: Plan) -> Rendered:
    failure: TemplateError | None = None
    for level in range(plan.level, LEVELS):
        try:
            return render(chat, span, choice, replace(plan, level=level))
        except TemplateError as error:
            failure = failure or error
    assert failure is not None  # noqa: S101 - the range is never empty
    if not isinstance(failure, RefusalError):
        raise failure
    raise SpanError(failure.message, param=_refused_from(chat, span, plan)) from failure


def _refused_from(chat: Chat, span: Span, plan: Plan) -> str:
    """The first message with which the template refuses, by bisection over how many messages it is given."""
    bare = replace(plan, level=LEVELS - 1)
    accepted, refused = 0, len(span.input)
    start = msgspec.structs.replace(span, output=())
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        try:
            render(chat, start, 0, replace(bare, dropped=frozenset(range(middle, len(span.input)))))
            accepted = middle
        except TemplateError:
            refused = middle
    return f"input[{max(0, refused - 1)}]"


def _moved(rendered: Rendered) -> Plan:
    """The plan that shows as text what the template did not show."""
    plan, hidden = rendered.plan, rendered.hidden
    if not hidden:
        return plan
    return replace(
        plan,
        reasoning=plan.reasoning | {_message_of(leaf.where) for leaf in hidden if leaf.kind == "reasoning"},
        calls=plan.calls | {_message_of(leaf.where) for leaf in hidden if leaf.kind == "call"},
        tools=plan.tools or any(leaf.kind == "tool" for leaf in hidden),
    )


def _message_of(where: str) -> str:
    return where.partition(".")[0]


def notes_of(rendered: Rendered, span: Span, choice: int) -> list[Note]:
    guard = rendered.guard
    hidden = [leaf.where for leaf in rendered.hidden]
    notes = rendered.notes + _grouped(hidden, "not_rendered", "the chat template does not show it")
    replaced = [guard.leaves[number].where for number in sorted(guard.replaced)]
    notes += _grouped(replaced, "replaced", "characters that can't be rendered, now U+FFFD")
    others = [f"output[{index}]" for index in range(len(span.output)) if index != choice]
    return notes + _grouped(others, "not_rendered", "another choice")


def _grouped(paths: Iterable[str], kind: str, detail: str) -> list[Note]:
    """A note a path, or one for all paths that differ in their numbers only."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(re.sub(r"\[\d+\]", "[*]", path), []).append(path)
    notes = []
    for pattern, members in groups.items():
        if len(members) <= SEPARATE_NOTES:
            notes += [msgspec.convert({"kind": kind, "where": path, "detail": detail}, Note) for path in members]
        else:
            text = f"{detail} ({len(members):,} places)"
            notes.append(msgspec.convert({"kind": kind, "where": pattern, "detail": text}, Note))
    return notes
