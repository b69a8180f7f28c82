"""The mixers of `model.hybrid` as prompts and rounds need them: the same weights and maths, another way through.

A prompt's piece scans in chunks and stops on its way for checkpoints. A round's rows belong to several slots; all
products are over all rows, everything that looks along a sequence is a slot's own, so company can't change it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.backend.torch_slots.shapes import sigmoid, silu, softplus
from mainspring.backend.torch_slots.slot import Slot
from mainspring.model.config import HybridConfig
from mainspring.model.hybrid import MLP
from mainspring.ops.attention import tiled
from mainspring.ops.gated_delta.chunked import gated_delta
from mainspring.ops.gated_delta.step import step

Product = Callable[[Any, Tensor], Any]
"""(module, x) -> what the module makes of rows x, by kernels that do not depend on how many there are."""


class Place(NamedTuple):
    """Rows first : first + rows of a round are this slot's; `shape` rows are there, padding included."""

    slot: Slot
    first: int
    rows: int
    shape: int
    mask: Tensor
    start: int


class Snapshot(NamedTuple):
    """A delta layer at one position on the way."""

    recurrent: Tensor
    conv: Tensor


def angles(config: HybridConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos, sin [T, rotary_dim / 2]."""
    R = config.rotary_dim
    rates = config.rope_theta ** (-torch.arange(0, R, 2, dtype=torch.float32) / R)
    turned = positions.float()[:, None] * rates
    return turned.cos(), turned.sin()


# ---------------------------------------------------------------- gated delta rule


def delta_piece(
    product: Product, mixer: Any, x: Tensor, slot: Slot, layer: int, saves: Sequence[int], select: slice
) -> tuple[Tensor, list[Snapshot]]:
    """Rows x [T, d] of a prompt from the slot's position; its state moves along. Output rows `select`."""
    u, z, b, a = product(mixer.in_proj, x)
    start, T, memory = slot.length, len(x), slot.conv.shape[1]
    extended = torch.cat([slot.conv[layer], u])
    q, k, v = _heads(mixer.config, silu(_conv_piece(extended, mixer.conv)))
    beta, g = _gates(mixer, b, a)
    S, outputs, taken, row = slot.front(layer), [], [], 0
    for end in sorted({*(save - start for save in saves), T}):
        rows = slice(row, end)
        o, finals = gated_delta(
            q[rows], k[rows], v[rows], beta[rows], g[rows], lengths=[end - row], parents=[0], initial=[S], keep=True
        )
        assert finals is not None  # noqa: S101 - `keep` asked for it
        S, row = finals[0], end
        outputs.append(o)
        if start + end in saves:
            taken.append(Snapshot(S, extended[end : end + memory].clone()))
    slot.front(layer).copy_(S)
    slot.conv[layer] = extended[T:]
    return _delta_out(
        product, mixer, (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[select], z[select]
    ), taken


def delta_round(product: Product, mixer: Any, x: Tensor, places: Sequence[Place], layer: int) -> Tensor:
    u, z, b, a = product(mixer.in_proj, x)
    y = torch.zeros_like(u)
    for slot, first, rows, *_ in places:
        extended = torch.cat([slot.conv[layer], u[first : first + rows]])
        slot.round.extended.append(extended)
        y[first : first + rows] = _conv_rows(extended, mixer.conv, rows)
    q, k, v = _heads(mixer.config, silu(y))
    beta, g = _gates(mixer, b, a)
    decay = g.exp()
    o = torch.zeros_like(v)
    for slot, first, rows, *_ in places:
        own = slice(first, first + rows)
        o[own], written = step(slot.front(layer), slot.back(layer), q[own], k[own], v[own], beta[own], decay[own])
        slot.round.written.append(written)
    return _delta_out(product, mixer, o, z)


def _gates(mixer: Any, b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """(beta, g) [T, Hv]."""
    return sigmoid(b), -mixer.A_log.exp() * softplus(a + mixer.dt_bias)


def _heads(c: HybridConfig, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = y.split([c.key_dim, c.key_dim, c.value_dim], dim=-1)
    Hk, dk = c.linear_num_key_heads, c.linear_key_head_dim
    q, k = (x.reshape(len(y), Hk, dk) for x in (q, k))
    return _unit(q) * dk**-0.5, _unit(k), v.reshape(len(y), c.linear_num_value_heads, -1)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def _conv_piece(extended: Tensor, weight: Tensor) -> Tensor:
    """[T, Ch] of [K - 1 + T, Ch]: channels-last strides, so the library's depthwise kernel reads rows as they lie."""
    Ch, K = weight.shape
    image = extended.view(1, len(extended), 1, Ch).permute(0, 3, 1, 2)
    return F.conv2d(image, weight.view(Ch, 1, K, 1), groups=Ch)[0, :, :, 0].t().contiguous()


def _conv_rows(extended: Tensor, weight: Tensor, rows: int) -> Tensor:
    total = extended[:rows] * weight[:, 0]
    for tap in range(1, weight.shape[1]):
        total += extended[tap : tap + rows] * weight[:, tap]
    return total


def _delta_out(product: Product, mixer: Any, o: Tensor, z: Tensor) -> Tensor:
    c = mixer.config
    o = F.rms_norm(o, (o.shape[-1],), mixer.norm, c.rms_norm_eps)
    gated: Tensor = product(mixer.out_proj, o.reshape(z.shape) * silu(z))
    return gated


# ---------------------------------------------------------------- attention

Rotary = tuple[Tensor, Tensor]


def attention_piece(
    product: Product, mixer: Any, x: Tensor, slot: Slot, layer: int, at: int, rotary: Rotary, select: slice
) -> Tensor:
    """Rows x [T, d] from row `at` of the slot's buffer on, which takes their keys and values. Output rows `select`."""
    buffer = slot.room(at + len(x))
    buffer.put(layer, at, *_keys_values(product, mixer, x, rotary))
    wanted = x[select]
    q, gate = _queries(product, mixer, wanted, (rotary[0][select], rotary[1][select]))
    first = at + (select.start or 0)
    o = tiled.prefill(q, buffer.keys(layer), buffer.values(layer), first) if len(wanted) else q
    return _attention_out(product, mixer, o, gate)


def attention_round(
    product: Product, mixer: Any, x: Tensor, places: Sequence[Place], layer: int, rotary: Rotary
) -> Tensor:
    q, gate = _queries(product, mixer, x, rotary)
    k, v = _keys_values(product, mixer, x, rotary)
    o = torch.zeros_like(q)
    for slot, first, rows, shape, mask, start in places:
        buffer, own = slot.room(start), slice(first, first + shape)
        buffer.put(layer, start, k[first : first + rows], v[first : first + rows])
        o[own] = tiled.decode(q[own], buffer.keys(layer), buffer.values(layer), mask)
    return _attention_out(product, mixer, o, gate)


def _keys_values(product: Product, mixer: Any, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
    c = mixer.config
    k, v = (part.reshape(len(x), c.num_key_value_heads, c.head_dim) for part in product(mixer.kv_proj, x))
    return _rotate(mixer.k_norm(k), rotary), v


def _queries(product: Product, mixer: Any, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
    c = mixer.config
    q, gate = product(mixer.q_proj, x).view(len(x), c.num_attention_heads, 2 * c.head_dim).chunk(2, dim=-1)
    return _rotate(mixer.q_norm(q), rotary), gate


def _attention_out(product: Product, mixer: Any, o: Tensor, gate: Tensor) -> Tensor:
    out: Tensor = product(mixer.o_proj, (o * sigmoid(gate)).flatten(1))
    return out


def _rotate(x: Tensor, rotary: Rotary) -> Tensor:
    cos, sin = (part[:, None] for part in rotary)
    half = cos.shape[-1]
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


# ---------------------------------------------------------------- MLP


def mlp(product: Product, module: Any, x: Tensor) -> Tensor:
    if not isinstance(module, MLP):
        packed: Tensor = product(module, x)
        return packed
    gate, up = product(module.gate_up_proj, x)
    out: Tensor = product(module.down_proj, silu(gate) * up)
    return out
