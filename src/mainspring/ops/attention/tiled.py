"""Attention whose sums do not depend on how a sequence was cut into calls: tiles lie at absolute positions.

`prefill`: queries in tiles of 64 at multiples of 64 of the sequence; a tile sees the keys before it, and its own under
a fixed mask, joined by their log-sum-exps. Rows 40-99 of one call are those of a call that starts at 40, bit for bit:
what is missing of a tile is padding. `decode`: a few rows, each over whole blocks of 512 keys in their order, those it
may not see masked, which adds exact zeros. q-heads of a kv-head are stacked as rows, so a key is read once.

Shapes: q [T, Hq, D] of positions start, start + 1, ...; keys and values [G, capacity, D] with those rows in place,
capacity a multiple of KEY_BLOCK and every row finite. Returns [T, Hq, D]. The library's kernel (CPU) walks keys in
blocks of 512 whatever its threads do.
"""

from typing import Any

import torch
from torch import Tensor

QUERY_TILE, KEY_BLOCK = 64, 512


def prefill(q: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    T, Hq, D = q.shape
    G = keys.shape[0]
    ratio = Hq // G
    first = start - start % QUERY_TILE
    tiles = -(-(start + T - first) // QUERY_TILE)
    padded = q.new_zeros(tiles * QUERY_TILE, Hq, D)
    padded[start - first : start - first + T] = q
    # [tiles, G, ratio * 64, D]
    stacked = padded.view(tiles, QUERY_TILE, G, ratio, D).permute(0, 2, 3, 1, 4).reshape(tiles, G, -1, D)
    mask = _within(q.dtype).repeat(ratio, 1)
    outputs = []
    for tile in range(tiles):
        at = first + tile * QUERY_TILE
        own = slice(at, at + QUERY_TILE)
        rows = stacked[tile : tile + 1]
        out, lse = _flash(rows, keys[None, :, own], values[None, :, own], attn_mask=mask)
        if at:
            past, past_lse = _flash(rows, keys[None, :, :at], values[None, :, :at])
            both = torch.logaddexp(past_lse, lse)
            out = past * (past_lse - both).exp()[..., None] + out * (lse - both).exp()[..., None]
        outputs.append(out)
    whole = torch.cat(outputs).view(tiles, G, ratio, QUERY_TILE, D).permute(0, 3, 1, 2, 4).reshape(-1, Hq, D)
    return whole[start - first : start - first + T]


def decode(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """`mask` is `decode_mask` of these rows."""
    R, Hq, D = q.shape
    G = keys.shape[0]
    end = mask.shape[1]
    stacked = q.view(R, G, Hq // G, D).permute(1, 2, 0, 3).reshape(1, G, -1, D)
    out, _ = _flash(stacked, keys[None, :, :end], values[None, :, :end], attn_mask=mask)
    return out.view(G, Hq // G, R, D).permute(2, 0, 1, 3).reshape(R, Hq, D)


def decode_mask(start: int, rows: int, ratio: int, dtype: torch.dtype) -> Tensor:
    """[ratio * rows, keys in whole blocks]: 0 where the row of a position sees the key, -inf elsewhere."""
    end = -(-(start + rows) // KEY_BLOCK) * KEY_BLOCK
    seen = torch.arange(end)[None] <= torch.arange(start, start + rows)[:, None]
    return torch.zeros(rows, end, dtype=dtype).masked_fill_(~seen, -torch.inf).repeat(ratio, 1)


def _within(dtype: torch.dtype) -> Tensor:
    return torch.full((QUERY_TILE, QUERY_TILE), -torch.inf, dtype=dtype).triu_(1)


def _flash(q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """[1, H, T, D] -> (output, log-sum-exp [1, H, T])."""
    out, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, **kwargs)
    return out, log_sums
