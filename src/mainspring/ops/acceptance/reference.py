"""The definition, in numpy: rows one after another, until one is emitted that was not drafted."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mainspring.ops.acceptance import ACCEPT, DRAW, RESIDUAL, Rule, uniform

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Distribution = tuple[Ids, Floats]
"""Ids in rising order and their probabilities."""

FIRST_LOOK = 512  # ids ranked before top-p knows how many it needs
BLOCK = 64


@dataclass
class Seen:
    """What penalties look at: ids of the prompt, and how often each id is in the reply."""

    prompt: frozenset[int] = frozenset()
    reply: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Verified:
    """`tokens` are emitted; all but the last were drafted, and the last too where `accepted` equals their number."""

    tokens: tuple[int, ...]
    accepted: int
    stopped: bool


class NotFiniteError(ArithmeticError):
    """A row of logits has no largest value to speak of."""


def adjusted(
    logits: NDArray[np.floating],
    rule: Rule,
    seen: Seen,
    block: Sequence[int] = (),
    banned: Collection[int] = (),
    mask: NDArray[np.uint32] | None = None,
) -> Floats:
    """Row [V] in float64 after mask, bans, bias and penalties; `block` are tokens emitted since `seen` was written.
    NotFiniteError where nothing finite is left or a value is NaN."""
    row = np.array(logits, np.float64)
    if not np.isfinite(row.max()):
        raise NotFiniteError("logits are not finite")
    if rule.bias:
        ids = [token for token, _ in rule.bias]
        row[ids] += [value for _, value in rule.bias]
    if not rule.is_plain:
        _penalise(row, rule, seen, block)
    if mask is not None:
        row[~allowed(mask, len(row))] = -np.inf
    if banned:
        row[list(banned)] = -np.inf
    if not np.isfinite(row.max()):
        raise NotFiniteError("no token is allowed here")
    return row


def _penalise(row: Floats, rule: Rule, seen: Seen, block: Sequence[int]) -> None:
    counts = seen.reply + Counter(block)
    if rule.repetition != 1.0:
        ids = np.fromiter(seen.prompt | counts.keys(), np.int64)
        row[ids] = np.where(row[ids] > 0, row[ids] / rule.repetition, row[ids] * rule.repetition)
    if counts and (rule.frequency or rule.presence):
        ids = np.fromiter(counts, np.int64)
        row[ids] -= rule.presence + rule.frequency * np.fromiter(counts.values(), np.float64)


def allowed(mask: NDArray[np.uint32], vocab: int) -> NDArray[np.bool_]:
    """[vocab] of packed words: bit i of word w is id 32 w + i."""
    return np.unpackbits(np.ascontiguousarray(mask, "<u4").view(np.uint8), bitorder="little")[:vocab].astype(np.bool_)


def distribution(row: Floats, rule: Rule) -> Distribution:
    """p of an adjusted row; all on the lowest id of the largest where greedy."""
    if rule.temperature == 0.0:
        return np.array([row.argmax()], np.int64), np.ones(1)
    ids, weights = _stay(row, rule, row.max() / rule.temperature)
    keep = (weights >= rule.min_p * weights.max()) & (weights > 0.0)
    ids, weights = ids[keep], weights[keep]
    return ids, weights / weights.sum()


def _stay(row: Floats, rule: Rule, top: float) -> tuple[Ids, Floats]:
    """Ids, rising, that top-k and top-p leave, and their weights. With a top-k only its ids are looked at closer."""
    vocab = len(row)

    def weigh(ids: Ids | slice) -> Floats:
        weights: Floats = np.exp(row[ids] / rule.temperature - top)
        return weights

    if 0 < rule.top_k < vocab:
        most, total = rule.top_k, None
    else:
        most, everything = vocab, weigh(slice(None))
        if rule.top_p >= 1.0:
            return np.arange(vocab), everything
        total = everything.sum()
    look = most if total is None else min(most, FIRST_LOOK)
    while True:
        ids = ranked(row, look)
        weights = weigh(ids)
        before = np.cumsum(weights) - weights
        share = weights.sum() if total is None else total
        # An id stays while what comes before it has less than top_p.
        kept = look if rule.top_p >= 1.0 else int((before < rule.top_p * share).sum())
        if kept < look or look == most:
            order = np.argsort(ids[:kept])
            return ids[order], weights[order]
        look = most


def ranked(row: Floats, most: int) -> Ids:
    """The first `most` ids by (value falling, id rising)."""
    blocks = len(row) // BLOCK
    if most <= blocks:  # as many blocks have a value as large as this, so the last one wanted is no smaller
        largest = row[: blocks * BLOCK].reshape(blocks, BLOCK).max(1)
        ids = np.flatnonzero(row >= np.partition(largest, blocks - most)[blocks - most])
    else:
        ids = np.arange(len(row))
    return ids[np.argsort(-row[ids], kind="stable")[:most]]


def draw(p: Distribution, u: float) -> int:
    ids, probabilities = p
    sums = np.cumsum(probabilities)
    return int(ids[min(int(np.searchsorted(sums, u * sums[-1], side="right")), len(ids) - 1)])


def residual(p: Distribution, q: Distribution) -> Distribution:
    """max(0, p - q) normalised; p where that is nothing."""
    ids, left = p[0], p[1].copy()
    _, mine, theirs = np.intersect1d(ids, q[0], assume_unique=True, return_indices=True)
    left[mine] = np.maximum(left[mine] - q[1][theirs], 0.0)
    total = left.sum()
    return (ids[left > 0.0], left[left > 0.0] / total) if total > 0.0 else p


def probability(p: Distribution, token: int) -> float:
    at = int(np.searchsorted(p[0], token))
    return float(p[1][at]) if at < len(p[0]) and p[0][at] == token else 0.0


def verify(
    logits: NDArray[np.floating],
    drafts: Sequence[int],
    rule: Rule,
    seen: Seen,
    *,
    index: int = 0,
    most: int = 1 << 30,
    stop_ids: Collection[int] = (),
    min_tokens: int = 0,
    masks: NDArray[np.uint32] | None = None,
    q: Sequence[Distribution] | None = None,
) -> Verified:
    """Tokens of a block: logits [1 + n, V] after the last token and after each of n drafts.

    `index` is how many tokens the reply had, `most` how many may be emitted now (1 or more). A stop id ends the block
    where it is emitted, and can't be before `min_tokens` of the reply. `q`: what each draft was drawn from.
    """
    tokens: list[int] = []
    for i in range(min(len(drafts) + 1, most)):
        at = index + i
        banned = stop_ids if at < min_tokens else ()
        drafted = drafts[i] if i < len(drafts) else None
        if rule.temperature == 0.0 and rule.is_plain and masks is None and not banned:
            token = _largest(logits[i])  # what follows says the same in float64
            stands = token == drafted
        else:
            row = adjusted(logits[i], rule, seen, tokens, banned, None if masks is None else masks[i])
            token, stands = _one(distribution(row, rule), drafted, rule.seed, at, None if q is None else q[i : i + 1])
        tokens.append(token)
        if token in stop_ids:
            return Verified(tuple(tokens), i + stands, True)
        if not stands:
            return Verified(tuple(tokens), i, False)
    return Verified(tuple(tokens), min(len(tokens), len(drafts)), False)


def _largest(logits: NDArray[np.floating]) -> int:
    """The first NaN would be taken for the largest."""
    token = int(logits.argmax())
    if not np.isfinite(logits[token]):
        raise NotFiniteError("logits are not finite")
    return token


def _one(
    p: Distribution, drafted: int | None, seed: int, at: int, q: Sequence[Distribution] | None
) -> tuple[int, bool]:
    """(token, whether it is the draft). Where one id stays no chance is used."""
    if len(p[0]) == 1:
        token = int(p[0][0])
        return token, token == drafted
    if q and drafted is not None:
        if uniform(seed, at, ACCEPT) * probability(q[0], drafted) < probability(p, drafted):
            return drafted, True
        return draw(residual(p, q[0]), uniform(seed, at, RESIDUAL)), False
    token = draw(p, uniform(seed, at, DRAW))
    return token, token == drafted


def log_probabilities(
    logits: NDArray[np.floating], token: int, others: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """log p of `token` under the row as it is, and of the `others` likeliest."""
    row = np.array(logits, np.float64)
    total = row.max() + np.log(np.exp(row - row.max()).sum())
    top = ranked(row, others) if others else np.zeros(0, np.int64)
    return float(row[token] - total), tuple((int(i), float(row[i] - total)) for i in top)
