"""The chunked kernels against the token-by-token recurrence."""

import pytest
import torch
import torch.nn.functional as F

from mainspring.ops.gated_delta import reference
from mainspring.ops.gated_delta import triton as kernels
from mainspring.ops.ragged import CHUNK_ROWS
from support.kernels import ACCURATE, DEVICE, error, randn


def case(seed: int, lengths: list[int], *, Hk: int = 1, Hv: int = 2, d: int = 64, decay: float = 1.0):
    T = sum(lengths)
    q, k = (F.normalize(randn(seed + n, T, Hk, d), dim=-1) for n in (0, 1))
    v, beta, g = randn(seed + 2, T, Hv, d), randn(seed + 3, T, Hv).sigmoid(), -decay * randn(seed + 4, T, Hv).sigmoid()
    return (q * d**-0.5, k, v, beta, g), randn(seed + 5, 3, Hv, d, d)


def wanted(inputs: tuple[torch.Tensor, ...], initial: torch.Tensor | None, **where):
    given = None if initial is None else initial.double()
    return reference.gated_delta(*(x.double() for x in inputs), initial=given, **where)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("lengths", "parents"),
    [([1], [0]), ([CHUNK_ROWS], [-1]), ([CHUNK_ROWS + 1, 3], [2, 2]), ([2, 130, 63], [1, -1, 0])],
)
def test_equals_the_recurrence(lengths: list[int], parents: list[int], keep: bool) -> None:
    inputs, initial = case(3, lengths)
    got, states = kernels.gated_delta(*inputs, lengths=lengths, parents=parents, initial=initial, keep=keep)
    right, right_states = wanted(inputs, initial, lengths=lengths, parents=parents, keep=keep)
    assert error(got, right) < ACCURATE
    assert (states is None) == (not keep)
    if keep:
        assert error(states, right_states) < ACCURATE


@pytest.mark.parametrize("keep", [True, False])
def test_heads_of_128_that_share_keys(keep: bool) -> None:
    inputs, initial = case(4, [70], Hk=1, Hv=3, d=128)
    where = {"lengths": [70], "parents": [1], "keep": keep}
    got, _ = kernels.gated_delta(*inputs, initial=initial, **where)
    assert error(got, wanted(inputs, initial, **where)[0]) < ACCURATE


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, keep: bool) -> None:
    inputs, initial = case(5, [150, 40])
    inputs = (*(x.to(dtype) for x in inputs[:3]), *inputs[3:])
    where = {"lengths": [150, 40], "parents": [0, 1], "keep": keep}
    got, _ = kernels.gated_delta(*inputs, initial=initial, **where)
    bound = 5e-4 if dtype == torch.float16 else 3e-3
    assert error(got, wanted(inputs, initial, **where)[0]) < bound


def test_company_changes_no_bit() -> None:
    """What else is in a pass may move a view's rows and programs; the numbers must not."""
    inputs, _ = case(6, [70, 100])
    alone, final = kernels.gated_delta(*(x[70:] for x in inputs), lengths=[100], parents=[-1], initial=None, keep=True)
    both, finals = kernels.gated_delta(*inputs, lengths=[70, 100], parents=[-1, -1], initial=None, keep=True)
    assert torch.equal(both[70:], alone)
    assert torch.equal(finals[1], final[0])


def test_walks_may_hold_a_whole_state() -> None:
    """As they do where heads are many; bit for bit as those that share one."""
    inputs, _ = case(13, [70], Hk=1, Hv=2, d=128)
    inputs = (*(x.half() for x in inputs[:3]), *inputs[3:])
    made = {}
    for slices in (1, 2):
        o, final = torch.empty_like(inputs[2]), randn(0, 2, 128, 128)
        kernels.scan(
            *inputs, o, slices=slices,
            chunks=torch.tensor([[0, 64], [64, 6]], dtype=torch.int32, device=DEVICE),
            spans=torch.tensor([[0, 70, 0]], dtype=torch.int32, device=DEVICE),
            sources=torch.zeros(1, 2, dtype=torch.long, device=DEVICE),
            targets=torch.tensor([[final.data_ptr(), 0]], device=DEVICE),
        )  # fmt: skip
        made[slices] = o, final
    right = wanted(inputs, None, lengths=[70], parents=[-1], keep=True)
    for wide, narrow, plain in zip(made[1], made[2], right, strict=True):
        assert torch.equal(wide, narrow)
        assert error(wide.view_as(plain), plain) < 1e-3


