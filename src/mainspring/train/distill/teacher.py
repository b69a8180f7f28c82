"""SmolLM2 (llama architecture) from its GGUF file: whole padded texts at once, or one token a row with a fixed cache.

Frozen. Angles, norms and attention weights are fp32, products in the weights' type. Source: Touvron et al. 2023 for the
architecture; llama files keep q and k rows in the order of interleaved rotation, which is undone here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mainspring.train.gguf import Gguf

MOST_COUNT = 1 << 20  # layers, heads, widths


@dataclass(frozen=True)
class TeacherShape:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float

    @classmethod
    def of(cls, source: Gguf) -> "TeacherShape":
        if (kind := source.field("general.architecture", str)) != "llama":
            raise ValueError(f"{source.path.name} has architecture {kind!r}; a teacher is a llama model")

        def count(name: str) -> int:
            if not 1 <= (found := source.field(f"llama.{name}", int)) <= MOST_COUNT:
                raise ValueError(f"{source.path.name}: llama.{name} is not between 1 and {MOST_COUNT:,}")
            return int(found)

        heads, kv_heads, width = (
            count("attention.head_count"),
            count("attention.head_count_kv"),
            count("embedding_length"),
        )
        if width % (2 * heads) or heads % kv_heads:
            raise ValueError(f"{source.path.name}: {heads} heads, {kv_heads} of keys, do not share a width of {width}")
        vocab = source.tensors.get("token_embd.weight", ((), 0, 0))[0]
        if len(vocab) != 2 or vocab[1] != len(source.field("tokenizer.ggml.tokens", list)):
            raise ValueError(f"{source.path.name}: token_embd.weight is no matrix with a row for every token")
        return cls(
            vocab_size=vocab[1],
            hidden_size=width,
            intermediate_size=count("feed_forward_length"),
            layers=count("block_count"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=width // heads,
            rope_theta=source.field("llama.rope.freq_base", float),
            eps=source.field("llama.attention.layer_norm_rms_epsilon", float),
        )


class TeacherLayer(nn.Module):
    def __init__(self, source: Gguf, number: int, shape: TeacherShape) -> None:
        super().__init__()
        self.shape = shape

        def read(name: str) -> Tensor:
            return torch.from_numpy(source.rows(f"blk.{number}.{name}.weight"))

        q, k = (_halves(read(f"attn_{n}"), h) for n, h in (("q", shape.heads), ("k", shape.kv_heads)))
        self.register_buffer("qkv", torch.cat([q, k, read("attn_v")]))
        self.register_buffer("out", read("attn_output"))
        self.register_buffer("gate_up", torch.cat([read("ffn_gate"), read("ffn_up")]))
        self.register_buffer("down", read("ffn_down"))
        self.register_buffer("mixer_norm", read("attn_norm"))
        self.register_buffer("mlp_norm", read("ffn_norm"))

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    mixer_norm: Tensor
    mlp_norm: Tensor

    def heads(self, h: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q [B, T, Hq, D], k and v [B, T, Hkv, D], q and k rotated."""
        s = self.shape
        x = F.linear(_norm(h, self.mixer_norm, s.eps), self.qkv).unflatten(-1, (-1, s.head_dim))
        q, k, v = x.split([s.heads, s.kv_heads, s.kv_heads], 2)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def mlp(self, h: Tensor) -> Tensor:
        gate, up = F.linear(_norm(h, self.mlp_norm, self.shape.eps), self.gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down)


class Teacher(nn.Module):
    def __init__(self, source: Gguf) -> None:
        super().__init__()
        self.shape = TeacherShape.of(source)
        self.register_buffer("embed", torch.from_numpy(source.rows("token_embd.weight")))
        self.register_buffer("norm", torch.from_numpy(source.rows("output_norm.weight")))
        head = "output.weight"
        self.head: Tensor | None
        self.register_buffer("head", torch.from_numpy(source.rows(head)) if head in source.tensors else None)
        self.layers = nn.ModuleList(TeacherLayer(source, i, self.shape) for i in range(self.shape.layers))

    embed: Tensor
    norm: Tensor

    @torch.no_grad()
    def forward(self, tokens: Tensor, taps: Sequence[int] = ()) -> tuple[Tensor, list[Tensor]]:
        """tokens [B, T], padded on the right -> (rows before the head [B, T, d], states after the layers `taps`)."""
        cos, sin = self._angles(torch.arange(tokens.shape[1], device=tokens.device))
        h, kept = F.embedding(tokens, self.embed), {}
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, TeacherLayer)  # noqa: S101 - for the type checker
            q, k, v = (x.transpose(1, 2) for x in layer.heads(h, cos, sin))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            h = h + F.linear(out.transpose(1, 2).flatten(2), layer.out)
            h = h + layer.mlp(h)
            if i in taps:
                kept[i] = h
        return _norm(h, self.norm, self.shape.eps), [kept[i] for i in taps]

    def logits(self, rows: Tensor) -> Tensor:
        """fp32 [..., vocab]."""
        return F.linear(rows, self.embed if self.head is None else self.head).float()

    def new_cache(self, rows: int, capacity: int) -> Tensor:
        s = self.shape
        sizes = (s.layers, 2, rows, s.kv_heads, capacity, s.head_dim)
        return torch.zeros(sizes, dtype=self.embed.dtype, device=self.embed.device)

    @torch.no_grad()
    def step(self, tokens: Tensor, places: Tensor, cache: Tensor) -> Tensor:
        """One token a row: tokens [B] at `places` [B]; K/V go into `cache` in place. Logits [B, vocab] of what follows.

        Shapes do not depend on the places, so a step can be recorded and replayed.
        """
        s = self.shape
        cos, sin = (x[:, None] for x in self._angles(places))
        seen = torch.arange(cache.shape[4], device=tokens.device) <= places[:, None]
        bias = torch.where(seen, 0.0, float("-inf"))[:, None, None]
        row = torch.arange(len(tokens), device=tokens.device)
        h = F.embedding(tokens, self.embed)[:, None]
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, TeacherLayer)  # noqa: S101
            q, k, v = layer.heads(h, cos, sin)
            cache[i, 0, row, :, places], cache[i, 1, row, :, places] = k[:, 0], v[:, 0]
            # Heads of a group lie beside each other, so a group's queries are one product with its keys.
            q = q[:, 0].unflatten(1, (s.kv_heads, -1))
            weights = (q @ cache[i, 0].mT).float() * s.head_dim**-0.5 + bias
            out = weights.softmax(-1).to(h.dtype) @ cache[i, 1]
            h = h + F.linear(out.flatten(1), layer.out)[:, None]
            h = h + layer.mlp(h)
        return self.logits(_norm(h[:, 0], self.norm, s.eps))

    def _angles(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [n, 1, D / 2] fp32."""
        half = torch.arange(0, self.shape.head_dim, 2, device=places.device).float() / self.shape.head_dim
        angles = (places.float()[:, None] * self.shape.rope_theta**-half)[:, None]
        return angles.cos(), angles.sin()


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of pairs (x0 y0 x1 y1 ...) a head -> (x0 x1 ... y0 y1 ...)."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
