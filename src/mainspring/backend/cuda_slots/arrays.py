"""What stays on the device from round to round, at fixed addresses, for all slots and one more that is never live:
lanes that are padding are of that one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mainspring.model.config import FULL, HybridConfig
from mainspring.ops import rounds
from mainspring.ops.acceptance.batched import Rules
from mainspring.ops.delta_inputs import Heads
from mainspring.ops.gated_delta.triton_step import Memory


@dataclass
class Arrays:
    words: Tensor  # [S + 1, WORDS] int64, see `ops.rounds`
    stores: Tensor  # [S + 1, 2] int64: address of a slot's K/V rows, bytes a layer
    memory: Memory  # of the gated-delta layers
    hidden: Tensor  # [S + 1, 2, B, d]: trunk rows for the drafting head, of two turns
    following: Tensor  # [S + 1, 2, B] int32: the tokens after them
    first: Tensor  # [S + 1, V] fp32: the prompt's last logits
    rules: Rules

    @classmethod
    def empty(cls, config: HybridConfig, slots: int, block: int, vocab: int, weights: Tensor) -> "Arrays":
        """`weights` say type and device."""
        c, device = config, weights.device
        deltas = sum(kind != FULL for kind in c.layer_types)
        heads = Heads(c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim)
        count = slots + 1
        return cls(
            torch.zeros(count, rounds.WORDS, dtype=torch.int64, device=device),
            torch.zeros(count, 2, dtype=torch.int64, device=device),
            Memory.empty(count, max(deltas, 1), block, heads, weights.dtype, device),
            weights.new_zeros(count, 2, block, c.hidden_size),
            torch.zeros(count, 2, block, dtype=torch.int32, device=device),
            torch.zeros(count, vocab, dtype=torch.float32, device=device),
            Rules.empty(count, device),
        )

    @property
    def nobody(self) -> int:
        """The slot that is never live, and the store that is nowhere."""
        return len(self.words) - 1

    @property
    def block(self) -> int:
        return self.following.shape[2]
