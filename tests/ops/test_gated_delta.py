"""The chunked form against the token-by-token recurrence, on every raggedness a pass has."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.ops.gated_delta import CHUNK_ROWS, chunked, reference


def case(seed: int, lengths: list[int], *, decay: float = 1.0, Hk: int = 2, Hv: int = 4, dk: int = 16, dv: int = 24):
    g = torch.Generator().manual_seed(seed)
    T = sum(lengths)

    def unit(*shape: int) -> torch.Tensor:
        return F.normalize(torch.randn(*shape, generator=g), dim=-1)

    q, k = unit(T, Hk, dk) * dk**-0.5, unit(T, Hk, dk)
    v = torch.randn(T, Hv, dv, generator=g)
    beta, gate = torch.rand(T, Hv, generator=g), -decay * torch.rand(T, Hv, generator=g)
    initial = torch.randn(3, Hv, dk, dv, generator=g)
    return (q, k, v, beta, gate), initial


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item() if len(b) else 0.0


def run_chunked(*inputs: torch.Tensor, **where: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """With gradients and without, which walks from chunk to chunk in place: the same."""
    differentiable = chunked.gated_delta(*inputs, **where)
    with torch.no_grad():
        in_place = chunked.gated_delta(*inputs, **where)
    for a, b in zip(differentiable, in_place, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert worst(a, b) < 1e-6
    return in_place


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=6),
    parents=st.lists(st.integers(-1, 2), min_size=6, max_size=6),
    keep=st.booleans(),
    decay=st.sampled_from([0.01, 1.0, 8.0]),
)
def test_chunked_equals_recurrence(seed: int, lengths: list[int], parents: list[int], keep: bool, decay: float) -> None:
    inputs, initial = case(seed, lengths, decay=decay)
    where = {"lengths": lengths, "parents": parents[: len(lengths)], "initial": initial, "keep": keep}
    wanted, wanted_states = reference.gated_delta(
        *(x.double() for x in inputs), **where | {"initial": initial.double()}
    )
    got, states = run_chunked(*inputs, **where)
    assert worst(got, wanted) < 2e-6
    assert (states is None) == (not keep)
    if keep:
        assert worst(states, wanted_states) < 2e-6


@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize("length", [1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS + 5])
def test_head_ratios_and_chunk_edges(ratio: int, length: int) -> None:
    inputs, initial = case(length, [length], Hk=2, Hv=2 * ratio)
    where = {"lengths": [length], "parents": [1], "initial": initial, "keep": True}
    for got, wanted in zip(run_chunked(*inputs, **where), reference.gated_delta(*inputs, **where), strict=True):
        assert worst(got, wanted) < 2e-6


def test_continuing_equals_one_run() -> None:
    inputs, _ = case(5, [150])
    whole, end = run_chunked(*inputs, lengths=[150], parents=[-1], initial=None, keep=True)
    first, middle = run_chunked(*(x[:97] for x in inputs), lengths=[97], parents=[-1], initial=None, keep=True)
    second, last = run_chunked(*(x[97:] for x in inputs), lengths=[53], parents=[0], initial=middle, keep=True)
    assert worst(torch.cat([first, second]), whole) < 2e-6
    assert worst(last, end) < 2e-6


def test_no_op_rows_leave_the_state_bitwise_alone() -> None:
    (q, k, v, _, _), initial = case(1, [40])
    nothing = torch.zeros(40, 4)
    _, states = run_chunked(
        q, torch.zeros_like(k), v, nothing, nothing, lengths=[40], parents=[2], initial=initial, keep=True
    )
    assert torch.equal(states[0], initial[2])


def test_forks_leave_the_parent_alone() -> None:
    inputs, initial = case(3, [30, 30, 100])
    before = initial.clone()
    run_chunked(*inputs, lengths=[30, 30, 100], parents=[0, 0, 1], initial=initial, keep=False)
    assert torch.equal(initial, before)


@pytest.mark.parametrize("keep", [True, False])
def test_inputs_are_left_alone(keep: bool) -> None:
    inputs, initial = case(3, [130])
    before = [x.clone() for x in (*inputs, initial)]
    run_chunked(*inputs, lengths=[130], parents=[0], initial=initial, keep=keep)
    assert all(torch.equal(x, y) for x, y in zip((*inputs, initial), before, strict=True))


def test_equal_keys() -> None:
    """A repeated token: every row of a chunk's matrix is full, where series for its inverse lose all digits."""
    (q, k, v, _, _), initial = case(5, [100])
    k, ones = k[:1].expand_as(k).contiguous(), torch.ones(100, 4)
    where = {"lengths": [100], "parents": [0], "initial": initial, "keep": True}
    got, _ = run_chunked(q, k, v, ones * 0.999, ones * -1e-3, **where)
    assert worst(got, reference.gated_delta(q, k, v, ones * 0.999, ones * -1e-3, **where)[0]) < 5e-6


def test_extreme_decay_stays_finite_and_right() -> None:
    inputs, initial = case(7, [130], decay=60.0)
    where = {"lengths": [130], "parents": [0], "initial": initial, "keep": True}
    got, _ = run_chunked(*inputs, **where)
    assert torch.isfinite(got).all()
    assert worst(got, reference.gated_delta(*inputs, **where)[0]) < 2e-6


def test_gradients_match_the_recurrence() -> None:
    inputs, initial = case(11, [70, 20])
    where = {"lengths": [70, 20], "parents": [0, 1], "initial": initial, "keep": False}

    def gradients(op) -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        op(*leaves, **where)[0].square().sum().backward()
        return [leaf.grad for leaf in leaves]

    for got, wanted in zip(gradients(chunked.gated_delta), gradients(reference.gated_delta), strict=True):
        assert worst(got, wanted) < 1e-4


def test_a_planted_bug_is_caught() -> None:
    """A chunk that forgets the decay between its rows differs by far more than the tolerance."""
    inputs, initial = case(2, [64], decay=1.0)
    where = {"lengths": [64], "parents": [0], "initial": initial, "keep": False}
    q, k, v, beta, g = inputs
    wrong, _ = chunked.gated_delta(q, k, v, beta, g * 0.999, **where)
    assert worst(wrong, reference.gated_delta(*inputs, **where)[0]) > 1e-5
