"""Element-wise functions and products whose bits do not depend on where an element or a row stands, on any threads."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mainspring.backend.torch_slots.shapes import PACKED_ROWS, PLAIN_ROWS, product, sigmoid, silu, softplus
from mainspring.ops.linear import onednn


@pytest.fixture(params=[1, 2, 3, 7])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


CUTS = ((0, 200_000), (1, 200_000), (77, 150_001), (3, 4), (64, 65_600), (5, 40_000))


@pytest.mark.parametrize(
    ("mine", "plain"), [(silu, F.silu), (sigmoid, torch.sigmoid), (softplus, F.softplus)], ids=["silu", "sigmoid", "sp"]
)
def test_elements_are_the_same_anywhere(
    threads: int, mine: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0)) * 4
    whole = mine(x)
    assert (whole - plain(x)).abs().max() < 1e-6
    for first, last in CUTS:
        assert torch.equal(mine(x[first:last]), whole[first:last]), (first, last)
    square = x[:60_000].view(200, 300)
    assert torch.equal(mine(square.t()), whole[:60_000].view(200, 300).t())


def test_functions_used_as_they_are(threads: int) -> None:
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(1)) * 4
    for function in (torch.exp, torch.cos, torch.sin):
        whole = function(x)
        for first, last in CUTS:
            assert torch.equal(function(x[first:last].contiguous()), whole[first:last])


@pytest.mark.parametrize("packed", [True, False])
def test_rows_are_the_same_in_any_number(packed: bool) -> None:
    """In this process's threads, and for those that a round can have."""
    if packed and not onednn.available():
        pytest.skip("this build has no packed products")
    generator = torch.Generator().manual_seed(2)
    for width, out in ((48, 96), (512, 1536), (1536, 512), (512, 16)):
        x, weight = torch.randn(64, width, generator=generator), torch.randn(out, width, generator=generator)
        laid = onednn.pack(weight) if packed else weight
        module = (lambda rows, w=laid: onednn.linear(rows, w)) if packed else (lambda rows, w=laid: F.linear(rows, w))
        least = PACKED_ROWS if packed else PLAIN_ROWS
        whole = product(module, x, least)
        for first, last in ((0, 1), (5, 6), (5, 7), (9, 12), (31, 64), (0, 40), (17, 21)):
            assert torch.equal(product(module, x[first:last].contiguous(), least), whole[first:last]), (first, last)
