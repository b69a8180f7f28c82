"""The hybrid network: GatedDeltaNet layers with a full-attention layer every few, as in Qwen3.5 dense.

A block is h += mixer(rms(h)); h += mlp(rms(h)). All work is on ragged rows: sequences one after another, each going on
from a *state* (K/V rows of the attention layers, recurrent matrix and conv rows of the others). `extend` either moves
states forward in place (a view, a prompt) or forks them, reading only (branches). Sources: Yang et al. 2024 for the
gated delta rule; shapes and the gated attention from the released checkpoints. Norms, the recurrence and rotary angles
are fp32 whatever the weights' type.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mainspring.model.config import FULL, HybridConfig
from mainspring.model.state import AttentionState, DeltaState, State
from mainspring.ops.attention.fused import attention as fused_attention
from mainspring.ops.causal_conv.packed import causal_conv as packed_conv
from mainspring.ops.gated_delta.chunked import gated_delta as chunked_delta

Outputs = Literal["all", "last", "none"]


@dataclass(frozen=True)
class Ops:
    """The implementations a network runs on; tests put the references here."""

    gated_delta: Callable[..., tuple[Tensor, Tensor | None]] = chunked_delta
    causal_conv: Callable[..., tuple[Tensor, Tensor | None]] = packed_conv
    attention: Callable[..., Tensor] = fused_attention


class Ragged(NamedTuple):
    """Rows of N sequences: their lengths, the index of the state each continues, and whether that state moves along."""

    lengths: Sequence[int]
    parents: Sequence[int]
    update: bool
    cos: Tensor  # [T, rotary_dim / 2] fp32
    sin: Tensor


class RMSNorm(nn.Module):
    """x * rsqrt(mean x^2 + eps) * (1 + w), in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), 1.0 + self.weight.float(), self.eps).type_as(x)


class Projections(nn.Module):
    """Several products of one input as one matrix: forward gives the parts [T, size] in order."""

    def __init__(self, width: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.weight = nn.Parameter(torch.zeros(sum(sizes), width))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return F.linear(x, self.weight).split(self.sizes, dim=-1)


class GatedDeltaNet(nn.Module):
    """Input projection, short convolution, gated delta rule, gated norm, output projection."""

    def __init__(self, config: HybridConfig, ops: Ops) -> None:
        super().__init__()
        c = self.config = config
        Hv = c.linear_num_value_heads
        self.in_proj = Projections(c.hidden_size, (c.conv_dim, c.value_dim, Hv, Hv))  # [q k v | z | b | a]
        self.conv = nn.Parameter(torch.zeros(c.conv_dim, c.linear_conv_kernel_dim))
        self.A_log = nn.Parameter(torch.zeros(Hv))
        self.dt_bias = nn.Parameter(torch.zeros(Hv))
        self.norm = nn.Parameter(torch.ones(c.linear_value_head_dim))
        self.out_proj = nn.Linear(c.value_dim, c.hidden_size, bias=False)
        self.ops = ops

    def forward(self, x: Tensor, batch: Ragged, states: Sequence[DeltaState], select: Tensor | None) -> Tensor:
        c = self.config
        Hk, Hv, dk = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim
        u, z, b, a = self.in_proj(x)
        where = {"lengths": batch.lengths, "parents": batch.parents, "keep": batch.update}
        history = torch.stack([s.conv for s in states])
        y, tails = self.ops.causal_conv(u.contiguous(), self.conv, history=history, **where)
        q, k, v = y.float().split([c.key_dim, c.key_dim, c.value_dim], dim=-1)
        q, k = _unit(q.reshape(len(x), Hk, dk), dk**-0.5), _unit(k.reshape(len(x), Hk, dk))
        beta = b.float().sigmoid()
        g = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias.float())
        initial = [s.recurrent for s in states]  # read where they lie
        o, finals = self.ops.gated_delta(q, k, v.reshape(len(x), Hv, -1), beta, g, initial=initial, **where)
        if batch.update and tails is not None and finals is not None:
            for n, parent in enumerate(batch.parents):
                states[parent].conv, states[parent].recurrent = tails[n], finals[n]
        if select is not None:
            o, z = o[select], z[select]
        o = F.rms_norm(o, (o.shape[-1],), self.norm.float(), c.rms_norm_eps)
        gated = o.reshape(z.shape) * F.silu(z.float())
        return self.out_proj(gated.type_as(x))


