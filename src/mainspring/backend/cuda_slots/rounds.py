"""One round on the device: drafts, rows, choice, walk. No question to the device on the way."""

from typing import NamedTuple

import torch
from torch import Tensor

from mainspring.backend.cuda_slots.arrays import Arrays
from mainspring.backend.cuda_slots.head import DraftingHead
from mainspring.backend.cuda_slots.trunk import Rows, Trunk
from mainspring.ops import rounds
from mainspring.ops.acceptance.batched import choose
from mainspring.ops.acceptance.triton import largest
from mainspring.ops.rounds.triton import plan, walk


class Choice(NamedTuple):
    """What the rules of a round's slots need; all False: greedy, logits as they are."""

    drawn: bool = False  # temperature, or ids that may not be yet
    ranked: bool = False  # top-k, top-p
    adjusted: bool = False  # bias, penalties
    masked: bool = False

    @property
    def plain(self) -> bool:
        return not any(self)


class Shape(NamedTuple):
    """Of a round: lanes, rows a lane, drafts of the device's head (None: it is not run), most rows that wait for it,
    cuts of the keys, and how tokens are chosen."""

    lanes: int
    rows: int
    drafts: int | None
    waiting: int
    splits: int
    choice: Choice


class Given(NamedTuple):
    """On the device: request [N, REQUEST + R] int32; masks [N R, words] int32, masked [N] bool where they are used."""

    request: Tensor
    masks: Tensor | None
    masked: Tensor | None


class Made(NamedTuple):
    """outcome [N, OUTCOME + R] int32; logits [N R, V] fp32."""

    outcome: Tensor
    logits: Tensor


class Rounds:
    def __init__(self, trunk: Trunk, head: DraftingHead | None, arrays: Arrays) -> None:
        self._trunk, self._head, self._arrays = trunk, head, arrays

    def forward(self, given: Given, shape: Shape) -> Made:
        a, request = self._arrays, given.request
        drafts = request[:, rounds.REQUEST :].clone()
        if self._head is not None and shape.drafts is not None:
            self._head.draft(a, request, drafts, steps=shape.drafts, waiting=shape.waiting, splits=shape.splits)
        made, tokens, positions, owners, uniforms = plan(a.words, request, drafts, a.rules.seeds, nowhere=a.nobody)
        at = Rows(self._trunk.network, made, positions, owners, shape.splits)
        hidden = self._trunk.rows(tokens, at, a)
        logits = self._trunk.logits(hidden)
        slots = request[:, 0].long()
        if self._head is not None:
            to = 2 * slots + 1 - a.words[slots, rounds.TURN]
            a.hidden.flatten(0, 1)[:, : shape.rows].index_copy_(0, to, hidden.unflatten(0, drafts.shape))
        return self._chosen(logits, slots, drafts, uniforms, given, shape.choice, forwarded=True)

    def first(self, given: Given, choice: Choice) -> Made:
        """From the logits that prompts left; one row a lane."""
        a, slots = self._arrays, given.request[:, 0].long()
        drafts = given.request[:, rounds.REQUEST :].clone()
        *_, uniforms = plan(a.words, given.request, drafts, a.rules.seeds, nowhere=a.nobody)
        return self._chosen(a.first[slots], slots, drafts, uniforms, given, choice, forwarded=False)

    def _chosen(
        self, logits: Tensor, slots: Tensor, drafts: Tensor, uniforms: Tensor, given: Given, choice: Choice, *,
        forwarded: bool,
    ) -> Made:  # fmt: skip
        a = self._arrays
        if choice.plain:
            chosen = largest(logits)
        else:
            chosen = choose(
                logits, slots, a.words[slots, rounds.INDEX], drafts, uniforms, a.rules, ranked=choice.ranked,
                adjusted=choice.adjusted, masks=given.masks, masked=given.masked,
            )  # fmt: skip
        outcome = walk(
            a.words, given.request, drafts, chosen, a.rules.stops, a.following, forwarded=forwarded,
            seen=a.rules.seen if choice.adjusted else None,
        )  # fmt: skip
        return Made(outcome, logits)


def blank(lanes: int, rows: int, nobody: int) -> Tensor:
    """A request on the host of lanes that do nothing."""
    request = torch.zeros(lanes, rounds.REQUEST + rows, dtype=torch.int32)
    request[:, 0] = nobody
    return request
