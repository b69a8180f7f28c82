"""The checkpoint's own drafting head (`model.mtp`) over slots: kept up in prefill and rounds, chained to draft.

Row i of the head reads the trunk's row i and token i + 1 and gives logits of token i + 2. Kept rows come from the
trunk; drafts beyond the first chain on the head's own output, in rows of K/V that the next kept ones overwrite.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mainspring.backend.torch_slots.layers import Place, angles, attention_piece, attention_round, mlp
from mainspring.backend.torch_slots.network import Network
from mainspring.backend.torch_slots.slot import Slot
from mainspring.model.mtp import MtpHead
from mainspring.ops.attention.tiled import decode_mask

MOST_PENDING = 64
"""Rows that may wait for the head to read them."""


class Drafted(NamedTuple):
    """`read`: rows of K/V that stay."""

    tokens: tuple[int, ...]
    read: int


class DraftingHead:
    """`layer` is the head's place in the slots' buffers."""

    def __init__(self, network: Network, head: MtpHead, layer: int) -> None:
        self._network, self._head, self._layer = network, head, layer
        self._block: Any = head.blocks[0]
        c = head.config
        self._config, self._ratio = c, c.num_attention_heads // c.num_key_value_heads

    def scanned(self, slot: Slot, tokens: Tensor, hidden: Tensor) -> None:
        """After a piece of prompt: `hidden` [T, d] of `tokens` [T]; the last row waits for the token after it."""
        rows = hidden if slot.pending is None else torch.cat([slot.pending, hidden])
        following = tokens[1:] if slot.pending is None else tokens
        if len(following):
            self._read(slot, rows[:-1], following)
        slot.pending, slot.following = rows[-1:], []

    def _read(self, slot: Slot, hidden: Tensor, following: Tensor) -> None:
        """Keys and values of the head's rows; nothing is drafted."""
        x = self._joined(following, hidden)
        at = slot.drafted
        rotary = angles(self._config, torch.arange(at, at + len(x)))
        normed = self._block.mixer_norm(x)
        attention_piece(self._network.product, self._block.mixer, normed, slot, self._layer, at, rotary, slice(0, 0))
        slot.drafted += len(x)

    def catch_up(self, slot: Slot) -> None:
        """Read what waits, before it is more than the next draft would want to read at once."""
        if slot.pending is not None and len(slot.pending) >= MOST_PENDING and len(slot.following) == len(slot.pending):
            last = len(slot.pending) - 1
            self._read(slot, slot.pending[:last], torch.tensor(slot.following[:last]))
            slot.pending, slot.following = slot.pending[last:], slot.following[last:]

    def draft(self, slots: Sequence[Slot], counts: Sequence[int]) -> list[Drafted]:
        """The head's likeliest tokens after each slot's last one, `counts` (1 or more) each. The slots stay as they are
        but for rows past what counts; `Drafted.read` becomes `slot.drafted` when the round is committed."""
        drafts: list[list[int]] = [[] for _ in slots]
        read = [slot.drafted + len(slot.following) for slot in slots]
        hidden = [_waiting(slot) for slot in slots]
        tokens = [slot.following for slot in slots]
        at = [slot.drafted for slot in slots]
        for step in range(max(counts)):
            live = [i for i, count in enumerate(counts) if count > step]
            out = self._rows([slots[i] for i in live], [hidden[i] for i in live], [tokens[i] for i in live],
                             [at[i] for i in live])  # fmt: skip
            best = self._network.logits(torch.cat([rows[-1:] for rows in out])).argmax(-1).tolist()
            for i, rows, token in zip(live, out, best, strict=True):
                at[i] += len(rows)
                hidden[i], tokens[i] = rows[-1:], [token]
                drafts[i].append(token)
        return [Drafted(tuple(each), rows) for each, rows in zip(drafts, read, strict=True)]

    def _rows(
        self, slots: Sequence[Slot], hidden: Sequence[Tensor], tokens: Sequence[list[int]], at: Sequence[int]
    ) -> list[Tensor]:
        """The head's output rows, each slot's."""
        counts = [len(rows) for rows in hidden]
        x = self._joined(torch.tensor([token for each in tokens for token in each]), torch.cat(list(hidden)))
        rotary = angles(self._config, torch.cat([torch.arange(a, a + n) for a, n in zip(at, counts, strict=True)]))
        places, first = [], 0
        for slot, start, n in zip(slots, at, counts, strict=True):
            mask = decode_mask(start, n, self._ratio, torch.float32)
            places.append(Place(slot, first, n, n, mask, start))
            first += n
        product = self._network.product
        h = x + attention_round(product, self._block.mixer, self._block.mixer_norm(x), places, self._layer, rotary)
        h = h + mlp(product, self._block.mlp, self._block.mlp_norm(h))
        out: Tensor = self._head.norm(h)
        return list(out.split(counts))

    def _joined(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        head = self._head
        both = torch.cat([head.embedding_norm(self._network.model.embed(tokens)), head.hidden_norm(hidden)], -1)
        out: Tensor = self._network.product(head.fc, both)
        return out


def _waiting(slot: Slot) -> Tensor:
    if slot.pending is None or len(slot.pending) != len(slot.following):
        raise ValueError("the drafting head has no row to go on from")
    return slot.pending
