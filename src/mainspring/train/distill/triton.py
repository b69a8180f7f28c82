"""Kernels of the two stages on CUDA: the teacher's attention one token a row, the drawing of a token, the lessons.

What is wide, logits of a vocabulary, is read a few times where it lies and kept nowhere; of the keys a row reads those
it has. Definitions: `Teacher.step`, `generate.sample`, `losses._divergences`; tests compare.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

KEYS, COLUMNS, GROUP = 64, 4096, 16  # keys a round; logits a round; rows of the tensor units' smallest product
WORDS = 2048  # logits a round, of the lessons


@triton.jit
def _attend(
    qkv, cos, sin, places, cache, out, scale, S,
    HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One row and one group of heads: rotate, put key and value into the cache, attend to all before and itself."""
    MANY: tl.constexpr = HEADS // KV
    D: tl.constexpr = 2 * HALF
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tl.load(places + row).to(tl.int32)
    h, d, wide, n = tl.arange(0, GROUP), tl.arange(0, HALF), tl.arange(0, D), tl.arange(0, KEYS)
    c, s = tl.load(cos + row * HALF + d), tl.load(sin + row * HALF + d)
    base = qkv + row * (HEADS + 2 * KV) * D
    live = (h < MANY)[:, None]
    of_q = base + (group * MANY + h)[:, None] * D + d[None, :]
    q1 = tl.load(of_q, mask=live, other=0.0).to(tl.float32)
    q2 = tl.load(of_q + HALF, mask=live, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    r1 = (q1 * c[None, :] - q2 * s[None, :]).to(kind)
    r2 = (q2 * c[None, :] + q1 * s[None, :]).to(kind)
    of_k = base + (HEADS + group) * D + d
    k1, k2 = tl.load(of_k).to(tl.float32), tl.load(of_k + HALF).to(tl.float32)
    own1, own2 = (k1 * c - k2 * s).to(kind), (k2 * c + k1 * s).to(kind)
    own_v = tl.load(base + (HEADS + KV + group) * D + wide)
    keys = cache + (row * KV + group) * S * D
    values = keys + tl.num_programs(0).to(tl.int64) * KV * S * D
    tl.store(keys + place * D + d, own1)
    tl.store(keys + place * D + HALF + d, own2)
    tl.store(values + place * D + wide, own_v)
    own = r1.to(tl.float32) * own1.to(tl.float32)[None, :] + r2.to(tl.float32) * own2.to(tl.float32)[None, :]
    top = tl.sum(own, 1) * scale
    total = tl.full([GROUP], 1.0, tl.float32)
    acc = tl.zeros([GROUP, D], tl.float32) + own_v.to(tl.float32)[None, :]
    for start in range(0, place, KEYS):
        there = start + n < place
        at = keys + (start + n)[:, None] * D
        a = tl.load(at + d[None, :], mask=there[:, None], other=0.0)
        b = tl.load(at + HALF + d[None, :], mask=there[:, None], other=0.0)
        v = tl.load(values + (start + n)[:, None] * D + wide[None, :], mask=there[:, None], other=0.0)
        x = tl.dot(r1, tl.trans(a), input_precision="ieee") + tl.dot(r2, tl.trans(b), input_precision="ieee")
        x = tl.where(there[None, :], x * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        fade = tl.exp(top - higher)
        p = tl.exp(x - higher[:, None])
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p.to(kind), v, input_precision="ieee")
        top = higher
    of_out = out + row * HEADS * D + (group * MANY + h)[:, None] * D + wide[None, :]
    tl.store(of_out, (acc / total[:, None]).to(kind), mask=live)


@triton.jit
def _rotate(qkv, cos, sin, T, WIDTH, HEADS: tl.constexpr, HALF: tl.constexpr, ROWS: tl.constexpr):
    """Rows of texts of T rows: the first HEADS heads are rotated in place by their row's number in its text."""
    row = tl.program_id(0).to(tl.int64)
    h, d = tl.arange(0, ROWS)[:, None], tl.arange(0, HALF)[None, :]
    at = (row % T) * HALF + d
    c, s = tl.load(cos + at), tl.load(sin + at)
    first = qkv + row * WIDTH + h * 2 * HALF + d
    x = tl.load(first, mask=h < HEADS, other=0.0).to(tl.float32)
    y = tl.load(first + HALF, mask=h < HEADS, other=0.0).to(tl.float32)
    tl.store(first, (x * c - y * s).to(qkv.dtype.element_ty), mask=h < HEADS)
    tl.store(first + HALF, (y * c + x * s).to(qkv.dtype.element_ty), mask=h < HEADS)


@triton.jit
def _draw(logits, seed, chosen, V, colder, log_least, BLOCK: tl.constexpr):
    """One row: the likeliest after Gumbel noise, of those likely enough."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    most = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, V, BLOCK):
        x = tl.load(logits + row * V + start + i, mask=start + i < V, other=float("-inf")).to(tl.float32)
        most = tl.maximum(most, x)
    top = tl.max(most, 0)
    key = tl.load(seed) + row
    best, which = tl.full([], float("-inf"), tl.float32), tl.full([], 0, tl.int64)
    for start in range(0, V, BLOCK):
        x = tl.load(logits + row * V + start + i, mask=start + i < V, other=float("-inf")).to(tl.float32)
        x = (x - top) * colder
        if tl.max(x, 0) >= log_least:
            noise = -tl.log(-tl.log(tl.maximum(tl.rand(key, start + i), 1e-9)))
            x = tl.where(x >= log_least, x + noise, float("-inf"))
            here = tl.max(x, 0)
            if here > best:
                best, which = here, (start + tl.argmax(x, 0)).to(tl.int64)
    tl.store(chosen + row, which)


def attend(qkv: Tensor, cos: Tensor, sin: Tensor, places: Tensor, cache: Tensor, heads: int) -> Tensor:
    """qkv [B, (heads + 2 kv) D], cos and sin fp32 [B, D / 2], cache [2, B, kv, S, D] of a layer -> [B, heads D]."""
    _, B, kv, S, D = cache.shape
    out = qkv.new_empty(B, heads * D)
    _attend[(B, kv)](
        qkv, cos, sin, places, cache, out, D**-0.5, S, HEADS=heads, KV=kv, HALF=D // 2, KEYS=KEYS, GROUP=GROUP,
        num_warps=2,
    )  # fmt: skip
    return out


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> None:
    """In place, the first `heads` heads of qkv [B, T, width]; cos and sin fp32 [T, D / 2]."""
    B, T, width = qkv.shape
    rows = triton.next_power_of_2(heads)
    _rotate[(B * T,)](qkv, cos, sin, T, width, HEADS=heads, HALF=cos.shape[1], ROWS=rows, num_warps=2)


def draw(logits: Tensor, seed: Tensor, temperature: float, least: float) -> Tensor:
    """int64 [B] from logits [B, V]; `seed` int64 [1] on the device."""
    B, V = logits.shape
    chosen = torch.empty(B, dtype=torch.long, device=logits.device)
    log_least = math.log(least) if least > 0 else -1e30
    _draw[(B,)](logits, seed, chosen, V, 1 / temperature, log_least, BLOCK=COLUMNS, num_warps=8)
    return chosen


@triton.jit
def _aim(logits, first, following, stands, target, VT, V, BLOCK: tl.constexpr):
    """One row: the teacher's softmax, summed over its tokens that begin alike; the next piece inside a token."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(stands + row) == 0:
        tl.store(target + row * V + tl.load(following + row), 1.0)
    else:
        i = tl.arange(0, BLOCK)
        most = tl.full([BLOCK], float("-inf"), tl.float32)
        for start in range(0, VT, BLOCK):
            there = start + i < VT
            to = tl.load(first + start + i, mask=there, other=-1)
            x = tl.load(logits + row * VT + start + i, mask=there, other=float("-inf")).to(tl.float32)
            most = tl.maximum(most, tl.where(to >= 0, x, float("-inf")))
        top = tl.max(most, 0)
        parts = tl.zeros([BLOCK], tl.float32)
        for start in range(0, VT, BLOCK):
            there = start + i < VT
            to = tl.load(first + start + i, mask=there, other=-1)
            x = tl.load(logits + row * VT + start + i, mask=there, other=float("-inf")).to(tl.float32)
            parts += tl.where(to >= 0, tl.exp(x - top), 0.0)
        total = tl.sum(parts, 0)
        for start in range(0, VT, BLOCK):
            there = start + i < VT
            to = tl.load(first + start + i, mask=there, other=-1)
            x = tl.load(logits + row * VT + start + i, mask=there, other=float("-inf")).to(tl.float32)
            tl.atomic_add(target + row * V + to, tl.exp(x - top) / total, mask=to >= 0, sem="relaxed")


@triton.jit
def _compare(target, own, drafts, following, weight, found, T, V, BLOCK: tl.constexpr):
    """One row of targets against the own logits there and the drafts one row before; gradients over the logits."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    low = float("-inf")
    later = row % T > 0  # a draft of this row's target is there
    before = tl.maximum(row - 1, 0)
    upto = tl.where(later, V, 0)  # of the draft's logits that count
    rest = tl.where(row % T == T - 1, V, 0)
    xs, ys, ts = own + row * V, drafts + before * V, target + row * V
    mx, my = tl.full([BLOCK], low, tl.float32), tl.full([BLOCK], low, tl.float32)
    ix, iy = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
    for start in range(0, V, BLOCK):
        there = start + i < V
        x = tl.load(xs + start + i, mask=there, other=low).to(tl.float32)
        y = tl.load(ys + start + i, mask=start + i < upto, other=low).to(tl.float32)
        ix, mx = tl.where(x > mx, start + i, ix), tl.maximum(x, mx)
        iy, my = tl.where(y > my, start + i, iy), tl.maximum(y, my)
    tx, ty = tl.max(mx, 0), tl.max(my, 0)
    ax = tl.min(tl.where(mx == tx, ix, V), 0)
    ay = tl.min(tl.where(my == ty, iy, V), 0)
    ty = tl.where(later, ty, 0.0)
    said = tl.load(xs + tl.load(following + row)).to(tl.float32)
    ex, ey = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    dx, dy, te = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        there = start + i < V
        x = tl.load(xs + start + i, mask=there, other=low).to(tl.float32)
        y = tl.load(ys + start + i, mask=start + i < upto, other=low).to(tl.float32)
        t = tl.load(ts + start + i, mask=there, other=0.0)
        ex += tl.exp(x - tx)
        ey += tl.exp(y - ty)
        some = t > 0
        dx += t * tl.where(there, x - tx, 0.0)
        dy += t * tl.where(start + i < upto, y - ty, 0.0)
        te += tl.where(some, t * tl.log(tl.where(some, t, 1.0)), 0.0)
    sx, sy, known = tl.sum(ex, 0), tl.sum(ey, 0), tl.sum(te, 0)
    w = tl.load(weight + row)
    wd = tl.where(later, w, 0.0)
    sy = tl.where(later, sy, 1.0)
    at = found + row * 4
    tl.store(at, w * (tl.log(sx) - tl.sum(dx, 0) + known))
    tl.store(at + 1, wd * (tl.log(sy) - tl.sum(dy, 0) + known))
    tl.store(at + 2, tl.where(ax == ay, wd, 0.0))
    tl.store(at + 3, tl.where(row % T < T - 1, w * (tl.log(sx) + tx - said), 0.0))
    kind = own.dtype.element_ty
    for start in range(0, V, BLOCK):
        there = start + i < V
        x = tl.load(xs + start + i, mask=there, other=low).to(tl.float32)
        y = tl.load(ys + start + i, mask=start + i < upto, other=low).to(tl.float32)
        t = tl.load(ts + start + i, mask=there, other=0.0)
        tl.store(xs + start + i, (w * (tl.exp(x - tx) / sx - t)).to(kind), mask=there)
        tl.store(ys + start + i, (wd * (tl.exp(y - ty) / sy - t)).to(kind), mask=start + i < upto)
        tl.store(drafts + row * V + start + i, tl.zeros([BLOCK], kind), mask=start + i < rest)


def aim(logits: Tensor, first: Tensor, following: Tensor, stands: Tensor, size: int) -> Tensor:
    """fp32 [n, size] from the teacher's logits [n, VT]; `first` int32 [VT], -1: left out."""
    target = torch.zeros(len(logits), size, dtype=torch.float32, device=logits.device)
    _aim[(len(logits),)](logits, first, following, stands, target, logits.shape[1], size, BLOCK=WORDS, num_warps=8)
    return target


def compare(target: Tensor, own: Tensor, drafts: Tensor, following: Tensor, weight: Tensor, T: int) -> Tensor:
    """[n, 4] as `losses._divergences` sums them; `own` and `drafts` become gradients, by weight."""
    found = torch.empty(len(own), 4, dtype=torch.float32, device=own.device)
    _compare[(len(own),)](target, own, drafts, following, weight, found, T, own.shape[1], BLOCK=WORDS, num_warps=8)
    return found
