"""One program a lane. Chance is the counter-based generator of `ops.acceptance`, word for word."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import rounds

WORDS, PLAN, OUTCOME = (tl.constexpr(n) for n in (rounds.WORDS, rounds.PLAN, rounds.OUTCOME))
STOPS = tl.constexpr(rounds.MOST_STOPS)
ANCHOR, LENGTH, KEPT, SIDE, INDEX, LEFT, READ, WAITING, TURN, DRAFTS = (tl.constexpr(n) for n in range(10))
REQUEST = tl.constexpr(rounds.REQUEST)
_M0, _M1 = tl.constexpr(0xD2511F53), tl.constexpr(0xCD9E8D57)
_W0, _W1 = tl.constexpr(0x9E3779B9), tl.constexpr(0xBB67AE85)


@triton.jit
def _uniform(seed, index):
    """fp64 in [0, 1) of int64 seed and index, lane 0."""
    zero = (index * 0).to(tl.uint32)
    c0, c1, c2, c3 = (index & 0xFFFFFFFF).to(tl.uint32), (index >> 32).to(tl.uint32), zero, zero
    k0, k1 = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    m0, m1 = zero + _M0, zero + _M1
    for _ in tl.static_range(10):
        h0, l0, h1, l1 = tl.umulhi(m0, c0), m0 * c0, tl.umulhi(m1, c2), m1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = k0 + _W0, k1 + _W1
    mantissa = (c0.to(tl.int64) << 21) | (c1.to(tl.int64) >> 11)
    return mantissa.to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _plan(
    words, request, drafts, seeds, plan, tokens, positions, owners, uniforms, nowhere,
    R: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0)
    slot, asked = tl.load(request + lane * (REQUEST + R)), tl.load(request + lane * (REQUEST + R) + 1)
    at = words + slot.to(tl.int64) * WORDS
    left, length = tl.load(at + LEFT), tl.load(at + LENGTH)
    count = tl.where(left > 0, 1 + tl.minimum(asked, left - 1), 0).to(tl.int32)
    line = plan + lane * PLAN
    tl.store(line, slot)
    tl.store(line + 1, count)
    tl.store(line + 2, tl.load(at + KEPT).to(tl.int32))
    tl.store(line + 3, tl.load(at + SIDE).to(tl.int32))
    tl.store(line + 4, length.to(tl.int32))
    i = tl.arange(0, PAD)
    mask, row = i < R, lane * R + i
    drafted = tl.load(drafts + row - 1, mask=mask & (i > 0), other=0)
    token = tl.where(i == 0, tl.load(at + ANCHOR).to(tl.int32), drafted)
    tl.store(tokens + row, tl.where(i < count, token, 0), mask=mask)
    tl.store(positions + row, tl.where(i < count, length + i, 0).to(tl.int32), mask=mask)
    tl.store(owners + row, tl.where(i < count, slot, nowhere), mask=mask)
    tl.store(uniforms + row, _uniform(tl.load(seeds + slot), tl.load(at + INDEX) + i), mask=mask)


@triton.jit
def _plan_head(
    words, request, following, drafts, plan, tokens, positions, owners, nowhere, step, BLOCK: tl.constexpr,
    R: tl.constexpr, ROWS: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    """Rows of the drafting head: those that wait (step 0), or the draft before."""
    lane = tl.program_id(0)
    slot, asked = tl.load(request + lane * (REQUEST + R)), tl.load(request + lane * (REQUEST + R) + 1)
    at = words + slot.to(tl.int64) * WORDS
    waiting, read, turn = tl.load(at + WAITING), tl.load(at + READ), tl.load(at + TURN)
    live = tl.load(at + LEFT) > 0
    count = tl.where(live, waiting, 0)
    start = read
    if step > 0:
        drafted = tl.load(request + lane * (REQUEST + R) + 2) > 0
        count = tl.where(live & drafted & (asked > step), 1, 0).to(tl.int64)
        start = read + waiting + step - 1
    line = plan + lane * PLAN
    tl.store(line, slot)
    tl.store(line + 1, count.to(tl.int32))
    tl.store(line + 4, start.to(tl.int32))
    i = tl.arange(0, PAD)
    mask, row = i < ROWS, lane * ROWS + i
    here = mask & (i < count)
    known = tl.load(following + (slot.to(tl.int64) * 2 + turn) * BLOCK + i, mask=here, other=0)
    if step > 0:
        known = tl.load(drafts + lane * R + step - 1 + i, mask=here, other=0)
    tl.store(tokens + row, known, mask=mask)
    tl.store(positions + row, tl.where(here, start + i, 0).to(tl.int32), mask=mask)
    tl.store(owners + row, tl.where(here, slot, nowhere), mask=mask)


@triton.jit
def _walk(
    words, request, drafts, chosen, stops, following, seen, vocab, outcome,
    BLOCK: tl.constexpr, R: tl.constexpr, FORWARDED: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0)
    slot, asked = tl.load(request + lane * (REQUEST + R)), tl.load(request + lane * (REQUEST + R) + 1)
    at = words + slot.to(tl.int64) * WORDS
    left, index, side, turn = tl.load(at + LEFT), tl.load(at + INDEX), tl.load(at + SIDE), tl.load(at + TURN)
    waiting, read, length = tl.load(at + WAITING), tl.load(at + READ), tl.load(at + LENGTH)
    n = tl.where(left > 0, tl.minimum(asked, left - 1), 0).to(tl.int32)
    ids = tl.load(stops + slot.to(tl.int64) * STOPS + tl.arange(0, STOPS))
    line = outcome + lane * (OUTCOME + R)
    emitted, accepted, stopped, fault = 0, 0, 0, 0
    going = (left > 0).to(tl.int32)
    last = tl.load(at + ANCHOR).to(tl.int32)
    to = following + (slot.to(tl.int64) * 2 + 1 - turn) * BLOCK
    if not FORWARDED:
        to = following + (slot.to(tl.int64) * 2 + turn) * BLOCK
    for i in tl.static_range(R):
        going = going & (i <= n).to(tl.int32)
        token = tl.load(chosen + lane * R + i)
        bad = (token < 0).to(tl.int32) & going
        fault = tl.where(bad > 0, token, fault)
        going = going & (1 - bad)
        if going > 0:
            tl.store(line + OUTCOME + i, token)
            tl.store(to + i, token)
        drafted = tl.load(drafts + lane * R + i)
        stands = going & ((i < n) & (token == drafted)).to(tl.int32)
        halts = going & (tl.max((ids == token).to(tl.int32), 0))
        last = tl.where(going > 0, token, last)
        emitted += going
        accepted += stands
        stopped = stopped | halts
        going = stands & (1 - halts)
    good = (fault == 0) & (emitted > 0)
    emitted, accepted = tl.where(good, emitted, 0), tl.where(good, accepted, 0)
    tl.store(line, emitted)
    tl.store(line + 1, accepted)
    tl.store(line + 2, tl.where(good, stopped, 0))
    tl.store(line + 3, n)
    tl.store(line + 4, fault)
    if COUNTED:
        for i in tl.static_range(R):
            if i < emitted:
                of = seen + slot.to(tl.int64) * vocab + tl.load(chosen + lane * R + i)
                tl.store(of, tl.load(of) + 1)
                tl.debug_barrier()
    if left > 0:
        if FORWARDED:
            tl.store(at + SIDE, 1 - side)
            tl.store(at + KEPT, emitted.to(tl.int64))
        if good:
            if FORWARDED:
                tl.store(at + LENGTH, length + emitted)
                tl.store(at + READ, read + waiting)
                tl.store(at + WAITING, emitted * tl.load(at + DRAFTS))
                tl.store(at + TURN, 1 - turn)
            tl.store(at + ANCHOR, last.to(tl.int64))
            tl.store(at + INDEX, index + emitted)
            tl.store(at + LEFT, tl.where(stopped > 0, 0, left - emitted))


def plan(
    words: Tensor, request: Tensor, drafts: Tensor, seeds: Tensor, *, nowhere: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(plan [N, PLAN], tokens, positions, owners [N R] int32, uniforms [N R] fp64) of words [S, WORDS], request
    [N, REQUEST + R], drafts [N, R] int32 (column j the draft after row j) and seeds [S] int64.
    Rows that are not there belong to store number `nowhere`."""
    N, R = drafts.shape
    made = torch.zeros(N, rounds.PLAN, dtype=torch.int32, device=words.device)
    tokens, positions, owners = made.new_empty(3, N * R)
    uniforms = torch.empty(N * R, dtype=torch.float64, device=words.device)
    _plan[(N,)](
        words, request, drafts, seeds, made, tokens, positions, owners, uniforms, nowhere,
        R=R, PAD=triton.next_power_of_2(R), num_warps=1,
    )  # fmt: skip
    return made, tokens, positions, owners, uniforms


