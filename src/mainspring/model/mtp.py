"""The multi-token-prediction head: one attention layer that drafts the token after the next.

With the trunk's row h_t (after its final norm, as `Hybrid.extend` gives it) and the next token's embedding,
x = fc [rms(embed(token_{t+1})), rms(h_t)], then a block with keys and values of its own, and a norm; the trunk's head
gives logits of token t + 2. Embeddings and head are the trunk's. Tensors: `mtp.fc`, `mtp.pre_fc_norm_embedding`,
`mtp.pre_fc_norm_hidden`, `mtp.layers.0.*`, `mtp.norm`, as Qwen3.5 and Qwen3-Next checkpoints have them.
"""

import torch
from torch import Tensor, nn

from mainspring.model.config import FULL, HybridConfig
from mainspring.model.hybrid import Block, Ops, Ragged, RMSNorm
from mainspring.model.state import AttentionState


class MtpHead(nn.Module):
    """Parameters start at zero: fill them from a checkpoint or by training."""

    def __init__(self, config: HybridConfig, ops: Ops | None = None) -> None:
        super().__init__()
        self.config = config
        d, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * d, d, bias=False)
        self.embedding_norm = RMSNorm(d, eps)
        self.hidden_norm = RMSNorm(d, eps)
        self.blocks = nn.ModuleList([Block(config, FULL, ops or Ops())])
        self.norm = RMSNorm(d, eps)

    def joined(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """What the block gets: embedded next tokens and trunk rows [..., d] -> [..., d]."""
        return self.fc(torch.cat([self.embedding_norm(embedded), self.hidden_norm(hidden)], -1))

    def new_state(self, capacity: int = 0) -> AttentionState:
        c, like = self.config, self.fc.weight
        shape = (2, c.num_key_value_heads, capacity, c.head_dim)
        return AttentionState(torch.empty(shape, dtype=like.dtype, device=like.device))

    def extend(self, embedded: Tensor, hidden: Tensor, state: AttentionState) -> Tensor:
        """Move one sequence's `state` over rows [T, d]; rows before the head [T, d]."""
        rows, R = len(hidden), self.config.rotary_dim
        at = torch.arange(state.length, state.length + rows, device=hidden.device).float()
        rates = self.config.rope_theta ** (-torch.arange(0, R, 2, device=hidden.device).float() / R)
        angles = at[:, None] * rates
        batch = Ragged([rows], [0], True, angles.cos(), angles.sin())
        return self.norm(self.blocks[0](self.joined(embedded, hidden), batch, [state], None))