def test_keys_in_bf16_are_refused() -> None:
    """Their products would be rounded eight times as coarsely as those of fp16."""
    inputs, _ = case(0, [3])
    none = torch.zeros(0, dtype=torch.int32, device=DEVICE)
    q, k = (x.bfloat16() for x in inputs[:2])
    with pytest.raises(TypeError, match=r"bfloat16 and torch\.bfloat16: fp16 or fp32"):
        kernels.fork(q, k, *inputs[2:], inputs[2], spans=none, parents=none, states=none)


def test_a_state_may_be_moved_in_place() -> None:
    inputs, initial = case(7, [80])
    right, right_states = wanted(inputs, initial, lengths=[80], parents=[1], keep=True)
    state, o = initial[1].clone(), torch.empty_like(inputs[2])
    at = torch.tensor([[state.data_ptr(), 0]], device=DEVICE)
    kernels.scan(
        *inputs, o, sources=at, targets=at,
        chunks=torch.tensor([[0, 64], [64, 16], [0, 0]], dtype=torch.int32, device=DEVICE),
        spans=torch.tensor([[0, 80, 0], [0, 0, 0]], dtype=torch.int32, device=DEVICE)[:1],
    )  # fmt: skip
    assert error(o, right) < ACCURATE
    assert error(state, right_states[0]) < ACCURATE


def test_forks_leave_the_parent_bitwise_alone() -> None:
    inputs, initial = case(8, [30, 100])
    before = initial.clone()
    kernels.gated_delta(*inputs, lengths=[30, 100], parents=[0, 0], initial=initial, keep=False)
    assert torch.equal(initial, before)


@pytest.mark.parametrize("keep", [True, False])
def test_equal_keys(keep: bool) -> None:
    """A repeated token: every row of a chunk's matrix is full, where series for its inverse lose all digits."""
    (q, k, v, _, _), initial = case(9, [64])
    k, ones = k[:1].expand_as(k).contiguous(), torch.ones(64, 2, device=DEVICE)
    inputs = (q, k, v, ones * 0.999, ones * -1e-3)
    where = {"lengths": [64], "parents": [0], "keep": keep}
    got, _ = kernels.gated_delta(*inputs, initial=initial, **where)
    assert error(got, wanted(inputs, initial, **where)[0]) < 10 * ACCURATE


@pytest.mark.parametrize("keep", [True, False])
def test_keys_that_hardly_differ_in_half_precision(keep: bool) -> None:
    """Where plain tf32 inside a chunk would show first, if it did."""
    (q, k, v, _, _), initial = case(12, [128])
    k = F.normalize(k[:1] + 0.3 * k, dim=-1)
    strong, slow = torch.full((128, 2), 0.95, device=DEVICE), torch.full((128, 2), -1e-3, device=DEVICE)
    inputs = (q.bfloat16(), k.bfloat16(), v.bfloat16(), strong, slow)
    where = {"lengths": [128], "parents": [0], "keep": keep}
    got, _ = kernels.gated_delta(*inputs, initial=initial, **where)
    assert error(got, wanted(inputs, initial, **where)[0]) < 5e-3


def test_extreme_decay_stays_finite_and_right() -> None:
    inputs, initial = case(10, [70], decay=60.0)
    where = {"lengths": [70], "parents": [0], "keep": True}
    got, _ = kernels.gated_delta(*inputs, initial=initial, **where)
    assert error(got, wanted(inputs, initial, **where)[0]) < 3e-4


def test_a_planted_bug_is_caught() -> None:
    """A decay that is off by a thousandth differs by far more than the tolerance."""
    inputs, initial = case(11, [64])
    where = {"lengths": [64], "parents": [0], "keep": False}
    *rest, g = inputs
    wrong, _ = kernels.gated_delta(*rest, g * 0.999, initial=initial, **where)
    assert error(wrong, wanted(inputs, initial, **where)[0]) > 10 * ACCURATE


def test_unknown_head_sizes_are_refused() -> None:
    inputs, initial = case(0, [3], d=24)
    with pytest.raises(ValueError, match="head sizes 24 and 24"):
        kernels.gated_delta(*inputs, lengths=[3], parents=[0], initial=initial, keep=True)
