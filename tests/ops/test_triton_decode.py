"""A round's rows over their keys."""

import pytest
import torch

from mainspring.ops import rounds
from mainspring.ops.attention import reference
from mainspring.ops.attention.triton_decode import SPLIT_KEYS, decode, splits_of
from support.kernels import ACCURATE, DEVICE, error, randn

G, RATIO, D = 2, 2, 16


def lines(*lanes: tuple[int, int, int]) -> torch.Tensor:
    """(slot, count, first position) a lane."""
    table = torch.zeros(len(lanes), rounds.PLAN, dtype=torch.int32)
    for n, (slot, count, start) in enumerate(lanes):
        table[n, 0], table[n, 1], table[n, 4] = slot, count, start
    return table.to(DEVICE)


def keep(lengths: list[int], layers: int = 2) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Rows of each slot, NaN past what is written, and where they are."""
    held = []
    for n, length in enumerate(lengths):
        rows = torch.full((layers, length + 70, 2, G, D), torch.nan, device=DEVICE)
        rows[:, :length] = randn(n, layers, length, 2, G, D)
        held.append(rows)
    table = [[rows.data_ptr(), rows.stride(0) * rows.element_size()] for rows in held]
    return held, torch.tensor([*table, [0, 0]], dtype=torch.int64, device=DEVICE)


def right(q: torch.Tensor, gate: torch.Tensor, rows: torch.Tensor, start: int) -> torch.Tensor:
    end = start + len(q)
    k, v = rows[:end].double().unbind(1)
    past = (k[:start].transpose(0, 1), v[:start].transpose(0, 1))
    o = reference.attention(q.double(), k[start:], v[start:], lengths=[len(q)], parents=[0], past=[past])
    return o * gate[..., D:].double().sigmoid()


@pytest.mark.parametrize("start", [0, 61, SPLIT_KEYS - 3, 2 * SPLIT_KEYS])
@pytest.mark.parametrize("rows", [1, 8])
def test_equals_the_reference(rows: int, start: int) -> None:
    held, stores = keep([start + rows])
    q, gate = randn(5, rows, G * RATIO, D), randn(6, rows, G * RATIO, 2 * D)
    for layer in (0, 1):
        got = decode(q, gate, plan=lines((0, rows, start)), stores=stores, groups=G,
                     splits=splits_of(start + rows), layer=layer)  # fmt: skip
        assert error(got, right(q, gate, held[0][layer], start)) < 3 * ACCURATE


def test_a_row_is_the_same_in_any_block_and_company() -> None:
    start, rows = SPLIT_KEYS - 5, 8
    held, stores = keep([40, start + rows])
    q, gate = randn(5, rows, G * RATIO, D), randn(6, rows, G * RATIO, 2 * D)
    common = {"stores": stores, "groups": G}
    whole = decode(q, gate, plan=lines((1, rows, start)), splits=2, **common)
    for i in range(rows):
        one = slice(i, i + 1)
        alone = decode(q[one], gate[one], plan=lines((1, 1, start + i)), splits=7, **common)
        assert torch.equal(alone[0], whole[i])
    both = torch.cat([randn(7, rows, G * RATIO, D), q])
    gates = torch.cat([randn(8, rows, G * RATIO, 2 * D), gate])
    together = decode(both, gates, plan=lines((0, 3, 37), (1, rows, start)), splits=4, **common)
    assert torch.equal(together[rows:], whole)
    assert not together[3:rows].any()
    assert held[0].isnan().any()


def test_lanes_that_do_nothing_leave_zeros() -> None:
    _, stores = keep([10])
    q, gate = randn(5, 2, G * RATIO, D), randn(6, 2, G * RATIO, 2 * D)
    assert not decode(q, gate, plan=lines((1, 0, 0)), stores=stores, groups=G, splits=1).any()
