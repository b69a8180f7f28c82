"""The hybrid network's forward over one packed pass, on the kernels of `ops` and the library's matrix products.

Views and branches are rows of one matrix, views first, so every product is one product; convolution, recurrence and
attention tell them apart by the tables (`layout`). In the last layer view rows leave keys and values (or a state) and
nothing else, and of the branches only their last rows go on. Activations are in the weights' type, norms, gates, states
and sums in fp32.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.backend.cuda.job import Job
from mainspring.backend.cuda.layout import WIDE, Grid, Shape, fields
from mainspring.model.hybrid import Block, GatedAttention, GatedDeltaNet, Hybrid
from mainspring.ops.attention import tiles
from mainspring.ops.attention import triton as attention
from mainspring.ops.attention_inputs import triton as attention_inputs
from mainspring.ops.delta_inputs import Heads
from mainspring.ops.delta_inputs import triton as delta_inputs
from mainspring.ops.gated_delta import triton as gated_delta
from mainspring.ops.label_logits.triton import label_logits
from mainspring.ops.rms_norm.triton import add_rms_norm, gated_rms_norm
from mainspring.ops.swiglu.triton import swiglu

SMALL_ROWS = 2_048
"""Up to so many rows, on views of which none is long, attention goes in small tiles."""


@dataclass(frozen=True)
class Delta:
    in_proj: Tensor  # [q k v | z | b | a] rows
    conv: Tensor
    A_log: Tensor
    dt_bias: Tensor
    norm: Tensor
    out_proj: Tensor


@dataclass(frozen=True)
class Attention:
    in_proj: Tensor  # [(q | gate) a head | k | v] rows
    queries: int  # rows of the first part
    q_norm: Tensor
    k_norm: Tensor
    out_proj: Tensor


@dataclass(frozen=True)
class Layer:
    mixer_norm: Tensor
    mixer: Delta | Attention
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Tables:
    """Views of one device buffer by name, see `layout.fields`."""

    def __init__(self, buffer: Tensor, shape: Shape) -> None:
        named: dict[str, Tensor] = {}
        for name, size, begin, end in fields(shape):
            named[name] = buffer[begin:end].view(torch.int64 if name in WIDE else torch.int32).view(size)
        self.of = SimpleNamespace(**named)


class Network:
    """Weights where and as the kernels want them; stateless."""

    def __init__(self, model: Hybrid, *, segment_rows: int = 0, mixes: bool = True) -> None:
        """Takes the model's own tensors; those of attention layers are joined, so the model is not to be used again.
        `segment_rows`: long views in parts of so many rows in the delta rule, 0: whole. `mixes`: attention of small
        passes in one launch a layer."""
        c = self.config = model.config
        self.embed, self.head = model.embed.weight, model.head.weight
        self.norm = model.norm.weight
        self.layers = [_layer(cast(Block, block)) for block in model.blocks]
        self.heads = Heads(c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim)
        # Of fp32 and large heads, a segment's walk takes more shared memory than there is (288 KB of 227).
        fits = self.embed.element_size() == 2 or c.linear_key_head_dim <= 64
        self.segment_rows = segment_rows if fits else 0
        few, many = attention.tilings(c.head_dim, self.embed.element_size())
        self.small, self.large = self._grid(*few)._replace(mixes=mixes and few[0] == few[1]), self._grid(*many)
        self.tilings = {self.small: few, self.large: many}
        R = c.rotary_dim
        self.rates = c.rope_theta ** (-torch.arange(0, R, 2, device=self.embed.device, dtype=torch.float32) / R)

    def grid(self, job: Job) -> Grid:
        """How attention is cut in a pass."""
        lengths = job.lengths
        return self.small if lengths.rows <= SMALL_ROWS and lengths.longest <= tiles.SPLIT_KEYS else self.large

    def _grid(self, views: attention.Tiling, branches: attention.Tiling) -> Grid:
        c = self.config
        ratio = c.num_attention_heads // c.num_key_value_heads
        return Grid(
            views.query_rows(ratio), views.keys, branches.query_rows(ratio), branches.keys,
            c.linear_conv_kernel_dim - 1, self.segment_rows,
        )  # fmt: skip

    def forward(self, tables: Tables, shape: Shape) -> Tensor:
        """Label logits [shape.labels] fp32; states are written where the tables say."""
        t, eps = tables.of, self.config.rms_norm_eps
        h = F.embedding(t.tokens, self.embed)
        angles = t.positions.float()[:, None] * self.rates
        rotary = angles.cos(), angles.sin()
        y: Tensor | None = None
        numbers = {Delta: 0, Attention: 0}
        for i, layer in enumerate(self.layers):
            final = i == len(self.layers) - 1
            h, x = add_rms_norm(h, y, layer.mixer_norm, eps)
            number = numbers[type(layer.mixer)]
            numbers[type(layer.mixer)] += 1
            if isinstance(layer.mixer, Delta):
                y = self._delta(layer.mixer, x, t, shape, number, final)
            else:
                y = self._attention(layer.mixer, x, rotary, t, shape, number, final)
            if final:
                h = h.index_select(0, t.last_rows)
            h, x = add_rms_norm(h, y, layer.mlp_norm, eps)
            y = F.linear(swiglu(F.linear(x, layer.gate_up)), layer.down)
        return label_logits(h if y is None else h + y, self.norm, self.head, t.label_rows, t.label_ids, eps)

    def _delta(self, w: Delta, x: Tensor, t: SimpleNamespace, shape: Shape, number: int, final: bool) -> Tensor:
        p = F.linear(x, w.in_proj)
        memory, channels = shape.grid.memory, self.heads.channels
        offset = number * 2 * memory * channels * p.element_size()
        q, k, v, beta, g = delta_inputs.launch(
            p, w.conv, w.A_log, w.dt_bias, heads=self.heads, taps=t.taps, tails=t.tails,
            history=t.history, tail_to=t.tail_to, offset=offset,
        )  # fmt: skip
        o = torch.empty_like(v)
        n = shape.view_rows
        if n:
            rows = (part[:n] for part in (q, k, v, beta, g, o))
            gated_delta.scan(
                *rows, chunks=t.chunks, spans=t.spans, sources=t.sources, targets=t.targets, layer=number,
                segments=t.segments if shape.segments else None,
            )  # fmt: skip
        if shape.branches:
            rows = (part[n:] for part in (q, k, v, beta, g, o))
            gated_delta.fork(
                *rows, spans=t.fork_spans, parents=t.parents, states=t.forks, layer=number, long=shape.long
            )
        z = p[:, channels : channels + self.config.value_dim]
        if final:
            o, z = (part.index_select(0, t.last_rows) for part in (o, z))
        return F.linear(gated_rms_norm(o, z, w.norm, self.config.rms_norm_eps), w.out_proj)

    def _attention(
        self, w: Attention, x: Tensor, rotary: tuple[Tensor, Tensor], t: SimpleNamespace, shape: Shape, number: int,
        final: bool,
    ) -> Tensor:  # fmt: skip
        c = self.config
        G, D, eps = c.num_key_value_heads, c.head_dim, c.rms_norm_eps
        cos, sin = rotary
        p = F.linear(x, w.in_proj[w.queries :] if final else w.in_proj)
        k, v = (part.unflatten(1, (G, D)) for part in p[:, -2 * G * D :].split(G * D, dim=1))
        asked = F.linear(x.index_select(0, t.last_rows), w.in_proj[: w.queries]) if final else p[:, : w.queries]
        gate = asked.unflatten(1, (c.num_attention_heads, 2 * D))
        own = x.new_empty(shape.branch_rows, 2, G, D)
        together = {} if final else {"x": gate, "q_weight": w.q_norm}
        q = attention_inputs.store_keys_values(
            k, v, w.k_norm, cos, sin, eps,
            owners=t.owners, places=t.places, stores=t.stores, own=own, layer=number, **together,
        )  # fmt: skip
        if final:
            q_cos, q_sin = (part.index_select(0, t.last_rows) for part in rotary)
            q = attention_inputs.queries(gate, w.q_norm, q_cos, q_sin, eps)
        o = torch.empty_like(q)
        n = 0 if final else shape.view_rows
        common = {"stores": t.stores, "groups": G, "layer": number}
        for_views, for_branches = self.tilings[shape.grid]
        if n and shape.mixed:
            attention.attend(
                q, o, gate=gate, items=t.mixed, first=t.first, last=t.places, own=own, views=n, tiling=for_views,
                **common,
            )  # fmt: skip
            return F.linear(o.flatten(1), w.out_proj)
        if n:
            attention.attend(q[:n], o[:n], gate=gate[:n], items=t.view_items, last=t.places, tiling=for_views, **common)
        if shape.branches:
            prefix = "last_" if final else ""
            first, last, items, table = (getattr(t, prefix + name) for name in ("first", "last", "items", "tiles"))
            attention.attend(
                q[n:], o[n:], gate=gate[n:], items=items, first=first, last=last, own=own, table=table,
                split=shape.split, tiling=for_branches, **common,
            )  # fmt: skip
        return F.linear(o.flatten(1), w.out_proj)


def _layer(block: Block) -> Layer:
    mixer = block.mixer
    if isinstance(mixer, GatedDeltaNet):
        made: Delta | Attention = Delta(
            mixer.in_proj.weight,
            mixer.conv.T.contiguous().T,
            mixer.A_log,
            mixer.dt_bias,
            mixer.norm,
            mixer.out_proj.weight,
        )
    elif isinstance(mixer, GatedAttention):
        q, kv = mixer.q_proj.weight, mixer.kv_proj.weight
        made = Attention(torch.cat([q, kv]), len(q), mixer.q_norm.weight, mixer.k_norm.weight, mixer.o_proj.weight)
        del mixer.q_proj, mixer.kv_proj
    else:
        raise TypeError(f"no layer is made of {type(mixer).__name__}")
    return Layer(
        block.mixer_norm.weight, made, block.mlp_norm.weight, block.mlp.gate_up_proj.weight, block.mlp.down_proj.weight
    )