def plan_head(
    words: Tensor, request: Tensor, following: Tensor, drafts: Tensor, *, step: int, rows: int, nowhere: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same for `rows` rows a lane of the drafting head: at step 0 those that wait, then the draft before; following
    [S, 2, B] int32 are the tokens after the rows that wait."""
    N, R = drafts.shape
    made = torch.zeros(N, rounds.PLAN, dtype=torch.int32, device=words.device)
    tokens, positions, owners = made.new_empty(3, N * rows)
    _plan_head[(N,)](
        words, request, following, drafts, made, tokens, positions, owners, nowhere, step,
        BLOCK=following.shape[2], R=R, ROWS=rows, PAD=triton.next_power_of_2(rows), num_warps=1,
    )  # fmt: skip
    return made, tokens, positions, owners


def walk(
    words: Tensor, request: Tensor, drafts: Tensor, chosen: Tensor, stops: Tensor, following: Tensor, *,
    forwarded: bool, seen: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Outcome [N, OUTCOME + R] int32; words and `following` move on. chosen [N R] int32, stops [S, MOST_STOPS] (-1:
    none), `seen` [S, V] int32 counts what is emitted."""
    N, R = drafts.shape
    outcome = torch.zeros(N, rounds.OUTCOME + R, dtype=torch.int32, device=words.device)
    _walk[(N,)](
        words, request, drafts, chosen, stops, following, chosen if seen is None else seen,
        0 if seen is None else seen.shape[1], outcome,
        BLOCK=following.shape[2], R=R, FORWARDED=forwarded, COUNTED=seen is not None, num_warps=1,
    )  # fmt: skip
    return outcome
