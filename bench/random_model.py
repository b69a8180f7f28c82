"""A network of a released shape with random weights, drawn on the device that runs it."""

from typing import Any

import torch

from mainspring.model.config import parse_config
from mainspring.model.hybrid import Hybrid


@torch.no_grad()
def random_model(shape: dict[str, Any], *, dtype: torch.dtype, device: str, seed: int = 0, std: float = 0.02) -> Hybrid:
    """Matrices in `dtype`, vectors in fp32, as the loader gives them."""
    config = parse_config(shape)
    with torch.device("meta"):
        model = Hybrid(config)
    generator = torch.Generator(device).manual_seed(seed)
    drawn = {}
    for name, parameter in model.named_parameters():
        size = tuple(parameter.shape)
        if name.endswith("A_log"):
            value = torch.empty(size, device=device).uniform_(1, 16, generator=generator).log()
        elif name.endswith("dt_bias"):
            value = torch.empty(size, device=device).uniform_(-6.9, -2.3, generator=generator).exp().expm1().log()
        elif len(size) > 1:
            scale = 0.3 if name.endswith("conv") else std
            value = torch.empty(size, device=device, dtype=dtype).normal_(0.0, scale, generator=generator)
        else:
            value = torch.full(size, float(name.endswith("mixer.norm")), device=device)
        drawn[name] = value
    if config.tie_word_embeddings:
        drawn["head.weight"] = drawn["embed.weight"]
    model.load_state_dict(drawn, strict=True, assign=True)
    if config.tie_word_embeddings:
        model.head.weight = model.embed.weight
    return model.eval().requires_grad_(False)
