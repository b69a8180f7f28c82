"""Matrices moved together move as `torch.optim.Muon` moves them one by one."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mainspring.train.muon import Muon, orthogonal

SHAPES = ((24, 40), (40, 24), (24, 40), (16, 16), (24, 40))
HOW: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in SHAPES]


def stepped(optimiser: torch.optim.Optimizer, ours: list[nn.Parameter], seeds: range) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for p in ours:
            p.grad = torch.randn(*p.shape, generator=generator)
        optimiser.step()


def assert_near(found: list[nn.Parameter], wanted: list[nn.Parameter]) -> None:
    """The iteration is bf16: sums of products of a stack may differ in their last bits from those of one matrix."""
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=0)


def test_steps_are_those_of_the_library() -> None:
    ours, theirs, before = parameters(), parameters(), parameters()
    stepped(Muon(ours, **HOW), ours, range(4))
    stepped(torch.optim.Muon(theirs, **HOW), theirs, range(4))
    assert_near(ours, theirs)
    assert all((a - b).abs().max() > 0.05 for a, b in zip(ours, before, strict=True))


@pytest.mark.parametrize("how", [{"nesterov": False}, {"momentum": 0.5, "ns_steps": 3}, {"eps": 10.0}])
def test_settings_are_those_of_the_library(how: dict[str, Any]) -> None:
    ours, theirs = parameters(), parameters()
    stepped(Muon(ours, **HOW, **how), ours, range(4))
    stepped(torch.optim.Muon(theirs, **HOW, **how), theirs, range(4))
    assert_near(ours, theirs)


def test_each_group_has_its_own_rate_and_decay() -> None:
    """Of matrices of one shape in two groups."""
    ours, theirs = parameters(), parameters()

    def groups(of: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": of[:2]}, {"params": of[2:], "lr": 0.05, "weight_decay": 1.0}]

    stepped(Muon(groups(ours), **HOW), ours, range(3))
    stepped(torch.optim.Muon(groups(theirs), **HOW), theirs, range(3))
    assert_near(ours, theirs)


def test_no_gradient_at_all_leaves_nothing_but_decay() -> None:
    """A matrix of noughts has no direction; it must not become one of NaN."""
    ours, before = parameters(), parameters()
    for p in ours:
        p.grad = torch.zeros_like(p)
    Muon(ours, **HOW).step()
    for a, b in zip(ours, before, strict=True):
        torch.testing.assert_close(a, b * (1 - HOW["lr"] * HOW["weight_decay"]))


@pytest.mark.parametrize("scale", ["original", None])
def test_another_scale_is_refused(scale: str | None) -> None:
    ours = parameters()
    with pytest.raises(ValueError, match="scales"):
        stepped(Muon(ours, **{**HOW, "adjust_lr_fn": scale}), ours, range(1))


def test_a_state_of_the_library_goes_on_here() -> None:
    ours, theirs = parameters(), parameters()
    library = torch.optim.Muon(theirs, **HOW)
    stepped(library, theirs, range(2))
    here = Muon(ours, **HOW)
    stepped(here, ours, range(5, 7))  # a momentum of its own, which must give way
    for p, q in zip(ours, theirs, strict=True):
        p.data.copy_(q.data)
    here.load_state_dict(copy.deepcopy(library.state_dict()))
    stepped(here, ours, range(2, 4))
    stepped(library, theirs, range(2, 4))
    assert_near(ours, theirs)


def test_a_matrix_without_a_gradient_stays() -> None:
    ours, before = parameters(), parameters()
    optimiser = Muon(ours, **HOW)
    ours[0].grad = torch.ones_like(ours[0])
    optimiser.step()
    assert torch.equal(ours[2], before[2])
    assert not torch.equal(ours[0], before[0])


@pytest.mark.parametrize("shape", [(3, 24, 40), (2, 40, 24), (1, 16, 16)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    found: Tensor = orthogonal(x, (3.4445, -4.7750, 2.0315), 5, 1e-7)
    assert found.shape == shape
    values = torch.linalg.svdvals(found.float())
    assert 0.5 < values.min() < values.max() < 1.4


def test_a_closure_is_refused() -> None:
    with pytest.raises(ValueError, match="closure"):
        Muon(parameters(), **HOW).step(lambda: 0.0)
