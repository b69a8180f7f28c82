"""Packed weights against the plain network."""

import pytest
import torch

from mainspring.backend.onednn_weights import pack_weights
from mainspring.ops.linear import onednn
from support.models import random_tokens, tiny_model

pytestmark = pytest.mark.skipif(not onednn.available(), reason="this torch build has no oneDNN linear")


def test_packed_equals_plain_and_leaves_its_tensors_alone() -> None:
    """Weights of the norms, which go into the matrices, are random here: at zero they would prove nothing."""
    plain, packed = tiny_model(), tiny_model()
    generator = torch.Generator().manual_seed(0)
    for a, b in zip(plain.blocks, packed.blocks, strict=True):
        for name in ("mixer_norm", "mlp_norm"):
            weight = torch.rand(a.mlp_norm.weight.shape, generator=generator) - 0.5
            for block in (a, b):
                getattr(block, name).weight.data.copy_(weight)
    given = dict(packed.named_parameters())
    before = {name: tensor.detach().clone() for name, tensor in given.items()}
    pack_weights(packed)
    assert all(torch.equal(given[name], before[name]) for name in given)
    tokens = random_tokens(3, 150)
    with torch.inference_mode():
        wanted, got = (
            model.logits(model.extend(tokens, [150], [model.new_state()], update=True)) for model in (plain, packed)
        )
    assert (got - wanted).abs().max() / wanted.abs().max() < 1e-5
