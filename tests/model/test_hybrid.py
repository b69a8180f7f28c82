"""The network against itself: references inside, chunks, forks, states."""

import pytest
import torch

from mainspring.model.hybrid import Ops
from mainspring.ops.attention.reference import attention as plain_attention
from mainspring.ops.causal_conv.reference import causal_conv as plain_conv
from mainspring.ops.gated_delta.reference import gated_delta as plain_delta
from support.models import random_tokens, tiny_model

REFERENCE = Ops(plain_delta, plain_conv, plain_attention)
pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.inference_mode():
        yield


def whole(model, tokens: torch.Tensor) -> torch.Tensor:
    return model.logits(model.extend(tokens, [len(tokens)], [model.new_state()], update=True))


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item()


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 300])
def test_fast_operations_equal_references(length: int) -> None:
    tokens = random_tokens(length, length)
    assert worst(whole(tiny_model(), tokens), whole(tiny_model(ops=REFERENCE), tokens)) < 1e-5


@pytest.mark.parametrize("cuts", [[150], [1, 149], [97, 3, 50], [64, 64, 22], [1] * 150])
def test_incremental_equals_whole(cuts: list[int]) -> None:
    model, tokens = tiny_model(), random_tokens(1, 150)
    state = model.new_state()
    pieces = [model.extend(piece, [len(piece)], [state], update=True) for piece in tokens.split(cuts)]
    assert state.length == 150
    assert worst(model.logits(torch.cat(pieces)), whole(model, tokens)) < 1e-5


def test_forks_equal_whole_and_leave_the_state_bitwise_alone() -> None:
    model, view = tiny_model(), random_tokens(2, 90)
    state = model.new_state(90)
    model.extend(view, [90], [state], update=True, outputs="none")
    before = [
        layer.buffer[:, :, : layer.length].clone() if hasattr(layer, "buffer") else layer.recurrent.clone()
        for layer in state.layers
    ]
    lengths = [30, 1, 130]
    branches = [random_tokens(10 + n, n) for n in lengths]
    last = model.extend(torch.cat(branches), lengths, [state], [0, 0, 0], update=False, outputs="last")
    for row, branch in zip(model.logits(last), branches, strict=True):
        assert worst(row, whole(model, torch.cat([view, branch]))[-1]) < 1e-5
    after = [
        layer.buffer[:, :, : layer.length] if hasattr(layer, "buffer") else layer.recurrent for layer in state.layers
    ]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert state.length == 90


def test_several_states_move_together() -> None:
    model = tiny_model()
    views = [random_tokens(n, n) for n in (5, 70, 33)]
    states = [model.new_state() for _ in views]
    hidden = model.extend(torch.cat(views), [5, 70, 33], states, update=True)
    for piece, view in zip(hidden.split([5, 70, 33]), views, strict=True):
        assert worst(model.logits(piece), whole(model, view)) < 1e-5


def test_last_layer_may_be_linear_attention() -> None:
    kinds = ["full_attention", "linear_attention", "linear_attention", "linear_attention"]
    model, tokens = tiny_model(layer_types=kinds), random_tokens(5, 80)
    state = model.new_state()
    model.extend(tokens[:60], [60], [state], update=True, outputs="none")
    last = model.extend(tokens[60:], [20], [state], [0], update=False, outputs="last")
    assert worst(model.logits(last)[0], whole(model, tokens)[-1]) < 1e-5


def test_label_rows_equal_the_whole_head() -> None:
    model, tokens = tiny_model(tie_word_embeddings=False), random_tokens(6, 9)
    hidden = model.extend(tokens, [9], [model.new_state()], update=True)
    ids = torch.tensor([5, 299, 0])
    assert worst(model.logits(hidden, ids), model.logits(hidden)[:, ids]) < 1e-6


def test_room_doubles_when_it_is_used_up() -> None:
    """Token by token without a capacity would copy everything at every token otherwise."""
    model, tokens = tiny_model(), random_tokens(7, 64)
    state, sizes = model.new_state(), set()
    for token in tokens.split(1):
        model.extend(token, [1], [state], update=True, outputs="none")
        sizes.add(state.nbytes)
    assert len(sizes) == 7


def test_state_bytes_count_what_is_held() -> None:
    model = tiny_model()
    state = model.new_state(100)
    # one attention layer: 2 x 2 heads x 100 x 16 floats; three delta layers: 4 x 16 x 24 state + 3 x (2*32 + 96) rows
    assert state.nbytes == 4 * (2 * 2 * 100 * 16 + 3 * (4 * 16 * 24 + 3 * 160))
