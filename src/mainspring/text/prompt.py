"""Messages -> the tokens that a reply is written behind, and what is known of the reply's beginning.

The template has the last word on the shape; what it would not show of messages, calls and tools is refused instead of
lost. All of the users' text is marked on its way (text/guard.py), and what a caller puts at the beginning of the reply
is text too: neither can become control.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from mainspring.errors import InputError, SpanError
from mainspring.text.chat import Chat, text_of
from mainspring.text.fast import Ids
from mainspring.text.guard import Guard, Piece
from mainspring.text.messages import Builder, Plan
from mainspring.text.reply.tags import THINK, THINK_END
from mainspring.text.span import Note, Span
from mainspring.text.template import RefusalError
from mainspring.text.view import check_roles, shallow

OWN = frozenset({"messages", "tools", "documents", "add_generation_prompt", "enable_thinking"})
WORD = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
MOST_VARIABLES = 32
EVERY_TOKENS = 1024
MOST_TURNS, MOST_STEPS = 64, 256
"""Keys of beginnings, the last ones: of turns, and of each 1,024 tokens."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """`tokens` [n] uint32. `inside`: they end within reasoning. `given`: the text of the reply that the prompt holds
    already. `turns`: lengths at which a turn has ended."""

    tokens: Ids
    pieces: tuple[Piece, ...]
    turns: tuple[int, ...]
    inside: bool = False
    given: str = ""
    notes: tuple[Note, ...] = ()


def write_prompt(
    chat: Chat, span: Span, *, ends: Sequence[int] = (), thinking: bool | None = None,
    variables: Mapping[str, Any] | None = None, given: Sequence[Piece] = (), closed: bool = False,
    limit: int | None = None,
) -> Prompt:  # fmt: skip
    """The input of `span` with the generation prompt after it and then `given`, the beginning of the reply. `closed`:
    where the template leaves reasoning open, it is ended. `thinking` None leaves it to the template; `variables` are
    more of what it may look up.

    SpanError where the template refuses or does not show something; InputError naming a variable; TooLargeError."""
    check_roles(span)
    check_variables(variables or {})
    with shallow():
        guard, size = chat.guard(span)
        builder = Builder(guard, Plan())
        messages = [turn.message() for turn in builder.turns(msgspec.structs.replace(span, output=()), 0)]
        try:
            pieces = chat.render(
                messages, guard, tools=builder.tools(span), chars=size, thinking=thinking, variables=variables or {}
            )
        except RefusalError as error:
            raise SpanError(error.message, param="messages") from None
    _check_shown(guard, pieces)
    inside = opens_reasoning(pieces)
    if inside and (closed or given):
        pieces += [Piece("template", "\n"), Piece("control", THINK_END), Piece("template", "\n\n")]
        inside = False
    pieces += given
    tokens = chat.encode(pieces, limit)
    return Prompt(tokens, tuple(pieces), turn_ends(tokens, ends), inside, text_of(given), tuple(builder.notes))


def check_variables(variables: Mapping[str, Any]) -> None:
    """They reach the template unmarked, so they are switches and words, and none of those it gets anyway."""
    if len(variables) > MOST_VARIABLES:
        raise InputError(f"at most {MOST_VARIABLES} variables", param="chat_template_kwargs")
    for name, value in variables.items():
        where = f"chat_template_kwargs.{name[:64]}" if WORD.fullmatch(name) else "chat_template_kwargs"
        if name in OWN or name.endswith("_token"):
            raise InputError("this one can't be set", param=where)
        plain = value is None or isinstance(value, bool | int | float)
        if not plain and not (isinstance(value, str) and WORD.fullmatch(value)):
            raise InputError("a template variable is true, false, a number or a word of up to 64 letters", param=where)


def opens_reasoning(pieces: Sequence[Piece]) -> bool:
    """Whether the prompt's last part is reasoning that has begun."""
    for piece in reversed(pieces):
        if piece.kind != "user" and (at := piece.text.rfind(THINK)) >= 0:
            return piece.text.find(THINK_END, at) < 0
        if piece.kind == "user" or THINK_END in piece.text:
            return False
    return False


def turn_ends(tokens: Ids, ends: Sequence[int]) -> tuple[int, ...]:
    """Lengths of the beginnings that end with an end token."""
    found = np.flatnonzero(np.isin(tokens, np.asarray(ends, np.uint32))) + 1
    return tuple(int(each) for each in found)


def prefix_keys(prompt: Ids, turns: Sequence[int], salt: bytes) -> tuple[tuple[str, int], ...]:
    """(key, tokens) of the prompt's beginnings, shortest first: turn ends, each 1,024 tokens, all of it. A key is that
    of a view with the same tokens and salt."""
    steps = list(range(EVERY_TOKENS, len(prompt), EVERY_TOKENS))[-MOST_STEPS:]
    places = sorted({*turns[-MOST_TURNS:], *steps, len(prompt)} - {0})
    digest, at, found = hashlib.blake2b(digest_size=16, key=salt), 0, []
    data = np.ascontiguousarray(prompt, "<u4").tobytes()
    for place in places:
        digest.update(data[4 * at : 4 * place])
        at = place
        found.append((digest.copy().hexdigest(), place))
    return tuple(found)


def _check_shown(guard: Guard, pieces: Sequence[Piece]) -> None:
    shown = guard.shown(pieces)
    for number, leaf in enumerate(guard.leaves):
        if number in shown:
            continue
        if leaf.kind == "tool":
            raise SpanError("the model's template has no place for tools", param="tools")
        if leaf.kind == "call":
            raise SpanError("the model's template has no place for tool calls", param=leaf.where)
        if leaf.kind == "text" and leaf.where.startswith("input"):
            raise SpanError("the model's template does not show this message", param=leaf.where)
