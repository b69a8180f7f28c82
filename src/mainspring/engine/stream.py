"""One live stream's host side: what was fed, scanned and emitted, and what is asked of its next round."""

from collections.abc import Sequence

import numpy as np

from mainspring.backend.generation import GRID, NO_TOKEN, SlotResult, SlotRound, TokenRule
from mainspring.engine.drafting import NGRAM, NONE, Drafter, NgramLookup
from mainspring.engine.prefixes import Chain
from mainspring.engine.stream_records import Emitted, Ended, Finish, StreamSpec
from mainspring.engine.work import Tokens

MOST_MARKS = 4
"""Marks of one prompt at which checkpoints are taken: its last ones."""


class Stream:
    def __init__(self, spec: StreamSpec, slot: int, drafter: str, block_rows: int, before: Tokens) -> None:
        """`before`: tokens of the checkpoint that the spec resumes from."""
        self.spec, self.slot, self.drafter = spec, slot, drafter
        self.prompt: Tokens = np.zeros(0, np.int64)
        self.chain = Chain(spec.salt + b"\0" + drafter_kind(drafter))
        self.position = self.cached = 0
        self.prompt_tokens = len(before) + (spec.prompt_tokens or len(spec.tokens))
        self.ready = False
        self.wanted: dict[int, bytes | None] = {}  # grid position of a checkpoint to take -> outside key
        for mark, outside in sorted(spec.marks)[-MOST_MARKS:]:
            self.want(mark, outside)
        self.want(self.prompt_tokens)
        self.anchor = NO_TOKEN
        self.emitted = self.rounds = self.drafted = self.accepted = 0
        self.histogram = [0] * (block_rows + 1)
        self.reply: list[int] = []
        self._lookup: Drafter | None = None

    def want(self, position: int, outside: bytes | None = None) -> None:
        """A checkpoint at the grid position at or before `position`."""
        at = position // GRID * GRID
        if at:
            self.wanted[at] = outside or self.wanted.get(at)

    def feed(self, tokens: Tokens) -> None:
        self.prompt = np.concatenate([self.prompt, np.asarray(tokens, np.int64)])
        self.chain.extend(tokens)

    @property
    def rule(self) -> TokenRule:
        spec = self.spec
        return TokenRule(spec.sampling.rule, frozenset(spec.stop_ids), spec.min_tokens, spec.logprobs)

    def piece(self, most_tokens: int) -> tuple[Tokens, bool]:
        """(tokens to scan next, whether the prompt ends with them); none where more must be fed first."""
        fed, room = len(self.prompt), max(most_tokens // GRID, 1) * GRID
        end = min(self.position + room, fed)
        final = end == self.prompt_tokens
        if not final:
            end -= end % GRID
        return self.prompt[self.position : end], final

    def saves(self, end: int) -> tuple[int, ...]:
        """Grid positions in (position, end] where a checkpoint is wanted."""
        return tuple(sorted(at for at in self.wanted if self.position < at <= end))

    # ---------------------------------------------------------------- rounds

    @property
    def left(self) -> int:
        return self.spec.max_tokens - self.emitted

    def part(self, length: int, block_rows: int) -> SlotRound:
        """What is asked of the next round, with `length` drafts where the spec does not say."""
        asked = self.spec.draft_tokens if self.spec.draft_tokens is not None else length
        most = min(asked, block_rows - 1, self.left - 1) if self.anchor != NO_TOKEN else 0
        drafts: Sequence[int] = ()
        if self.drafter == NGRAM and most > 0:
            drafts = self._proposals(most)
        masks = None
        if self.spec.constraint is not None:
            masks = self.spec.constraint.masks(drafts)
            drafts = drafts[: len(masks) - 1]
        device = most if self.drafter not in (NGRAM, NONE) and masks is None else 0
        return SlotRound(self.slot, self.anchor, self.left, tuple(drafts), device, masks)

    def _proposals(self, most: int) -> tuple[int, ...]:
        if self._lookup is None:
            self._lookup = NgramLookup(self.prompt.tolist() + self.reply)
        return self._lookup.propose(most)

    def take(self, result: SlotResult) -> Emitted:
        """Count a round that went well."""
        tokens = result.tokens
        self.reply.extend(tokens)
        if self._lookup is not None:
            self._lookup.extend(tokens)
        self.anchor = tokens[-1]
        self.emitted += len(tokens)
        self.rounds += 1
        self.drafted += result.drafted
        self.accepted += result.accepted
        self.histogram[len(tokens)] += 1
        if self.spec.constraint is not None:
            self.spec.constraint.advance(tokens[:-1] if result.stopped else tokens)
        ended = None
        if result.stopped:
            ended = self.end("stop", stop_id=tokens[-1])
        elif self.left <= 0:
            ended = self.end("length")
        logprobs = tuple(each.logprob for each in result.logprobs)
        top = tuple(each.others for each in result.logprobs) if self.spec.logprobs > 0 else ()
        return Emitted(self.spec.id, tokens, 1, result.drafted, result.accepted, logprobs, top, ended)

    def end(self, finish: Finish, *, stop_id: int | None = None, message: str = "") -> Ended:
        return Ended(
            finish, self.emitted, self.prompt_tokens, self.cached, self.rounds, self.drafted, self.accepted,
            tuple(self.histogram), stop_id, message,
        )  # fmt: skip


def drafter_kind(drafter: str) -> bytes:
    """Checkpoints of streams whose device drafts hold its state too: other keys."""
    return b"" if drafter in (NGRAM, NONE) else drafter.encode()
