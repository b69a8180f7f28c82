import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.ops.causal_conv import packed, reference


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    parents=st.lists(st.integers(-1, 1), min_size=6, max_size=6),
    history=st.booleans(),
    kernel=st.integers(2, 5),
)
def test_packed_equals_each_sequence_alone(
    seed: int, lengths: list[int], parents: list[int], history: bool, kernel: int
):
    g = torch.Generator().manual_seed(seed)
    u, weight = torch.randn(sum(lengths), 8, generator=g), torch.randn(8, kernel, generator=g)
    past = torch.randn(2, kernel - 1, 8, generator=g) if history else None
    where = {"lengths": lengths, "parents": parents[: len(lengths)], "history": past, "keep": True}
    wanted, wanted_tails = reference.causal_conv(u, weight, **where)
    got, tails = packed.causal_conv(u, weight, **where)
    assert torch.allclose(got, wanted, atol=3e-6, rtol=1e-5)
    assert torch.equal(tails, wanted_tails)


def test_neighbours_do_not_leak() -> None:
    """Changing one sequence's rows changes no other sequence's output, not even by a bit."""
    u, weight = torch.randn(30, 4), torch.randn(4, 4)
    where = {"lengths": [10, 3, 17], "parents": [-1, -1, -1], "history": None, "keep": False}
    before, _ = packed.causal_conv(u, weight, **where)
    u = u.clone()
    u[10:13] += 100.0
    after, _ = packed.causal_conv(u, weight, **where)
    assert torch.equal(before[:10], after[:10])
    assert torch.equal(before[13:], after[13:])
    assert not torch.equal(before[10:13], after[10:13])
