"""A baseline: views, then branches that fork them, on others' kernels and the library's compiler.

What scoring several items against one prefix comes to elsewhere: flash-linear-attention's chunked rule for both phases
(states gathered by parent), the library's variable-length attention twice for branches, joined by log-sum-exps, the
convolution by gathered rows, element-wise work compiled. Launched eagerly. Weights are the given network's own.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

from mainspring.backend import PackedPass
from mainspring.model.config import FULL
from mainspring.model.hybrid import Hybrid

compiled = torch.compile(dynamic=True)


@compiled
def _norm(x: Tensor, w: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * (1 + w)).to(x.dtype)


@compiled
def _add_norm(h: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = h + y
    z = h.float()
    return h, (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6) * (1 + w)).to(h.dtype)


@compiled
def _swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


@compiled
def _gates(b: Tensor, a: Tensor, A_log: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    return b.float().sigmoid(), -A_log.exp() * F.softplus(a.float() + dt)


@compiled
def _gated_norm(o: Tensor, z: Tensor, w: Tensor) -> Tensor:
    y = o.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * w * F.silu(z.float())).to(o.dtype)


@compiled
def _conv(u: Tensor, before: Tensor, w: Tensor) -> Tensor:
    rows = torch.cat([u, u.new_zeros(1, u.shape[1])])
    y = u * w[:, 3]
    for j in range(3):
        y = y + rows[before[:, j]] * w[:, j]
    return F.silu(y)


@compiled
def _rotary(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * (1 + w)
    half = cos.shape[-1]
    a, b, rest = y.split([half, half, y.shape[-1] - 2 * half], dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1).to(x.dtype)


class TwoPhase:
    """`score(work)` gives the label logits of a pass of fresh views."""

    def __init__(self, model: Hybrid) -> None:
        self.model, self.config = model, model.config
        self.joined = {
            i: torch.cat([block.mixer.q_proj.weight, block.mixer.kv_proj.weight])
            for i, block in enumerate(model.blocks)
            if self.config.layer_types[i] == FULL
        }

    @torch.inference_mode()
    def score(self, work: PackedPass) -> np.ndarray:
        m = self._meta(work)
        blocks = self.model.blocks
        h = self.model.embed(m["tokens"])
        x = _norm(h, blocks[0].mixer_norm.weight)
        for i, block in enumerate(blocks):
            y = self._attention(i, block, x, m) if i in self.joined else self._delta(block, x, m)
            h, x = _add_norm(h, y, block.mlp_norm.weight)
            y = _swiglu(F.linear(x, block.mlp.gate_up_proj.weight)) @ block.mlp.down_proj.weight.T
            following = blocks[i + 1].mixer_norm if i + 1 < len(blocks) else self.model.norm
            h, x = _add_norm(h, y, following.weight)
        rows = x[m["last"]].float()
        return torch.linalg.vecdot(rows[m["label_rows"]], self.model.head.weight[m["labels"]].float()).cpu().numpy()

    def _delta(self, block: Any, x: Tensor, m: dict[str, Any]) -> Tensor:
        c, w, Tv = self.config, block.mixer, m["Tv"]
        Hk, Hv, dk = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim
        u, z, b, a = F.linear(x, w.in_proj.weight).split([c.conv_dim, c.value_dim, Hv, Hv], dim=-1)
        y = _conv(u.contiguous(), m["before"], w.conv)
        beta, g = _gates(b, a, w.A_log, w.dt_bias)
        q, k, v = (t.reshape(1, len(x), -1, dk) for t in y.split([Hk * dk, Hk * dk, Hv * dk], dim=-1))
        common = {"use_qk_l2norm_in_kernel": True}
        views, states = chunk_gated_delta_rule(
            *(t[:, :Tv] for t in (q, k, v)), g=g[None, :Tv], beta=beta[None, :Tv], output_final_state=True,
            cu_seqlens=m["cu_views"].long(), **common,
        )  # fmt: skip
        forks, _ = chunk_gated_delta_rule(
            *(t[:, Tv:] for t in (q, k, v)), g=g[None, Tv:], beta=beta[None, Tv:], initial_state=states[m["parents"]],
            cu_seqlens=m["cu_branches"].long(), **common,
        )  # fmt: skip
        o = torch.cat([views[0], forks[0]])
        return F.linear(_gated_norm(o, z.reshape(-1, Hv, dk), w.norm).flatten(1), w.out_proj.weight)

    def _attention(self, i: int, block: Any, x: Tensor, m: dict[str, Any]) -> Tensor:
        c, w, Tv = self.config, block.mixer, m["Tv"]
        Hq, G, D = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        p = F.linear(x, self.joined[i])
        q, gate = p[:, : 2 * Hq * D].view(-1, Hq, 2 * D).chunk(2, dim=-1)
        k, v = (t.reshape(-1, G, D) for t in p[:, 2 * Hq * D :].split(G * D, dim=-1))
        q = _rotary(q, w.q_norm.weight, m["cos"], m["sin"])
        k = _rotary(k, w.k_norm.weight, m["cos"], m["sin"]).repeat_interleave(Hq // G, dim=1)
        v = v.repeat_interleave(Hq // G, dim=1)
        causal = {"window_size": (-1, 0)}
        lse = {"return_aux": AuxRequest(lse=True)}
        cuv, cub, cubv = m["cu_views"], m["cu_branches"], m["cu_asked"]
        views = varlen_attn(q[:Tv], k[:Tv], v[:Tv], cuv, cuv, m["longest"], m["longest"], **causal)
        past, past_lse = varlen_attn(q[Tv:], k[:Tv], v[:Tv], cubv, cuv, m["most"], m["longest"], **lse)[:2]
        own, own_lse = varlen_attn(q[Tv:], k[Tv:], v[Tv:], cub, cub, m["widest"], m["widest"], **causal, **lse)[:2]
        past_lse, own_lse = (getattr(t, "lse", t) for t in (past_lse, own_lse))
        share = torch.sigmoid((past_lse - own_lse).float())
        share = (share.T if share.shape[0] == Hq else share)[..., None].to(q.dtype)
        o = torch.cat([views, past * share + own * (1 - share)])
        return F.linear((o * gate.sigmoid()).flatten(1), w.o_proj.weight)

    def _meta(self, work: PackedPass) -> dict[str, Any]:
        device = self.model.embed.weight.device
        views, branches = work.view_lengths, work.branch_lengths
        cu_views, cu_branches = (np.concatenate([[0], np.cumsum(x)]) for x in (views, branches))
        Tv, T = int(cu_views[-1]), work.rows
        rows = np.arange(T)
        start = np.concatenate([np.repeat(cu_views[:-1], views), Tv + np.repeat(cu_branches[:-1], branches)])
        parent = np.repeat(work.branch_views, branches)
        end = np.concatenate([np.full(Tv, -1), cu_views[1:][parent]])
        before = rows[:, None] - np.arange(3, 0, -1)
        short = before - start[:, None]
        inherited = np.where(end[:, None] >= 0, end[:, None] + short, T)
        before = np.where(short >= 0, before, np.where(np.arange(T)[:, None] < Tv, T, inherited))
        inside = rows - start
        positions = np.concatenate([inside[:Tv], inside[Tv:] + views[parent]])
        asked = np.zeros(len(views), np.int64)
        np.add.at(asked, work.branch_views, branches)
        R = self.config.rotary_dim
        rates = self.config.rope_theta ** (-torch.arange(0, R, 2, device=device) / R)
        angles = torch.from_numpy(positions).to(device).float()[:, None] * rates

        def put(x: np.ndarray, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(x)).to(device, dtype)

        return {
            "tokens": put(np.concatenate([work.view_tokens, work.branch_tokens])), "Tv": Tv, "before": put(before),
            "cu_views": put(cu_views, torch.int32), "cu_branches": put(cu_branches, torch.int32),
            "cu_asked": put(np.concatenate([[0], np.cumsum(asked)]), torch.int32), "parents": put(work.branch_views),
            "longest": int(views.max()), "widest": int(branches.max()), "most": int(asked.max()),
            "cos": angles.cos(), "sin": angles.sin(), "last": put(Tv + cu_branches[1:] - 1),
            "labels": put(work.label_ids), "label_rows": put(np.repeat(np.arange(len(branches)), work.label_counts)),
        }  # fmt: skip
