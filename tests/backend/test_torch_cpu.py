"""The CPU backend against the naive way: each branch with its whole view as one sequence."""

from typing import Any

import numpy as np
import pytest
import torch

from mainspring.backend import torch_cpu
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.ops.linear import onednn
from support.models import random_tokens, tiny_model
from support.passes import one_pass


def naive(view: list[int], branch: list[int], labels: list[int]) -> np.ndarray:
    model = tiny_model()
    tokens = torch.tensor(view + branch)
    with torch.inference_mode():
        hidden = model.extend(tokens, [len(tokens)], [model.new_state()], update=True)
        return model.logits(hidden)[-1, labels].numpy()


@pytest.mark.parametrize("packed", [False, True])
def test_a_pass_equals_the_naive_way(packed: bool) -> None:
    if packed and not onednn.available():
        pytest.skip("this torch build has no oneDNN linear")
    backend = TorchBackend(tiny_model(), packed=packed)
    views = [random_tokens(i, n).tolist() for i, n in enumerate((70, 3, 130))]
    parents = [0, 0, 1, 2, 2, 2]
    branches = [random_tokens(50 + i, n).tolist() for i, n in enumerate((30, 1, 70, 64, 5, 200))]
    labels = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [1], [2]]
    result = backend.score_pass(one_pass(views, branches, labels, parents=parents))
    wanted = [naive(views[p], b, ids) for p, b, ids in zip(parents, branches, labels, strict=True)]
    assert np.abs(result.logits - np.concatenate(wanted)).max() < 3e-5
    assert result.states == (-1, -1, -1)
    assert result.seconds > 0
    assert ("onednn" in backend.device) == packed


def test_long_views_run_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    view, branches = random_tokens(1, 300).tolist(), [random_tokens(i, 20).tolist() for i in range(9)]
    work = one_pass([view], branches, [[1, 2]] * 9)
    whole = TorchBackend(tiny_model()).score_pass(work).logits
    monkeypatch.setattr(torch_cpu, "PIECE_ROWS", 64)
    pieces = TorchBackend(tiny_model()).score_pass(work).logits
    assert np.abs(whole - pieces).max() < 3e-5


def test_no_more_rows_at_once_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations stay bounded: long views in pieces, many short ones and many branches in groups."""
    monkeypatch.setattr(torch_cpu, "PIECE_ROWS", 64)
    model = tiny_model()
    rows: list[int] = []
    real = model.extend

    def counted(tokens: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        rows.append(len(tokens))
        return real(tokens, *args, **options)

    model.extend = counted
    views = [random_tokens(i, n).tolist() for i, n in enumerate((200, 30, 30, 30, 64, 1))]
    branches = [random_tokens(i, 20).tolist() for i in range(12)]
    parents = [i // 2 for i in range(12)]
    result = TorchBackend(model).score_pass(one_pass(views, branches, [[1, 2]] * 12, parents=parents))
    wanted = [naive(views[p], b, [1, 2]) for p, b in zip(parents, branches, strict=True)]
    assert np.abs(result.logits - np.concatenate(wanted)).max() < 3e-5
    assert max(rows) == 64
    assert sum(rows) == 355 + 240


def test_kept_states_fork_and_move_on() -> None:
    backend = TorchBackend(tiny_model())
    view, branch = random_tokens(1, 100).tolist(), random_tokens(2, 10).tolist()
    wanted = naive(view, branch, [1, 2])
    kept = backend.score_pass(one_pass([view], [branch], [[1, 2]], keep=True))
    (state,) = kept.states
    again = backend.score_pass(one_pass([[]], [branch], [[1, 2]], states=[state]))
    grown = backend.prefill(np.array(view[:60]), capacity=100)
    moved = backend.score_pass(one_pass([view[60:]], [branch], [[1, 2]], states=[grown]))
    for result in (kept, again, moved):
        assert np.abs(result.logits - wanted).max() < 3e-5
    assert again.states == (state,)
    assert backend.state_bytes(state) == backend.state_bytes(grown) > 0
    backend.release(state)
    with pytest.raises(ValueError, match="no state has handle"):
        backend.release(state)
    with pytest.raises(ValueError, match="no state has handle"):
        backend.score_pass(one_pass([[]], [branch], [[1, 2]], states=[state]))


def test_a_pass_without_branches_and_one_without_views() -> None:
    backend = TorchBackend(tiny_model())
    assert backend.score_pass(one_pass([[1, 2, 3]], [], [])).logits.shape == (0,)
    assert backend.score_pass(one_pass([], [], [])).states == ()
    empty_view = backend.score_pass(one_pass([[]], [[5, 6]], [[1, 2]])).logits
    assert np.abs(empty_view - naive([], [5, 6], [1, 2])).max() < 3e-5
