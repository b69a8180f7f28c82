"""The library's fused attention (`scaled_dot_product_attention`), never a score matrix in memory.

A sequence without a past is plain causal. With a past, the keys are the parent's followed by those of a tile of its
sequences (branches), and a mask built from the lengths lets each row see the past and its own sequence up to itself.
The q-heads of one kv-head are stacked as rows, so keys and values are read once a group, never expanded. Tiles hold
branches of `TILE_ROWS` rows, and a mask at most `MASK_ELEMENTS`, whatever the length of the view and of its pieces:
one mask for 2,048 rows on a past of 30,000 took 1.3 GB, and five times that at 131,072.
"""

from collections.abc import Iterator, Sequence

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
            outputs.append(_masked(tile_q, tile_k, tile_v, group, old, [row - first for row in rows]))
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
