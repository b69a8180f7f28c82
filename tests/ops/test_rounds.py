"""What a round is on the device, against its definition in Python."""

import itertools
import random
from collections.abc import Sequence

import pytest
import torch

from mainspring.ops import rounds
from mainspring.ops.acceptance import uniform
from mainspring.ops.rounds import ANCHOR, DRAFTS, INDEX, KEPT, LEFT, LENGTH, READ, SIDE, TURN, WAITING, reference
from mainspring.ops.rounds import triton as kernels
from support.kernels import DEVICE

R, BLOCK, SLOTS = 4, 5, 3


def words(*slots: dict[int, int]) -> torch.Tensor:
    table = torch.zeros(len(slots) + 1, rounds.WORDS, dtype=torch.int64)
    for slot, values in enumerate(slots):
        for word, value in values.items():
            table[slot, word] = value
    return table.to(DEVICE)


def put(values: Sequence[Sequence[int]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def stop_table(*ids: Sequence[int]) -> torch.Tensor:
    return put([[*each] + [-1] * (rounds.MOST_STOPS - len(each)) for each in ids])


START = {ANCHOR: 5, LENGTH: 70, KEPT: 2, SIDE: 1, INDEX: 9, READ: 40, WAITING: 3, TURN: 1, DRAFTS: 1}


@pytest.mark.parametrize("forwarded", [True, False])
def test_walk_is_its_definition(forwarded: bool) -> None:
    """Patterns of drafts that stand, stop ids, faults and what is left, drawn from all, two lanes at a time."""
    cases = []
    for n, left, stop, fault in itertools.product(range(R), (0, 1, 2, 4, 9), (None, 0, 2), (None, 0, 1, 3)):
        for right in range(n + 1):
            chosen = [10 + i for i in range(R)]
            drafts = [token if i < right else 77 for i, token in enumerate(chosen)]
            if fault is not None:
                chosen[fault] = rounds.NOT_FINITE if fault else rounds.NONE_ALLOWED
            cases.append((n, left, chosen, drafts, [] if stop is None else [10 + stop, 900]))
    generator = random.Random(forwarded)
    generator.shuffle(cases)
    for a, b in zip(cases[:150:2], cases[1:150:2], strict=True):
        both = (b, a)  # lane 0 is slot 1
        table = words({**START, LEFT: a[1]}, {**START, LEFT: b[1], SIDE: 0, TURN: 0, DRAFTS: 0})
        before = table.clone()
        following = torch.full((SLOTS, 2, BLOCK), -7, dtype=torch.int32, device=DEVICE)
        request = put([[slot, case[0], 0, *[0] * R] for slot, case in zip((1, 0), both, strict=True)])
        outcome = kernels.walk(
            table, request, put([case[3] for case in both]), put([case[2] for case in both]).flatten(),
            stop_table(a[4], b[4], []), following, forwarded=forwarded,
        )  # fmt: skip
        for lane, (slot, case) in enumerate(zip((1, 0), both, strict=True)):
            n, left, chosen, drafts, stops = case
            n = min(n, left - 1) if left else 0
            wanted = reference.walk(before[slot].tolist(), chosen, drafts[:n], stops, forwarded=forwarded)
            assert table[slot].tolist() == wanted.words
            found = outcome[lane].tolist()
            assert found[:5] == [len(wanted.tokens), wanted.accepted, wanted.stopped, n, wanted.fault]
            at = rounds.OUTCOME
            assert found[at : at + len(wanted.tokens)] == wanted.tokens
            turn = before[slot, TURN].item()
            side = 1 - turn if forwarded else turn
            if not wanted.fault:
                assert following[slot, side, : len(wanted.tokens)].tolist() == wanted.tokens
            assert (following[slot, 1 - side] == -7).all()


def test_walk_counts_what_is_emitted() -> None:
    table = words({**START, LEFT: 9})
    seen = torch.zeros(2, 50, dtype=torch.int32, device=DEVICE)
    following = torch.zeros(2, 2, BLOCK, dtype=torch.int32, device=DEVICE)
    kernels.walk(
        table, put([[0, 3, 0, 0, 0, 0, 0]]), put([[4, 4, 6, 0]]), put([4, 4, 8, 9]), stop_table([], []), following,
        forwarded=True, seen=seen,
    )  # fmt: skip
    assert seen[0, [4, 8, 9]].tolist() == [2, 1, 0]
    assert not seen[1].any()


def test_plan_makes_rows_of_words_and_drafts() -> None:
    table = words({**START, LEFT: 3}, {**START, LEFT: 0}, {**START, LEFT: 50, LENGTH: 7, SIDE: 0, ANCHOR: 8})
    request = put([[2, 1, 0, 0, 0, 0, 0], [0, 3, 0, 0, 0, 0, 0], [1, 3, 0, 0, 0, 0, 0]])
    seeds = torch.tensor([3, 1 << 40, -1, 0], dtype=torch.int64, device=DEVICE)
    made, tokens, positions, owners, uniforms = kernels.plan(
        table, request, put([[31, 32, 33, 0], [41, 42, 43, 0], [51, 52, 53, 0]]), seeds, nowhere=3
    )
    assert made[:, :5].tolist() == [[2, 2, 2, 0, 7], [0, 3, 2, 1, 70], [1, 0, 2, 1, 70]]
    assert tokens.view(3, R).tolist() == [[8, 31, 0, 0], [5, 41, 42, 0], [0, 0, 0, 0]]
    assert positions.view(3, R).tolist() == [[7, 8, 0, 0], [70, 71, 72, 0], [0, 0, 0, 0]]
    assert owners.view(3, R).tolist() == [[2, 2, 3, 3], [0, 0, 0, 3], [3, 3, 3, 3]]
    assert uniforms.view(3, R)[0].tolist() == [uniform((1 << 64) - 1, 9 + i) for i in range(R)]
    assert uniforms.view(3, R)[1].tolist() == [uniform(3, 9 + i) for i in range(R)]


def test_chance_is_the_definition_s_bit_for_bit() -> None:
    seeds = [0, 1, 2**31, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 1]
    for index in (0, 1, 2**31 - 1, 2**33):
        table = words(*({LEFT: 1, INDEX: index} for _ in seeds))
        signed = [seed - (1 << 64 if seed >> 63 else 0) for seed in seeds]
        request = put([[slot, 0, 0, *[0] * R] for slot in range(len(seeds))])
        *_, uniforms = kernels.plan(
            table, request, request[:, 3:].contiguous(), torch.tensor([*signed, 0], device=DEVICE), nowhere=9
        )
        assert uniforms.view(-1, R).tolist() == [[uniform(seed, index + i) for i in range(R)] for seed in seeds]


def test_rows_of_the_drafting_head() -> None:
    table = words({**START, LEFT: 3}, {**START, LEFT: 0}, {**START, LEFT: 9, WAITING: 1, TURN: 0})
    following = torch.arange(4 * 2 * BLOCK, dtype=torch.int32, device=DEVICE).view(4, 2, BLOCK)
    drafts = put([[61, 62, 0, 0], [71, 72, 0, 0], [81, 82, 0, 0]])
    request = put([[0, 2, 1, 0, 0, 0, 0], [1, 3, 1, 0, 0, 0, 0], [2, 1, 1, 0, 0, 0, 0]])
    made, tokens, positions, owners = kernels.plan_head(
        table, request, following, drafts, step=0, rows=BLOCK, nowhere=3
    )
    assert made[:, [0, 1, 4]].tolist() == [[0, 3, 40], [1, 0, 40], [2, 1, 40]]
    assert tokens.view(3, BLOCK).tolist() == [[5, 6, 7, 0, 0], [0] * 5, [20, 0, 0, 0, 0]]
    assert positions.view(3, BLOCK)[0].tolist() == [40, 41, 42, 0, 0]
    assert owners.view(3, BLOCK).tolist() == [[0, 0, 0, 3, 3], [3] * 5, [2, 3, 3, 3, 3]]
    made, tokens, positions, owners = kernels.plan_head(table, request, following, drafts, step=1, rows=1, nowhere=3)
    assert made[:, [0, 1, 4]].tolist() == [[0, 1, 43], [1, 0, 43], [2, 0, 41]]
    assert tokens.tolist() == [61, 0, 0]
    assert positions.tolist() == [43, 0, 0]
    assert owners.tolist() == [0, 3, 3]
