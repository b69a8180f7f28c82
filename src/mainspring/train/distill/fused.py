"""The heavy parts of both stages on CUDA, with `triton`'s kernels: the same values as the plain ones, in a third of the
time (docs/writer.md)."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.ops.rms_norm.triton import add_rms_norm
from mainspring.ops.swiglu.triton import swiglu
from mainspring.train.distill.config import Writing
from mainspring.train.distill.teacher import Teacher, TeacherLayer
from mainspring.train.distill.triton import aim, attend, compare, draw, rotate


class Quick:
    """A teacher's forwards, its norms, rotation and gating as one kernel each. Its weights are those of `teacher`."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher
        self.layers: list[TeacherLayer] = list(teacher.layers)  # type: ignore[arg-type]
        # The norm's kernel adds 1 to its weights.
        self.norms = [(layer.mixer_norm.float() - 1, layer.mlp_norm.float() - 1) for layer in self.layers]
        self.last = teacher.norm.float() - 1

    @torch.no_grad()
    def __call__(self, tokens: Tensor, taps: Sequence[int] = ()) -> tuple[Tensor, list[Tensor]]:
        """As `Teacher.forward`."""
        t, s, (B, T) = self.teacher, self.teacher.shape, tokens.shape  # noqa: N806
        cos, sin = (x[:, 0].contiguous() for x in t._angles(torch.arange(T, device=tokens.device)))
        h, kept = F.embedding(tokens.flatten(), t.embed), {}
        y: Tensor | None = None
        for i, layer in enumerate(self.layers):
            h, x = add_rms_norm(h, y, self.norms[i][0], s.eps)
            if i - 1 in taps:
                kept[i - 1] = h.view(B, T, -1)
            qkv = F.linear(x, layer.qkv).view(B, T, -1)
            rotate(qkv, cos, sin, s.heads + s.kv_heads)
            heads = qkv.unflatten(-1, (-1, s.head_dim)).transpose(1, 2)
            q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], 1)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            y = F.linear(out.transpose(1, 2).flatten(2).flatten(0, 1), layer.out)
            h, x = add_rms_norm(h, y, self.norms[i][1], s.eps)
            y = F.linear(swiglu(F.linear(x, layer.gate_up)), layer.down)
        h, x = add_rms_norm(h, y, self.last, s.eps)
        if len(self.layers) - 1 in taps:
            kept[len(self.layers) - 1] = h.view(B, T, -1)
        return x.view(B, T, -1), [kept[i] for i in taps]

    @torch.no_grad()
    def step(self, tokens: Tensor, places: Tensor, cache: Tensor) -> Tensor:
        """As `Teacher.step`, logits in the weights' type."""
        t, eps = self.teacher, self.teacher.shape.eps
        cos, sin = (x[:, 0].contiguous() for x in t._angles(places))
        h = F.embedding(tokens, t.embed)
        y: Tensor | None = None
        for i, layer in enumerate(self.layers):
            h, x = add_rms_norm(h, y, self.norms[i][0], eps)
            y = F.linear(attend(F.linear(x, layer.qkv), cos, sin, places, cache[i], t.shape.heads), layer.out)
            h, x = add_rms_norm(h, y, self.norms[i][1], eps)
            y = F.linear(swiglu(F.linear(x, layer.gate_up)), layer.down)
        _, x = add_rms_norm(h, y, self.last, eps)
        return F.linear(x, t.embed if t.head is None else t.head)


class Steps:
    """The token after each row's: `Teacher.step` and `generate.sample`."""

    def __init__(self, teacher: Teacher, writing: Writing) -> None:
        self.quick, self.writing = Quick(teacher), writing

    def __call__(self, tokens: Tensor, places: Tensor, cache: Tensor) -> Tensor:
        seed = torch.randint(1 << 62, (1,), device=tokens.device)
        return draw(self.quick.step(tokens, places, cache), seed, self.writing.temperature, self.writing.least)


class _Spoken(torch.autograd.Function):
    """Gradients are made with the values, piece by piece, so that no logits are kept."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, ahead: Tensor, embedding: Tensor, above: Tensor, head: Tensor, first: Tensor,
        student: Tensor, places: Tensor, weight: Tensor, size: int,
    ) -> Tensor:  # fmt: skip
        kind, (B, T, _) = head.dtype, rows.shape  # noqa: N806
        with torch.autocast(rows.device.type, enabled=False):
            table, mine, theirs = (x.detach().to(kind) for x in (embedding, rows, ahead))
            following = F.pad(student[:, 1:], (0, 1))
            at = places.clamp(min=0)[..., None]
            stands = ((places >= 0) & (weight > 0)).to(torch.int32)  # where nothing is learned any target will do
            of_rows, of_ahead, of_table = torch.empty_like(mine), torch.empty_like(theirs), torch.zeros_like(embedding)
            sums = torch.zeros(4, device=rows.device)
            for start in range(0, B, size):
                p = slice(start, start + size)
                taken = above[p].gather(1, at[p].expand(-1, -1, above.shape[-1])).flatten(0, 1)
                after = following[p].flatten()
                target = aim(F.linear(taken, head), first, after, stands[p].flatten(), len(table))
                own, drafts = F.linear(mine[p].flatten(0, 1), table), F.linear(theirs[p].flatten(0, 1), table)
                sums += compare(target, own, drafts, after, weight[p].flatten(), T).sum(0)
                of_rows[p], of_ahead[p] = (own @ table).view_as(mine[p]), (drafts @ table).view_as(mine[p])
                of_table += own.T @ mine[p].flatten(0, 1)
        ctx.save_for_backward(of_rows, of_ahead, of_table)
        return sums

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        of_rows, of_ahead, of_table = ctx.saved_tensors
        divergence, further = by[0][0], by[0][1]
        return of_rows.float() * divergence, of_ahead.float() * further, of_table * divergence, *[None] * 7


def spoken(
    rows: Tensor, ahead: Tensor, embedding: Tensor, above: Tensor, head: Tensor, first: Tensor, student: Tensor,
    places: Tensor, weight: Tensor, size: int,
) -> Tensor:  # fmt: skip
    """`Lessons._spoken`'s sums [4], gradients of the first two; `first` int32 [teacher vocab], -1: left out; so many
    texts (`size`) at once."""
    found: Tensor = _Spoken.apply(rows, ahead, embedding, above, head, first, student, places, weight, size)  # type: ignore[no-untyped-call]
    return found
