"""The definition of `walk`: a lane's words after a round and what it emitted, in Python."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from mainspring.ops.rounds import ANCHOR, DRAFTS, INDEX, KEPT, LEFT, LENGTH, READ, SIDE, TURN, WAITING


class Walked(NamedTuple):
    words: list[int]
    tokens: list[int]
    accepted: int
    stopped: bool
    fault: int


def walk(
    words: Sequence[int], chosen: Sequence[int], drafts: Sequence[int], stop_ids: Collection[int], *, forwarded: bool
) -> Walked:
    """`forwarded` False: the token came from a prompt's last logits, so no row stands that was not there."""
    tokens: list[int] = []
    accepted, stopped, fault = 0, False, 0
    after = list(words)
    for i in range(min(len(drafts) + 1, words[LEFT])):
        token = chosen[i]
        if token < 0:
            fault = token
            break
        tokens.append(token)
        stands = i < len(drafts) and token == drafts[i]
        accepted += stands
        stopped = token in stop_ids
        if stopped or not stands:
            break
    if forwarded and words[LEFT] > 0:
        after[SIDE], after[KEPT] = 1 - words[SIDE], 0
    if fault:
        return Walked(after, [], 0, False, fault)
    if tokens:
        if forwarded:
            after[KEPT] = len(tokens)
            after[LENGTH] += len(tokens)
            after[READ] += words[WAITING]
            after[WAITING], after[TURN] = len(tokens) * words[DRAFTS], 1 - words[TURN]
        after[ANCHOR] = tokens[-1]
        after[INDEX] += len(tokens)
        after[LEFT] = 0 if stopped else words[LEFT] - len(tokens)
    return Walked(after, tokens, accepted, stopped, fault)
