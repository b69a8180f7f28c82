"""The library's fused attention (`scaled_dot_product_attention`), never a score matrix in memory.

A sequence without a past is plain causal. With a past, a tile of sequences (branches) attends to the parent's keys
where they lie, unmasked and uncopied, and to its own rows under a small mask; the two are joined by their
log-sum-exps. The q-heads of one kv-head are stacked as rows, so keys are read once a group, never expanded.

The library's kernel gives log-sum-exps on the CPU and without gradients. Elsewhere keys are copied behind each other
under one mask of at most `MASK_ELEMENTS`, whatever the length of the view: one mask for 2,048 rows on a past of 30,000
took 1.3 GB.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

TILE_ROWS = 512
MASK_ELEMENTS = 1 << 23  # 5 bytes each: the library makes a float of every truth value


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    lengths: Sequence[int],
    parents: Sequence[int],
    past: Sequence[tuple[Tensor, Tensor]],
    select: Tensor | None = None,
) -> Tensor:
    wanted = None if select is None else select.tolist()
    outputs, done = [q[:0]], 0
    for parent, first, group in _tiles(lengths, parents, past):
        last = first + sum(group)
        rows = range(first, last) if wanted is None else [w for w in wanted[done : done + last - first] if w < last]
        if not rows:
            continue
        tile_q = q[done : done + len(rows)]
        done += len(rows)
        tile_k, tile_v = k[first:last], v[first:last]
        if parent < 0 and len(rows) == last - first:
            outputs.append(_causal(tile_q, tile_k, tile_v))
        else:
            old = past[parent] if parent >= 0 else None
            inner = [row - first for row in rows]
            if old is not None and _gives_log_sums(q, k, v):
                outputs.append(_merged(tile_q, tile_k, tile_v, group, old, inner))
            else:
                outputs.append(_masked(tile_q, tile_k, tile_v, group, old, inner))
    return torch.cat(outputs)


def _tiles(
    lengths: Sequence[int], parents: Sequence[int], past: Sequence[tuple[Tensor, Tensor]]
) -> Iterator[tuple[int, int, list[int]]]:
    """Neighbours with one parent, at most TILE_ROWS rows together; sequences without a past stand alone."""
    group: list[int] = []
    first, row, group_parent = 0, 0, -1
    for length, given in zip(lengths, parents, strict=True):
        parent = given if given >= 0 and past[given][0].shape[1] > 0 else -1
        joins = group and parent == group_parent and parent >= 0 and sum(group) + length <= TILE_ROWS
        if group and not joins:
            yield group_parent, first, group
            group, first = [], row
        group_parent = parent
        group.append(length)
        row += length
    if group:
        yield group_parent, first, group


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return out[0].transpose(0, 1)


def _gives_log_sums(*arrays: Tensor) -> bool:
    return arrays[0].device.type == "cpu" and not any(x.requires_grad for x in arrays)


def _merged(
    q: Tensor, k: Tensor, v: Tensor, group: list[int], old: tuple[Tensor, Tensor], rows: Sequence[int]
) -> Tensor:
    """softmax over past and own rows together: each part's average, weighed by its share of the exponentials."""
    Tq, Hq, D = q.shape
    G = k.shape[1]
    wide = q.view(Tq, G, Hq // G, D).permute(1, 2, 0, 3).reshape(1, G, -1, D)
    past_out, past_lse = _flash(wide, old[0][None], old[1][None])
    if len(group) == 1 and len(rows) == len(k):
        heads, *own = (x.transpose(0, 1)[None] for x in (q, k, v))
        own_out, own_lse = _flash(heads, *(x.repeat_interleave(Hq // G, dim=1) for x in own), is_causal=True)
    else:
        seen = _mask(group, 0, rows, q.device).repeat(Hq // G, 1)
        mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill_(~seen, -torch.inf)
        own_out, own_lse = _flash(wide, *(x.transpose(0, 1)[None] for x in (k, v)), attn_mask=mask)
    past_lse, own_lse = (x.reshape(Hq, Tq, 1) for x in (past_lse, own_lse))
    both = torch.logaddexp(past_lse, own_lse)
    out = past_out.reshape(Hq, Tq, D) * (past_lse - both).exp() + own_out.reshape(Hq, Tq, D) * (own_lse - both).exp()
    return out.type_as(q).transpose(0, 1)


def _flash(q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """[1, H, T, D] -> (output, log-sum-exp [1, H, T])."""
    out, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, **kwargs)
    return out, log_sums


def _masked(
    q: Tensor, k: Tensor, v: Tensor, group: list[int], old: tuple[Tensor, Tensor] | None, rows: Sequence[int]
) -> Tensor:
    Tq, Hq, D = q.shape
    G = k.shape[1]
    ratio = Hq // G
    K, V = (x.transpose(0, 1) for x in (k, v))
    n = 0
    if old is not None:
        n = old[0].shape[1]
        K, V = (torch.cat([before, new], dim=1) for before, new in zip(old, (K, V), strict=True))
    stacked = q.view(Tq, G, ratio, D).permute(1, 2, 0, 3)  # [G, ratio, Tq, D]
    step = max(1, MASK_ELEMENTS // (ratio * K.shape[1]))
    outputs = []
    for first in range(0, Tq, step):
        part = stacked[:, :, first : first + step]
        count = part.shape[2]
        mask = _mask(group, n, rows[first : first + step], q.device).repeat(ratio, 1)
        wide = part.reshape(1, G, ratio * count, D)
        out = F.scaled_dot_product_attention(wide, K[None], V[None], attn_mask=mask)
        outputs.append(out.view(G, ratio, count, D))
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    return out.permute(2, 0, 1, 3).reshape(Tq, Hq, D)


def _mask(group: list[int], n: int, rows: Sequence[int], device: torch.device) -> Tensor:
    """True where row sees column: all n of the past, then the rows of its own sequence up to itself."""
    sequence = torch.repeat_interleave(torch.arange(len(group)), torch.tensor(group))
    position = torch.arange(len(sequence))
    own = torch.as_tensor(list(rows))
    seen = (sequence[own, None] == sequence[None]) & (position[None] <= own[:, None])
    return torch.cat([torch.ones(len(own), n, dtype=torch.bool), seen], dim=1).to(device)
