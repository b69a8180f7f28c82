"""The checkpoint's own drafting head (`model.mtp`) on the device: kept up over prompts and rounds, chained to draft.

Row i of the head reads the trunk's row i and token i + 1 and gives logits of token i + 2. A round first reads the rows
that its last one left (they stand now), the last of which gives the first draft; each further draft is a row of the
head on its own output, whose K/V the next rows that stand overwrite.
"""

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.backend.cuda.network import Attention, _layer
from mainspring.backend.cuda_slots.arrays import Arrays
from mainspring.backend.cuda_slots.buffers import Buffer
from mainspring.backend.cuda_slots.trunk import Rows, Trunk
from mainspring.model.hybrid import Block
from mainspring.model.mtp import MtpHead
from mainspring.ops import rounds
from mainspring.ops.acceptance.triton import largest
from mainspring.ops.attention_inputs import triton as attention_inputs
from mainspring.ops.linear import triton_rows as linear
from mainspring.ops.rms_norm.triton import add_rms_norm
from mainspring.ops.rounds.triton import plan_head


class DraftingHead:
    """Takes over the head's tensors. `number` is its layer in the slots' K/V."""

    def __init__(self, trunk: Trunk, head: MtpHead, number: int) -> None:
        self._trunk, self._number = trunk, number
        self._layer = _layer(cast(Block, head.blocks[0]))
        self._fc, self._norm = head.fc.weight, head.norm.weight
        self._embedding_norm, self._hidden_norm = head.embedding_norm.weight, head.hidden_norm.weight

    def scanned(self, tokens: Tensor, hidden: Tensor, pending: Tensor | None, buffer: Buffer, read: int) -> int:
        """After a piece of prompt: rows [T, d] of tokens [T], `pending` [1, d] from before it; K/V rows from `read` on
        are written. How many there are then; the last row waits for the token after it."""
        rows = hidden if pending is None else torch.cat([pending, hidden])
        following = tokens[1:] if pending is None else tokens
        if not len(following):
            return read
        both = self._joined(following, rows[:-1])
        x = add_rms_norm(F.linear(both, self._fc), None, self._layer.mixer_norm, self._eps)[1]
        w = cast(Attention, self._layer.mixer)
        c = self._trunk.config
        groups, size = c.num_key_value_heads, c.head_dim
        p = F.linear(x, w.in_proj[w.queries :])
        k, v = (part.unflatten(1, (groups, size)) for part in p.split(groups * size, dim=1))
        places = torch.arange(read, read + len(x), dtype=torch.int32, device=x.device)
        angles = places.float()[:, None] * self._trunk.network.rates
        attention_inputs.store_keys_values(
            k, v, w.k_norm, angles.cos(), angles.sin(), self._eps, owners=torch.zeros_like(places), places=places,
            stores=torch.tensor([buffer.address], dtype=torch.int64).to(x.device), own=p, layer=self._number,
        )  # fmt: skip
        return read + len(x)

    def draft(self, arrays: Arrays, request: Tensor, drafts: Tensor, *, steps: int, waiting: int, splits: int) -> None:
        """Read what waits, at most `waiting` rows a slot, and write drafts [N, R] for lanes whose request wants them,
        `steps` at most; none where it is 0."""
        slots = request[:, 0].long()
        turns = arrays.words[slots, rounds.TURN]
        hidden = arrays.hidden[slots, turns, :waiting].flatten(0, 1)
        wanted = request[:, 2] > 0
        for number in range(max(steps, 1)):
            rows = waiting if number == 0 else 1
            made, tokens, positions, owners = plan_head(
                arrays.words, request, arrays.following, drafts, step=number, rows=rows, nowhere=arrays.nobody
            )
            at = Rows(self._trunk.network, made, positions, owners, splits)
            out = self._rows(tokens, hidden, at, arrays)
            if not steps:
                return
            last = torch.arange(len(made), device=made.device) * rows + (made[:, 1] - 1).clamp(min=0)
            hidden = out[last]
            best = largest(self._trunk.logits(hidden)).clamp(min=0)
            drafts[:, number] = torch.where(wanted, best, drafts[:, number])

    def _rows(self, tokens: Tensor, hidden: Tensor, at: Rows, arrays: Arrays) -> Tensor:
        x = linear.plain(self._joined(tokens, hidden), self._fc)
        h, parts = self._trunk.layer(self._layer, x, None, at, arrays, self._number)
        return linear.norm(h, parts, self._norm, self._eps)

    @property
    def _eps(self) -> float:
        return self._trunk.config.rms_norm_eps

    def _joined(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """[T, 2 d]."""
        embedded = add_rms_norm(F.embedding(tokens, self._trunk.network.embed), None, self._embedding_norm, self._eps)
        return torch.cat([embedded[1], add_rms_norm(hidden.contiguous(), None, self._hidden_norm, self._eps)[1]], -1)
