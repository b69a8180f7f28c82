"""The served network's forward over padded batches, differentiable: views [B, T] and N branches each, which fork them.

The same parameters (`model.Hybrid`), the same maths as `extend` on ragged rows: a test compares the two. Padding is
exact: rows past a sequence's end have beta 0 and decay 1, and no later row reads their keys. In-chunk systems and the
recurrence are fp32; products follow autocast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.model.hybrid import Block, GatedAttention, GatedDeltaNet, Hybrid, RMSNorm

CHUNK = 64


@dataclass(frozen=True)
class Batch:
    """Token ids; lengths count real tokens. A branch that is not there has length 1 and weight 0."""

    views: Tensor  # [B, T]
    view_lengths: Tensor  # [B]
    branches: Tensor  # [B, N, L]
    branch_lengths: Tensor  # [B, N]


@dataclass(frozen=True)
class _Layout:
    view_mask: Tensor  # [B, T, 1] 1 where a token is
    branch_mask: Tensor  # [B * N, L, 1]
    history: Tensor  # [B, K - 1] places of the last conv inputs in a view padded by K - 1 rows on the left
    reach: Tensor  # [B, 1, N * L, T + N * L] keys that branch queries see
    view_turn: tuple[Tensor, Tensor]  # cos, sin [1, T, 1, R / 2]
    branch_turn: tuple[Tensor, Tensor]  # [B * N, L, 1, R / 2]
    dropout: float


def label_logits(
    model: Hybrid, embedding: Tensor, batch: Batch, label_ids: Tensor, *, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Label logits [B, N, labels] fp32 at each branch's last token; views [B, T, d] before the last norm."""
    B, N, L = batch.branches.shape
    layout = _layout(model, batch, dropout)
    views = F.embedding(batch.views, embedding)
    branches = F.embedding(batch.branches.view(B * N, L), embedding)
    for block in model.blocks:
        views, branches = _block(cast(Block, block), views, branches, layout)
    last = (batch.branch_lengths.view(-1, 1, 1) - 1).expand(-1, 1, branches.shape[-1])
    hidden = _norm(branches.gather(1, last)[:, 0], model.norm).view(B, N, -1)
    return hidden @ embedding[label_ids].T.float(), views