class GatedAttention(nn.Module):
    """Grouped-query attention with normed q and k, partial rotary positions and a sigmoid output gate."""

    def __init__(self, config: HybridConfig, ops: Ops) -> None:
        super().__init__()
        c = self.config = config
        Hq, G, D = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, 2 * Hq * D, bias=False)  # a head: query D, then gate D
        self.kv_proj = Projections(c.hidden_size, (G * D, G * D))
        self.o_proj = nn.Linear(Hq * D, c.hidden_size, bias=False)
        self.q_norm = RMSNorm(D, c.rms_norm_eps)
        self.k_norm = RMSNorm(D, c.rms_norm_eps)
        self.ops = ops

    def forward(self, x: Tensor, batch: Ragged, states: Sequence[AttentionState], select: Tensor | None) -> Tensor:
        """With `select`, queries, and so outputs, are of those rows alone; every row still leaves its key and value."""
        c = self.config
        Hq, G, D = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        k, v = (part.reshape(len(x), G, D) for part in self.kv_proj(x))
        k = _rotate(self.k_norm(k), batch.cos, batch.sin)
        past = [(s.keys, s.values) for s in states]
        if batch.update:
            for parent, new_k, new_v in zip(
                batch.parents, k.split(list(batch.lengths)), v.split(list(batch.lengths)), strict=True
            ):
                states[parent].append(new_k, new_v)
        wanted = x if select is None else x[select]
        q, gate = self.q_proj(wanted).view(len(wanted), Hq, 2 * D).chunk(2, dim=-1)
        cos, sin = (batch.cos, batch.sin) if select is None else (batch.cos[select], batch.sin[select])
        q = _rotate(self.q_norm(q), cos, sin)
        o = self.ops.attention(q, k, v, lengths=batch.lengths, parents=batch.parents, past=past, select=select)
        return self.o_proj((o * gate.sigmoid()).reshape(len(wanted), Hq * D))


class MLP(nn.Module):
    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.gate_up_proj = Projections(config.hidden_size, (config.intermediate_size,) * 2)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x)
        return self.down_proj(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, config: HybridConfig, kind: str, ops: Ops) -> None:
        super().__init__()
        self.mixer = GatedAttention(config, ops) if kind == FULL else GatedDeltaNet(config, ops)
        self.mlp = MLP(config)
        self.mixer_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, h: Tensor, batch: Ragged, states: Sequence[object], select: Tensor | None) -> Tensor:
        # In place on fresh products, which no gradient reads: a tensor less a residual.
        h = self.mixer(self.mixer_norm(h), batch, states, select).add_(h if select is None else h[select])
        return self.mlp(self.mlp_norm(h)).add_(h)


class Hybrid(nn.Module):
    """The whole network. Parameters start at zero or one: fill them from a checkpoint or an initialiser."""

    def __init__(self, config: HybridConfig, ops: Ops | None = None) -> None:
        super().__init__()
        self.config = config
        ops = ops or Ops()
        # Given rather than drawn: torch draws on the meta device through its compiler, whose import takes a second.
        rows = torch.zeros(config.vocab_size, config.hidden_size)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size, _weight=rows)
        self.blocks = nn.ModuleList(Block(config, kind, ops) for kind in config.layer_types)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.head.weight = self.embed.weight

    def new_state(self, capacity: int = 0) -> State:
        """An empty state with room for `capacity` K/V rows before it has to grow."""
        return State.empty(self.config, capacity, dtype=self.embed.weight.dtype, device=self.embed.weight.device)

    def extend(
        self,
        tokens: Tensor,
        lengths: Sequence[int],
        states: Sequence[State],
        parents: Sequence[int] | None = None,
        *,
        update: bool,
        outputs: Outputs = "all",
    ) -> Tensor:
        """Run sequences of `lengths` (their tokens one after another, [T]) on from states[parents[n]].

        update=True: state n belongs to sequence n and moves to its end, in place (`parents` is left out).
        update=False: states are read, any number of sequences may continue one.
        Returns hidden rows after the final norm: of all tokens [T, d], of each sequence's last [N, d], or [0, d].
        The last layer computes the rows asked for and nothing else.
        """
        if parents is None:
            parents = range(len(states))
        batch = self._batch(lengths, states, parents, update)
        select = _select(lengths, outputs, tokens.device)
        h = self.embed(tokens)
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            h = block(h, batch, [s.layers[i] for s in states], select if i == last else None)
        if update:
            for state, length in zip(states, lengths, strict=True):
                state.length += length
        return self.norm(h)

    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Head rows of `token_ids` alone, or the whole vocabulary: [rows, ids], in fp32."""
        if token_ids is None:
            return self.head(hidden).float()
        return F.linear(hidden, self.head.weight[token_ids]).float()

    def _batch(self, lengths: Sequence[int], states: Sequence[State], parents: Sequence[int], update: bool) -> Ragged:
        device = self.embed.weight.device
        starts = [states[parent].length for parent in parents]
        positions = torch.cat([torch.arange(s, s + n, device=device) for s, n in zip(starts, lengths, strict=True)])
        R = self.config.rotary_dim
        rates = self.config.rope_theta ** (-torch.arange(0, R, 2, device=device, dtype=torch.float32) / R)
        angles = positions.float()[:, None] * rates
        return Ragged(lengths, parents, update, angles.cos(), angles.sin())


def _select(lengths: Sequence[int], outputs: Outputs, device: torch.device) -> Tensor | None:
    if outputs == "all":
        return None
    last = torch.tensor(list(lengths), device=device).cumsum(0) - 1
    return last if outputs == "last" else last[:0]


def _unit(x: Tensor, scale: float = 1.0) -> Tensor:
    return x * (torch.rsqrt(torch.linalg.vecdot(x, x)[..., None] + 1e-6) * scale)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate-half on the first 2 * cos.shape[1] dims of each head; x [T, H, D]."""
    half = cos.shape[-1]
    first, second, rest = x.float().split([half, half, x.shape[-1] - 2 * half], dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)
    return rotated.type_as(x)
