"""The network of `backend.cuda` over a round's rows, five launches a gated-delta layer and six an attention layer; and
over a piece of one prompt, by the kernels of a scoring pass.
"""

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.backend.cuda.job import NONE, Job
from mainspring.backend.cuda.layout import Shape
from mainspring.backend.cuda.network import Attention, Delta, Layer, Network, Tables
from mainspring.backend.cuda.state import CudaState
from mainspring.backend.cuda_slots.arrays import Arrays
from mainspring.backend.cuda_slots.pieces import Pieces
from mainspring.backend.protocol import IntArray
from mainspring.ops.attention.triton_decode import decode
from mainspring.ops.attention_inputs import triton as attention_inputs
from mainspring.ops.gated_delta.triton_step import step
from mainspring.ops.linear import triton_rows as linear
from mainspring.ops.rms_norm.triton import add_rms_norm
from mainspring.ops.swiglu.triton import swiglu


class Rows:
    """Of a round: N lanes of R rows. `plan` and the tables as `ops.rounds.plan` makes them."""

    def __init__(self, network: Network, plan: Tensor, positions: Tensor, owners: Tensor, splits: int) -> None:
        self.plan, self.positions, self.owners, self.splits = plan, positions, owners, splits
        angles = positions.float()[:, None] * network.rates
        self.cos, self.sin = angles.cos(), angles.sin()


class Trunk:
    def __init__(self, network: Network, vocab: int) -> None:
        self.network, self.config = network, network.config
        self.head = network.head[:vocab]
        self._pieces = Pieces(network, self.prompt)

    # ---------------------------------------------------------------- rounds

    def rows(self, tokens: Tensor, at: Rows, arrays: Arrays) -> Tensor:
        """Hidden rows [N R, d] after the final norm; of rows that are not there, anything."""
        h, eps = F.embedding(tokens, self.network.embed), self.config.rms_norm_eps
        parts: Tensor | None = None
        numbers = {Delta: 0, Attention: 0}
        for layer in self.network.layers:
            number = numbers[type(layer.mixer)]
            numbers[type(layer.mixer)] += 1
            h, parts = self.layer(layer, h, parts, at, arrays, number)
        return linear.norm(h, cast(Tensor, parts), self.network.norm, eps)

    def layer(
        self, layer: Layer, h: Tensor, parts: Tensor | None, at: Rows, arrays: Arrays, number: int
    ) -> tuple[Tensor, Tensor]:
        """(residual rows, sums still to be added to them) after a block of the network, `number` among its kind."""
        eps = self.config.rms_norm_eps
        h, p = linear.normed(h, parts, layer.mixer_norm, layer.mixer.in_proj, eps)
        if isinstance(layer.mixer, Delta):
            parts = self._delta(layer.mixer, p, at, arrays, number)
        else:
            parts = self._attention(layer.mixer, p, at, arrays, number)
        h, inner = linear.normed(h, parts, layer.mlp_norm, layer.gate_up, eps, swiglu=True)
        return h, linear.summed(inner, layer.down)

    def _delta(self, w: Delta, p: Tensor, at: Rows, arrays: Arrays, number: int) -> Tensor:
        channels, wide = self.network.heads.channels, self.config.value_dim
        o = p.new_empty(len(p), wide)
        step(
            p, w.conv, w.A_log, w.dt_bias, o, heads=self.network.heads, plan=at.plan, memory=arrays.memory, layer=number
        )
        return linear.gated(o, p[:, channels : channels + wide], w.norm, w.out_proj, self.config.rms_norm_eps)

    def _attention(self, w: Attention, p: Tensor, at: Rows, arrays: Arrays, number: int) -> Tensor:
        c = self.config
        groups, size = c.num_key_value_heads, c.head_dim
        k, v = (part.unflatten(1, (groups, size)) for part in p[:, -2 * groups * size :].split(groups * size, dim=1))
        gate = p[:, : w.queries].unflatten(1, (c.num_attention_heads, 2 * size))
        q = attention_inputs.store_keys_values(
            k, v, w.k_norm, at.cos, at.sin, c.rms_norm_eps, owners=at.owners, places=at.positions,
            stores=arrays.stores, own=p, layer=number, x=gate, q_weight=w.q_norm,
        )  # fmt: skip
        o = decode(q, gate, plan=at.plan, stores=arrays.stores, groups=groups, splits=at.splits, layer=number)
        return linear.summed(o.flatten(1), w.out_proj)

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, V] fp32."""
        return linear.plain(hidden, self.head, torch.float32)

    # ---------------------------------------------------------------- prompts

    def piece(self, tokens: IntArray, state: CudaState) -> Tensor:
        """Move the state, which has room, over tokens [T]; hidden rows [T, d]."""
        hidden = self._pieces.run(Job([tokens], [state], NONE, NONE, NONE, NONE, NONE))
        state.advanced(len(tokens))
        return hidden

    def prompt(self, tables: Tables, shape: Shape) -> Tensor:
        """Hidden rows [rows of the shape, d] of one view that its state is moved over."""
        network, eps, t = self.network, self.config.rms_norm_eps, tables.of
        h = F.embedding(t.tokens, network.embed)
        angles = t.positions.float()[:, None] * network.rates
        rotary = angles.cos(), angles.sin()
        y: Tensor | None = None
        numbers = {Delta: 0, Attention: 0}
        for layer in network.layers:
            number = numbers[type(layer.mixer)]
            numbers[type(layer.mixer)] += 1
            h, x = add_rms_norm(h, y, layer.mixer_norm, eps)
            if isinstance(layer.mixer, Delta):
                y = network._delta(layer.mixer, x, t, shape, number, final=False)
            else:
                y = network._attention(layer.mixer, x, rotary, t, shape, number, final=False)
            h, x = add_rms_norm(h, y, layer.mlp_norm, eps)
            y = F.linear(swiglu(F.linear(x, layer.gate_up)), layer.down)
        return add_rms_norm(h, y, network.norm, eps)[1]
