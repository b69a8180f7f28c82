"""The rule for many rows at once by the library's own operations, without asking the device anything: what rounds with
temperature, filters, penalties, bias or masks run on a GPU, and what tests run on the CPU.

The same float64 operations in the same order as `reference`; only sums run in another order and `exp` is the device's,
so a row differs where u or top-p meets a boundary to 15 digits. Row i of a block is chosen as if drafts 0..i-1 had been
emitted, which is so where it counts. Ranking is a stable sort of the row: 248,320 float64 with their ids, the one large
cost; rows without top-k and top-p do without it. Rows go MOST_ROWS at a time, which bounds the memory: about 0.6 GB at
that vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mainspring.ops.acceptance import Rule
from mainspring.ops.rounds import MOST_STOPS, NONE_ALLOWED, NOT_FINITE

MOST_ROWS = 32
PROMPT = 1 << 30
"""In `seen`: the id is in the prompt. Below it: how often it is in the reply."""
TEMPERATURE, TOP_P, MIN_P, FREQUENCY, PRESENCE, REPETITION = range(6)
NUMBERS = 6


@dataclass
class Rules:
    """Of all slots. numbers [S, NUMBERS] fp64, top_k, seeds and min_tokens [S] int64 (top_k V: all), stops
    [S, MOST_STOPS] int32 (-1: none); bias [S, V] fp64 and seen [S, V] int32, None where no rule has asked yet."""

    numbers: Tensor
    top_k: Tensor
    seeds: Tensor
    min_tokens: Tensor
    stops: Tensor
    bias: Tensor | None = None
    seen: Tensor | None = None

    @classmethod
    def empty(cls, slots: int, device: torch.device | str) -> "Rules":
        numbers = torch.zeros(slots, NUMBERS, dtype=torch.float64, device=device)
        top_k, seeds, min_tokens = torch.zeros(3, slots, dtype=torch.int64, device=device)
        return cls(
            numbers, top_k + 1, seeds, min_tokens,
            torch.full((slots, MOST_STOPS), -1, dtype=torch.int32, device=device),
        )  # fmt: skip

    def put(self, slot: int, rule: Rule, stop_ids: frozenset[int], min_tokens: int, vocab: int) -> None:
        """ValueError where there are more than MOST_STOPS stop ids."""
        if len(stop_ids) > MOST_STOPS:
            raise ValueError(f"{len(stop_ids)} stop ids; at most {MOST_STOPS}")
        numbers = (rule.temperature, rule.top_p, rule.min_p, rule.frequency, rule.presence, rule.repetition)
        self.numbers[slot] = torch.tensor(numbers, dtype=torch.float64)
        seed = rule.seed & (1 << 64) - 1
        self.top_k[slot], self.min_tokens[slot] = min(rule.top_k or vocab, vocab), min_tokens
        self.seeds[slot] = seed - (1 << 64 if seed >> 63 else 0)
        ids = sorted(stop_ids)
        self.stops[slot] = torch.tensor(ids + [-1] * (MOST_STOPS - len(ids)), dtype=torch.int32)

    def adjust(self, slot: int, rule: Rule, prompt: Tensor, vocab: int) -> None:
        """Bias and what penalties look at; `prompt` ids [n] int64."""
        if self.bias is None or self.seen is None:
            self.bias = torch.zeros(len(self.top_k), vocab, dtype=torch.float64, device=self.numbers.device)
            self.seen = torch.zeros(len(self.top_k), vocab, dtype=torch.int32, device=self.numbers.device)
        self.bias[slot].zero_()
        self.seen[slot].zero_()
        if rule.bias:
            ids = torch.tensor([token for token, _ in rule.bias], device=self.bias.device)
            values = torch.tensor([value for _, value in rule.bias], dtype=torch.float64, device=self.bias.device)
            self.bias[slot, ids] = values
        if rule.repetition != 1.0:
            self.seen[slot, prompt] = PROMPT


def choose(
    logits: Tensor, slots: Tensor, index: Tensor, drafts: Tensor, uniforms: Tensor, rules: Rules, *,
    ranked: bool = True, adjusted: bool = True, masks: Tensor | None = None, masked: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """[N R] int32: each row's token, NOT_FINITE or NONE_ALLOWED. logits [N R, V] of N lanes; slots [N] int64, index [N]
    tokens their replies have, drafts [N, R], uniforms [N R] fp64. `ranked` False: no rule has top-k or top-p;
    `adjusted` False: none has bias or penalties. masks [N R, ceil(V / 32)] int32, of the lanes `masked` [N] bool."""
    R = drafts.shape[1]
    step = max(1, MOST_ROWS // R)
    pieces = []
    for first in range(0, len(slots), step):
        lanes, rows = slice(first, first + step), slice(first * R, (first + step) * R)
        pieces.append(
            _choose(
                logits[rows], slots[lanes], index[lanes], drafts[lanes], uniforms[rows], rules, ranked, adjusted,
                None if masks is None else masks[rows], None if masked is None else masked[lanes],
            )
        )  # fmt: skip
    return torch.cat(pieces)


def _choose(
    logits: Tensor, slots: Tensor, index: Tensor, drafts: Tensor, uniforms: Tensor, rules: Rules, ranked: bool,
    adjusted: bool, masks: Tensor | None, masked: Tensor | None,
) -> Tensor:  # fmt: skip
    V, R = logits.shape[1], drafts.shape[1]
    lane = torch.arange(len(slots), device=logits.device).repeat_interleave(R)
    at = index[lane] + torch.arange(R, device=logits.device).repeat(len(slots))
    of = slots[lane]
    numbers = rules.numbers[of].unsqueeze(2)  # [T, NUMBERS, 1]
    row = logits.double()
    good = torch.isfinite(row.amax(1))
    if adjusted and rules.bias is not None and rules.seen is not None:
        row = _penalised(row + rules.bias[of], numbers, rules.seen[of], drafts)
    if masks is not None and masked is not None:
        bits = torch.arange(32, device=masks.device, dtype=torch.int32)
        allowed = (masks[:, :, None] >> bits & 1).flatten(1)[:, :V] > 0
        row = row.masked_fill(masked[lane, None] & ~allowed, -torch.inf)
    row = _banned(row, rules.stops[of].long(), at < rules.min_tokens[of])
    top = row.amax(1, keepdim=True)
    some = torch.isfinite(top[:, 0])
    greedy = numbers[:, TEMPERATURE] == 0.0
    heat = torch.where(greedy, 1.0, numbers[:, TEMPERATURE])
    weights = torch.exp(row / heat - top / heat)
    keep = _ranked(row, weights, rules.top_k[of, None], numbers[:, TOP_P]) if ranked else torch.ones_like(row).bool()
    p = torch.where(keep, weights, 0.0)
    p = torch.where(p >= numbers[:, MIN_P] * p.amax(1, keepdim=True), p, 0.0)
    p = p / p.sum(1, keepdim=True)
    sums = p.cumsum(1)
    ids = torch.arange(V, device=row.device)
    last = torch.where(p > 0.0, ids, 0).amax(1)
    drawn = torch.where(sums > uniforms[:, None] * sums[:, -1:], ids, V).amin(1)
    largest = torch.where(row == top, ids, V).amin(1)
    token = torch.where(greedy[:, 0], largest, torch.minimum(drawn, last))
    token = torch.where(some, token, NONE_ALLOWED)
    return torch.where(good, token, NOT_FINITE).int()


def _penalised(row: Tensor, numbers: Tensor, seen: Tensor, drafts: Tensor) -> Tensor:
    N, R = drafts.shape
    counts = (seen & PROMPT - 1).view(N, R, -1).clone()
    for j in range(R - 1):  # draft j has been emitted where rows after it are looked at
        later = (torch.arange(R, device=row.device) > j).int()[None, :, None].expand(N, R, 1)
        counts.scatter_add_(2, drafts[:, j].long().clamp(min=0)[:, None, None].expand(N, R, 1), later)
    counts = counts.view(N * R, -1)
    factor = numbers[:, REPETITION]
    known = (counts > 0) | (seen & PROMPT > 0)
    row = torch.where(known & (factor != 1.0), torch.where(row > 0, row / factor, row * factor), row)
    return torch.where(counts > 0, row - (numbers[:, PRESENCE] + numbers[:, FREQUENCY] * counts), row)


def _banned(row: Tensor, stops: Tensor, early: Tensor) -> Tensor:
    """Stop ids can't be: missing ones stand for the first, so that writes to one place agree."""
    first = stops[:, :1].clamp(min=0)
    ids = torch.where(stops < 0, first, stops)
    some = (early & (stops[:, 0] >= 0))[:, None]
    return row.scatter(1, ids, torch.where(some, -torch.inf, row.gather(1, ids)))


def _ranked(row: Tensor, weights: Tensor, most: Tensor, top_p: Tensor) -> Tensor:
    """[T, V] bool: what top-k and top-p leave."""
    ids = torch.sort(row, dim=1, descending=True, stable=True).indices
    ordered = weights.gather(1, ids)
    within = torch.arange(row.shape[1], device=row.device) < most
    total = torch.where(within, ordered, 0.0).sum(1, keepdim=True)
    before = ordered.cumsum(1) - ordered
    kept = within & ((before < top_p * total) | (top_p >= 1.0))
    return torch.zeros_like(kept).scatter(1, ids, kept)
