"""The trunk and the head over a prompt's piece and over a round's rows."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.backend.onednn_weights import PackedLinear
from mainspring.backend.torch_slots.layers import (
    Place,
    Snapshot,
    angles,
    attention_piece,
    attention_round,
    delta_piece,
    delta_round,
    mlp,
)
from mainspring.backend.torch_slots.shapes import PACKED_ROWS, PLAIN_ROWS, product
from mainspring.backend.torch_slots.slot import Slot
from mainspring.errors import DeviceError
from mainspring.model.config import FULL
from mainspring.model.hybrid import Hybrid

Outputs = Literal["all", "last", "none"]


class Scanned(NamedTuple):
    """`hidden` rows after the final norm, those asked for; for each save, the delta layers' snapshots."""

    hidden: Tensor
    snapshots: list[list[Snapshot]]


class Network:
    """`packed`: the blocks' matrices are oneDNN's (`pack_weights`). The head is then laid out a second time, so that
    few rows of it read as fast as the others: as much memory as the embeddings."""

    def __init__(self, model: Hybrid, *, packed: bool, vocab: int | None = None) -> None:
        self.model = model
        self.product = partial(product, least=PACKED_ROWS if packed else PLAIN_ROWS)
        head = model.head.weight[:vocab]
        self.head: Any = PackedLinear(head) if packed else partial(F.linear, weight=head)
        self.kinds = model.config.layer_types
        self.attention_layers = self.kinds.count(FULL)
        index = [self.kinds[:i].count(kind) for i, kind in enumerate(self.kinds)]  # among its own kind
        self.blocks: list[tuple[Any, bool, int]] = [
            (block, kind == FULL, at) for block, kind, at in zip(model.blocks, self.kinds, index, strict=True)
        ]

    def piece(self, tokens: Tensor, slot: Slot, saves: Sequence[int], outputs: Outputs) -> Scanned:
        """Move the slot over `tokens` [T]; snapshots at positions `saves`."""
        start, T = slot.length, len(tokens)
        slot.room(start + T)
        h = self.model.embed(tokens)
        rotary = angles(self.model.config, torch.arange(start, start + T))
        wanted = {"all": slice(0, T), "last": slice(T - 1, T), "none": slice(0, 0)}[outputs]
        taken: list[list[Snapshot]] = []
        for i, (block, attends, at) in enumerate(self.blocks):
            select = wanted if i == len(self.blocks) - 1 else slice(0, T)
            x = block.mixer_norm(h)
            if attends:
                y = attention_piece(self.product, block.mixer, x, slot, at, start, rotary, select)
            else:
                y, snapshots = delta_piece(self.product, block.mixer, x, slot, at, saves, select)
                taken.append(snapshots)
            h = self._mlp(block, h[select] + y)
        slot.length += T
        return Scanned(self.model.norm(h), [[layer[i] for layer in taken] for i in range(len(saves))])

    def rows(self, tokens: Tensor, positions: Tensor, places: Sequence[Place]) -> Tensor:
        """Hidden rows [T, d] of a round."""
        h = self.model.embed(tokens)
        rotary = angles(self.model.config, positions)
        for block, attends, at in self.blocks:
            x = block.mixer_norm(h)
            if attends:
                y = attention_round(self.product, block.mixer, x, places, at, rotary)
            else:
                y = delta_round(self.product, block.mixer, x, places, at)
            h = self._mlp(block, h + y)
        hidden: Tensor = self.model.norm(h)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, vocab] fp32."""
        out: Tensor = self.product(self.head, hidden)
        return out

    def check_places(self, rows: int) -> None:
        """DeviceError where what a product gives for a row depends on where the row stands among `rows`: then no text
        is deterministic. One product of each kind is tried."""
        modules = [(self.head, self.model.config.hidden_size)]
        for attends in (True, False):
            block = next((block for block, kind, _ in self.blocks if kind == attends), None)
            if block is not None:
                name = "q_proj" if attends else "in_proj"
                modules.append((getattr(block.mixer, name), self.model.config.hidden_size))
        modules.append((partial(mlp, self.product, self.blocks[0][0].mlp), self.model.config.hidden_size))
        for module, width in modules:
            x = torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))
            for shift in (1, rows // 2):
                here, there = self.product(module, x), self.product(module, x.roll(shift, 0))
                pairs = [(here, there)] if isinstance(here, Tensor) else list(zip(here, there, strict=True))
                if not all(torch.equal(a.roll(shift, 0), b) for a, b in pairs):
                    raise DeviceError("this build's products depend on a row's place: no deterministic text here")

    def _mlp(self, block: Any, h: Tensor) -> Tensor:
        return h + mlp(self.product, block.mlp, block.mlp_norm(h)) if len(h) else h