def text_states(model: Hybrid, embedding: Tensor, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
    """States [B, T, d] after each block, of texts [B, T] padded on the right, without branches."""
    mask, turn = text_layout(model, tokens, lengths)
    h, found = F.embedding(tokens, embedding), []
    for block in model.blocks:
        h = text_block(cast(Block, block), h, mask, turn)
        found.append(h)
    return found


def text_layout(model: Hybrid, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(mask [B, T, 1], angles of the positions) that `text_block` takes."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    return (at < lengths[:, None])[..., None], _turn(at[None], _rates(model, tokens.device))


def text_block(block: Block, h: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    x = _norm(h, block.mixer_norm)
    if isinstance(block.mixer, GatedDeltaNet):
        mixed = _delta_text(block.mixer, x, mask)[0]
    else:
        mixed = _attention_text(block.mixer, x, turn)[0]
    return _mlp(block, h + mixed, 0.0)


def next_token_loss(views: Tensor, embedding: Tensor, spread: Tensor, batch: Batch, rows: int) -> Tensor:
    """Mean cross-entropy of the views' next tokens at `rows` places drawn at random; `spread` [d] scales the states."""
    B, T = batch.views.shape
    inside = torch.arange(T - 1, device=views.device) < batch.view_lengths[:, None] - 1
    lots = torch.rand(B, T - 1, device=views.device) + inside
    place = lots.flatten().topk(min(rows, B * (T - 1))).indices
    weight = inside.flatten()[place].float()
    state = F.rms_norm(views[:, :-1].flatten(0, 1)[place].float(), (views.shape[-1],)) * spread
    losses = F.cross_entropy(F.linear(state, embedding).float(), batch.views[:, 1:].flatten()[place], reduction="none")
    return (losses * weight).sum() / weight.sum().clamp(min=1)


def _layout(model: Hybrid, batch: Batch, dropout: float) -> _Layout:
    B, N, L = batch.branches.shape
    T, device, config = batch.views.shape[1], batch.views.device, model.config
    at, inner = torch.arange(T, device=device), torch.arange(L, device=device)
    seen = at < batch.view_lengths[:, None]
    own = (inner[:, None] >= inner).repeat(N, N) & torch.block_diag(*[torch.ones(L, L, device=device)] * N).bool()
    reach = torch.cat([seen[:, None].expand(B, N * L, T), own.expand(B, N * L, N * L)], dim=2)
    places = batch.view_lengths[:, None] + torch.arange(config.linear_conv_kernel_dim - 1, device=device)
    rates = _rates(model, device)
    start = batch.view_lengths.repeat_interleave(N)[:, None] + inner
    return _Layout(
        view_mask=seen[..., None],
        branch_mask=(inner < batch.branch_lengths.view(-1, 1))[..., None],
        history=places,
        reach=reach[:, None],
        view_turn=_turn(at[None], rates),
        branch_turn=_turn(start, rates),
        dropout=dropout,
    )


def _rates(model: Hybrid, device: torch.device) -> Tensor:
    c = model.config
    return c.rope_theta ** (-torch.arange(0, c.rotary_dim, 2, device=device).float() / c.rotary_dim)


def _turn(positions: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    angles = (positions[..., None].float() * rates)[:, :, None]
    return angles.cos(), angles.sin()


def _block(block: Block, views: Tensor, branches: Tensor, layout: _Layout) -> tuple[Tensor, Tensor]:
    mixer: Callable[..., tuple[Tensor, Tensor]] = _delta if isinstance(block.mixer, GatedDeltaNet) else _attention
    mixed = mixer(block.mixer, _norm(views, block.mixer_norm), _norm(branches, block.mixer_norm), layout)
    return tuple(  # type: ignore[return-value]
        _mlp(block, h + _dropped(m, layout.dropout), layout.dropout)
        for h, m in zip((views, branches), mixed, strict=True)
    )


def _mlp(block: Block, h: Tensor, dropout: float) -> Tensor:
    return h + _dropped(block.mlp(_norm(h, block.mlp_norm)), dropout)


def _dropped(x: Tensor, share: float) -> Tensor:
    return F.dropout(x, share) if share else x  # a share of 0 would still draw and keep a mask


def _norm(x: Tensor, norm: RMSNorm) -> Tensor:
    return F.rms_norm(x.float(), (x.shape[-1],), 1.0 + norm.weight.float(), norm.eps)


# --- gated delta rule ---


def _delta(mixer: GatedDeltaNet, views: Tensor, branches: Tensor, layout: _Layout) -> tuple[Tensor, Tensor]:
    B, N = len(views), len(branches) // len(views)
    out, state, padded = _delta_text(mixer, views, layout.view_mask)
    history = padded.gather(1, layout.history[..., None].expand(-1, -1, padded.shape[-1])).repeat_interleave(N, 0)
    ub, *branch_gates = mixer.in_proj(branches)
    forked = state[:, None].expand(B, N, *state.shape[1:]).flatten(0, 1)
    branch_out, _ = _rule(mixer, torch.cat([history, ub], 1), branch_gates, layout.branch_mask, forked)
    return out, branch_out


def _delta_text(mixer: GatedDeltaNet, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(mixed rows, last state, the convolution's inputs with their zeros before them)."""
    u, *gates = mixer.in_proj(x)
    padded = F.pad(u, (0, 0, mixer.conv.shape[1] - 1, 0))
    return *_rule(mixer, padded, gates, mask, None), padded


def _rule(
    mixer: GatedDeltaNet, u: Tensor, gates: list[Tensor], mask: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    c = mixer.config
    z, b, a = gates
    T = z.shape[1]
    C = min(CHUNK, T)
    if extra := -T % C:
        u, b, a, mask = (F.pad(x, (0, 0, 0, extra)) for x in (u, b, a, mask))
    sizes = (c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim)
    parts = _inputs(u, mixer.conv, b, a, mask, mixer.A_log, mixer.dt_bias, sizes, C)
    with torch.autocast(u.device.type, enabled=False):
        o, state = _scan(parts, state)
    return mixer.out_proj(_gated(o, mixer.norm, z, c.rms_norm_eps)), state


def _inputs(
    u: Tensor, weight: Tensor, b: Tensor, a: Tensor, mask: Tensor, A_log: Tensor, dt_bias: Tensor,
    sizes: tuple[int, int, int], C: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Convolved, normed, and cut into chunks: Q, K, V [M, n, Hv, C, d], beta and summed log decay [M, n, Hv, C, 1]."""
    Hk, Hv, dk = sizes
    K = weight.shape[1]
    T = u.shape[1] - K + 1
    parts = [u[:, j : j + T] * weight[:, j].to(u.dtype) for j in range(K)]
    q, k, v = F.silu(sum(parts[1:], parts[0])).float().split([Hk * dk, Hk * dk, u.shape[-1] - 2 * Hk * dk], -1)
    q, k = (_unit(x.unflatten(-1, (Hk, dk))) for x in (q, k))
    if Hv != Hk:
        q, k = q.repeat_interleave(Hv // Hk, 2), k.repeat_interleave(Hv // Hk, 2)
    beta = b.float().sigmoid() * mask
    g = -A_log.exp() * F.softplus(a.float() + dt_bias) * mask
    rows = (q * dk**-0.5, k, v.unflatten(-1, (Hv, -1)), beta[..., None], g[..., None])
    Q, K_, V, beta, g = (x.unflatten(1, (-1, C)).transpose(2, 3).contiguous() for x in rows)
    return Q, K_, V, beta, g.cumsum(-2)


def _scan(parts: tuple[Tensor, ...], S: Tensor | None) -> tuple[Tensor, Tensor]:
    """The rule from state S [M, H, dk, dv] over chunks: (o [M, n * C, H, dv], last state). See `ops.gated_delta`."""
    Q, K, V, beta, c = parts
    M, n, H, C, dv = V.shape
    A, within, V, K_in, K_out, Q, decay = _decayed(K @ K.mT, Q @ K.mT, Q, K, V, beta, c)
    inverse = torch.linalg.solve_triangular(
        A, torch.eye(C, device=V.device).expand_as(A), upper=False, unitriangular=True
    )
    state = V.new_zeros(M, H, K.shape[-1], dv) if S is None else S
    states, news = [], []
    for i in range(n):
        states.append(state)
        new = inverse[:, i] @ (V[:, i] - K_in[:, i] @ state)
        state = state * decay[:, i] + K_out[:, i].mT @ new
        news.append(new)
    out = Q @ torch.stack(states, 1) + within @ torch.stack(news, 1)
    return out.transpose(2, 3).reshape(M, n * C, H, dv), state


def _decayed(KK: Tensor, QK: Tensor, Q: Tensor, K: Tensor, V: Tensor, beta: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    D = (c - c.mT).clamp(max=0).exp()
    grow, last = c.exp(), c[..., -1:, :]
    return KK * beta * D, (QK * D).tril(), V * beta, K * (beta * grow), K * (last - c).exp(), Q * grow, last.exp()


def _gated(o: Tensor, weight: Tensor, z: Tensor, eps: float) -> Tensor:
    o = F.rms_norm(o[:, : z.shape[1]], (o.shape[-1],), weight.float(), eps)
    return o.flatten(-2) * F.silu(z.float())


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


# --- attention ---


def _attention(mixer: GatedAttention, views: Tensor, branches: Tensor, layout: _Layout) -> tuple[Tensor, Tensor]:
    B = len(views)
    out, k, v = _attention_text(mixer, views, layout.view_turn)
    qb, gate_b, kb, vb = (_joined(x, B) for x in _heads(mixer, branches, layout.branch_turn))
    keys, values = torch.cat([k, kb], 2), torch.cat([v, vb], 2)
    if qb.shape[1] != k.shape[1]:  # the kernels that take a mask want equal heads
        keys, values = (x.repeat_interleave(qb.shape[1] // k.shape[1], 1) for x in (keys, values))
    branch_out = F.scaled_dot_product_attention(qb, keys, values, attn_mask=layout.reach)
    return out, _merged(mixer, branch_out, gate_b).view(branches.shape)


def _attention_text(mixer: GatedAttention, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """(mixed rows, keys and values [B, heads, T, D])."""
    q, gate, k, v = _heads(mixer, x, turn)
    many: dict[str, Any] = {"enable_gqa": q.shape[1] != k.shape[1]}
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, **many)
    return _merged(mixer, out, gate), k, v


def _heads(mixer: GatedAttention, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, gate, k, v [M, heads, T, D]."""
    c = mixer.config
    M, T = x.shape[:2]
    q, gate = mixer.q_proj(x).view(M, T, c.num_attention_heads, -1).chunk(2, -1)
    k, v = (part.view(M, T, c.num_key_value_heads, -1) for part in mixer.kv_proj(x))
    q, k = (_rotate(_norm(x, norm), *turn).to(v.dtype) for x, norm in ((q, mixer.q_norm), (k, mixer.k_norm)))
    return q.transpose(1, 2), gate.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = cos.shape[-1]
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def _joined(x: Tensor, B: int) -> Tensor:
    """[B * N, H, L, D] -> [B, H, N * L, D]."""
    M, H, L, D = x.shape
    return x.view(B, M // B, H, L, D).transpose(1, 2).reshape(B, H, -1, D)


def _merged(mixer: GatedAttention, out: Tensor, gate: Tensor) -> Tensor:
    rows = (out * gate.sigmoid()).transpose(1, 2)
    return mixer.o_proj(rows.reshape(*rows.shape[:2], -1))
