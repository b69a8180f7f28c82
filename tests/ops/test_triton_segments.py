"""Views cut in segments against the token-by-token recurrence, and against whole walks."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mainspring.ops import ragged
from mainspring.ops.gated_delta import reference, segments
from mainspring.ops.gated_delta import triton as kernels
from support.kernels import ACCURATE, DEVICE, error, randn

Inputs = tuple[torch.Tensor, ...]


def case(seed: int, rows: int, *, Hk: int = 1, Hv: int = 2, d: int = 64, decay: float = 0.05) -> Inputs:
    """Slow decay: what came before a segment still counts in it."""
    q, k = (F.normalize(randn(seed + n, rows, Hk, d), dim=-1) for n in (0, 1))
    v, beta = randn(seed + 2, rows, Hv, d), randn(seed + 3, rows, Hv).sigmoid()
    return q * d**-0.5, k, v, beta, -decay * randn(seed + 4, rows, Hv).sigmoid()


def scan(
    inputs: Inputs, lengths: list[int], states: list[torch.Tensor | None], *, least: int, slices: int | None = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(o, states after), each moved in place where a view has one before."""
    v = inputs[2]
    Hv, dk, dv = v.shape[1], inputs[1].shape[2], v.shape[2]
    finals = [randn(9, Hv, dk, dv) if state is None else state for state in states]
    o = torch.full_like(v, torch.nan)

    def addresses(tensors: list[torch.Tensor | None]) -> torch.Tensor:
        return torch.tensor([[0 if t is None else t.data_ptr(), 0] for t in tensors], device=DEVICE)

    rows = np.array(lengths)
    chunks, first = ragged.chunk_table(rows)
    spans = np.stack([ragged.starts(rows)[:-1], rows, first[:-1]], 1).astype(np.int32)
    kernels.scan(
        *inputs, o, slices=slices, chunks=torch.from_numpy(chunks).to(DEVICE), spans=torch.from_numpy(spans).to(DEVICE),
        segments=torch.from_numpy(segments.segment_table(rows, least)).to(DEVICE) if least else None,
        sources=addresses(states), targets=addresses([*finals]),
    )  # fmt: skip
    return o, finals


def wanted(inputs: Inputs, lengths: list[int], states: list[torch.Tensor | None]) -> tuple[torch.Tensor, torch.Tensor]:
    Hv, dk, dv = inputs[2].shape[1], inputs[1].shape[2], inputs[2].shape[2]
    initial = [torch.zeros(Hv, dk, dv) if s is None else s.double().cpu() for s in states]
    o, finals = reference.gated_delta(
        *(x.double().cpu() for x in inputs), lengths=lengths, parents=list(range(len(lengths))), initial=initial,
        keep=True,
    )  # fmt: skip
    assert finals is not None
    return o.to(DEVICE), finals.to(DEVICE)


@pytest.mark.parametrize("lengths", [[300], [1, 65, 512], [128, 449]])
def test_equals_the_recurrence(lengths: list[int]) -> None:
    """With states of their own, which are moved in place, and without."""
    inputs = case(20, sum(lengths))
    states = [randn(30 + n, 2, 64, 64) if n % 2 == 0 else None for n in range(len(lengths))]
    right, right_states = wanted(inputs, lengths, states)
    got, finals = scan(inputs, lengths, states, least=64)
    assert error(got, right) < ACCURATE
    assert error(torch.stack(finals), right_states) < ACCURATE


@pytest.mark.parametrize("slices", [1, 2])
def test_half_precision_of_heads_of_128(slices: int) -> None:
    inputs = case(21, 333, Hv=1, d=128)
    inputs = (*(x.half() for x in inputs[:3]), *inputs[3:])
    state = randn(33, 1, 128, 128)
    right, right_states = wanted(inputs, [333], [state])
    whole, whole_states = scan(inputs, [333], [state.clone()], least=0, slices=slices)
    got, finals = scan(inputs, [333], [state.clone()], least=64, slices=slices)
    assert error(got, right) < 5e-4
    assert error(torch.stack(finals), right_states) < 5e-4
    assert error(got, right) < 1.1 * error(whole, right)
    assert error(finals[0], right_states[0]) < 1.1 * error(whole_states[0], right_states[0])


def test_slices_and_company_change_no_bit() -> None:
    inputs = case(22, 70 + 300, Hv=1, d=128)
    inputs = (*(x.half() for x in inputs[:3]), *inputs[3:])
    both, finals = scan(inputs, [70, 300], [None, None], least=128, slices=2)
    for slices in (1, 2):
        alone, final = scan(tuple(x[70:] for x in inputs), [300], [None], least=128, slices=slices)
        assert torch.equal(both[70:], alone)
        assert torch.equal(finals[1], final[0])


def test_a_view_that_stays_whole_has_the_bits_of_a_walk() -> None:
    inputs = case(23, 130, d=64)
    state = randn(34, 2, 64, 64)
    whole, whole_states = scan(inputs, [130], [state.clone()], least=0)
    got, finals = scan(inputs, [130], [state.clone()], least=192)
    assert torch.equal(got, whole)
    assert torch.equal(finals[0], whole_states[0])


@pytest.mark.parametrize("planted", ["ends", "moves"])
def test_a_segment_without_those_before_it_is_caught(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What segments hand on matters far beyond the tolerance: zeroed before the walks read it."""
    inputs = case(24, 256)
    right, _ = wanted(inputs, [256], [None])
    carry = kernels._carry

    class Planted:
        def __getitem__(self, grid: tuple[int, ...]):
            def launch(*args, **options) -> None:
                carry[grid](*args, **options)
                dict(zip(carry.arg_names, args, strict=False))[planted].zero_()

            return launch

    monkeypatch.setattr(kernels, "_carry", Planted())
    got, _ = scan(inputs, [256], [None], least=64)
    assert error(got, right) > 1000 * ACCURATE


@pytest.mark.parametrize("least", [0, 64, 2048])
@pytest.mark.parametrize("lengths", [[0], [1], [2048], [2049, 0, 8192], [18000, 63], [4095, 4097, 6145]])
def test_segments_are_whole_chunks_in_order(lengths: list[int], least: int) -> None:
    rows = np.array(lengths)
    table = segments.segment_table(rows, least)
    assert len(table) == segments.count_segments(rows, least)
    chunks, first_chunk = ragged.chunk_table(rows)
    for view, length in enumerate(lengths):
        own = table[table[:, 3] == view]
        n = len(own)
        assert 1 <= n <= (segments.MOST_SEGMENTS if least else 1)
        assert own[:, 1].sum() == length
        assert (own[:-1, 1] % 64 == 0).all()
        if n > 1:
            assert own[:-1, 1].min() > least / 2
        if length:
            assert (chunks[own[:, 2], 0] == own[:, 0]).all()
        assert own[0, 2] == first_chunk[view]
        assert own[:, 4].tolist() == list(range(n))
        assert own[:, 5].tolist() == list(range(n - 1, -1, -1))
    if least == 2048:
        assert [len(table[table[:, 3] == v]) for v in range(len(lengths))] == [
            min(max(-(-n // 2048), 1), 4) for n in lengths
        ]
