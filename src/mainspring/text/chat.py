"""A chat template with its tokenizer: messages in, pieces and tokens out.

The scored question is one more user turn of the model's own template. A conversation is rendered with a mark in that
turn; what comes before the mark is the view, what comes after it (turn end and generation prompt) is the `suffix` of
every branch and must not depend on the conversation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from mainspring.errors import TemplateError, TooLargeError
from mainspring.text.fast import EncodeMany, Ids
from mainspring.text.guard import ControlFinder, Guard, Piece, guard_for
from mainspring.text.template import Template
from mainspring.text.tokenizer import BLOCK_CHARS, Tokenizer

EMPTY: Ids = np.zeros(0, dtype=np.uint32)
CHARS_PER_TOKEN = 8  # texts with more characters than this a token are counted before they are encoded as a whole


Segments = list[tuple[str, bool]]
"""(text, whether it is a control token)."""


def texts_of(segments: Segments) -> list[str]:
    return [text for text, control in segments if text and not control]


@dataclass(frozen=True)
class Chat:
    """`variables` are what templates expect beside messages: bos_token, eos_token and the like."""

    tokenizer: Tokenizer
    template: Template
    finder: ControlFinder
    variables: Mapping[str, str]
    guarded: bool = True

    def guard(self, data: Any) -> tuple[Guard, int]:
        return guard_for(data, self.finder, enabled=self.guarded)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        guard: Guard,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        chars: int = 0,
        generation_prompt: bool = True,
        thinking: bool | None = False,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[Piece]:
        """What the template makes of the messages, whose leaves `guard` has marked. `thinking` None: as the template
        has it by itself. `variables` reach it unmarked. TemplateError, RefusalError."""
        context = {
            **variables,
            **self.variables,
            "messages": messages,
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": generation_prompt,
        }
        if thinking is not None:
            context["enable_thinking"] = thinking
        items = len(messages) + len(guard.leaves)
        return guard.pieces(self.template.render(context, chars=max(chars, guard.chars), items=items))

    def ask(self, guard: Guard) -> tuple[dict[str, str], int]:
        """The user turn that stands for any question, and the number of its leaf."""
        return {"role": "user", "content": guard.leaf("Question", "question", "label")}, len(guard.leaves) - 1

    def suffix(self) -> list[Piece]:
        """What follows a question, from a conversation that any template takes."""
        guard, _ = self.guard(None)
        turn, number = self.ask(guard)
        probe = [{"role": "user", "content": guard.leaf("Hello.", "probe")}]
        probe.append({"role": "assistant", "content": guard.leaf("Hello!", "probe")})
        return split_at(self.render([*probe, turn], guard), number, self.template.name)[1]

    def encode(self, pieces: Sequence[Piece], limit: int | None = None, encode: EncodeMany | None = None) -> Ids:
        """Control pieces as their ids, the text between them as text. TooLargeError beyond `limit` tokens; of texts far
        beyond it only as much is encoded as proves it, and `actual` is then a lower bound. `encode` may know ids of
        `texts_of(segments)` already."""
        return self.encode_segments(self.segments(pieces), limit, encode)

    def encode_segments(self, segments: Segments, limit: int | None = None, encode: EncodeMany | None = None) -> Ids:
        """`encode` of pieces that were taken apart before."""
        texts = texts_of(segments)
        if limit is not None and sum(map(len, texts)) > max(BLOCK_CHARS, CHARS_PER_TOKEN * limit):
            self._check_size(texts, limit)
        tokens = self._joined(segments, iter((encode or self.tokenizer.encode_texts)(texts)))
        if limit is not None and len(tokens) > limit:
            raise too_large(limit, len(tokens))
        return tokens

    def segments(self, pieces: Sequence[Piece]) -> Segments:
        """What `encode` encodes: texts, each by itself, and control tokens. The pieces between two control tokens are
        one text: tokens may span origins."""
        found: Segments = []
        tokens = self.finder.tokens
        run, strip = "", False
        for piece in pieces:
            if piece.kind != "control":
                run += piece.text
                continue
            control = tokens[piece.text]
            if strip:
                run = run.lstrip()
            found += ((run.rstrip() if control.lstrip else run, False), (piece.text, True))
            run, strip = "", control.rstrip
        found.append((run.lstrip() if strip else run, False))
        return found

    def encode_many(self, sequences: Sequence[Sequence[Piece]]) -> list[Ids]:
        """Every sequence's tokens, all texts encoded in one call."""
        taken = [self.segments(pieces) for pieces in sequences]
        encoded = iter(self.tokenizer.encode_texts([text for segments in taken for text in texts_of(segments)]))
        return [self._joined(segments, encoded) for segments in taken]

    def _joined(self, segments: Segments, encoded: Iterator[Ids]) -> Ids:
        """The control tokens with as many of `encoded` between them as there are texts."""
        control_ids = self.tokenizer.control_ids
        return np.concatenate(
            [EMPTY, *[control_ids[text] if control else next(encoded) for text, control in segments if text]]
        )

    def _check_size(self, texts: Sequence[str], limit: int) -> None:
        total, whole = 0, True
        for text in texts:
            tokens, exact = self.tokenizer.count_tokens(text, limit - total)
            total, whole = total + max(0, tokens), whole and exact
            if total > limit:
                raise too_large(limit, total, whole)


def split_at(pieces: Sequence[Piece], leaf: int, name: str) -> tuple[list[Piece], list[Piece]]:
    """The pieces before and after the one that shows `leaf`, which must come out once."""
    places = [index for index, piece in enumerate(pieces) if piece.leaf == leaf and piece.kind == "user"]
    if len(places) != 1:
        raise TemplateError(f"{name} shows the last user turn {len(places)} times, once is needed")
    return list(pieces[: places[0]]), list(pieces[places[0] + 1 :])


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def too_large(limit: int, actual: int, exact: bool = True) -> TooLargeError:
    """Names both figures; `actual` is a lower bound where counting stopped early."""
    count = f"{actual:,}" if exact else f"at least {actual:,}"
    return TooLargeError(
        f"the rendered span has {count} tokens, the limit is {limit:,}", limit=limit, actual=actual, param="span"
    )
