"""The padded training forward is the served one, row for row."""

import torch

from mainspring.train.network import Batch, label_logits, text_states
from support.models import random_tokens, tiny_model

VIEWS, BRANCHES = (70, 5, 130), ((5, 9), (12, 70), (1, 3))
LABELS = torch.tensor([5, 6, 7])


def test_batched_forward_equals_extend_and_fork() -> None:
    model = tiny_model(0)
    views = torch.zeros(len(VIEWS), max(VIEWS), dtype=torch.long)
    branches = torch.zeros(len(VIEWS), 2, 70, dtype=torch.long)
    expected = torch.zeros(len(VIEWS), 2, 3)
    for i, length in enumerate(VIEWS):
        views[i, :length] = random_tokens(i, length)
        state = model.new_state()
        model.extend(views[i, :length], [length], [state], update=True, outputs="none")
        for j, size in enumerate(BRANCHES[i]):
            branches[i, j, :size] = random_tokens(10 * i + j + 7, size)
            hidden = model.extend(branches[i, j, :size], [size], [state], [0], update=False, outputs="last")
            expected[i, j] = model.logits(hidden, LABELS)[0]
    batch = Batch(views, torch.tensor(VIEWS), branches, torch.tensor(BRANCHES))
    found, _ = label_logits(model, model.embed.weight, batch, LABELS)
    assert (found - expected).abs().max() < 2e-5


def test_gradients_reach_every_parameter() -> None:
    model = tiny_model(0).requires_grad_(True)
    batch = Batch(
        random_tokens(1, 2, 66), torch.tensor([66, 40]), random_tokens(2, 2, 2, 9), torch.tensor([[9, 4], [2, 8]])
    )
    label_logits(model, model.embed.weight, batch, LABELS)[0].square().mean().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not missing


def test_texts_alone_equal_extend_after_every_block() -> None:
    model = tiny_model(0)
    tokens = torch.zeros(len(VIEWS), max(VIEWS), dtype=torch.long)
    for i, length in enumerate(VIEWS):
        tokens[i, :length] = random_tokens(i, length)
    states = text_states(model, model.embed.weight, tokens, torch.tensor(VIEWS))
    assert len(states) == len(model.blocks)
    for i, length in enumerate(VIEWS):
        expected = model.extend(tokens[i, :length], [length], [model.new_state()], update=True)
        assert (model.norm(states[-1][i, :length]) - expected).abs().max() < 2e-5
