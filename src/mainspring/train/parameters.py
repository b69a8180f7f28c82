"""What is trained: a network and where its embeddings come from.

From scratch, embeddings are a fixed table times a learned projection, plus free rows for control tokens and answers;
`fold` multiplies them out, so that what is saved is an ordinary checkpoint. On top of a base, all weights, the head's
answer rows, or low-rank updates of every product are trained; updates are merged on `fold`.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mainspring.model.config import HybridConfig, parse_config
from mainspring.model.hybrid import Hybrid, Projections
from mainspring.model.saving import initialise
from mainspring.train.config import Shape


class Trainable(nn.Module):
    def __init__(
        self, model: Hybrid, free: list[int], table: Tensor | None = None, *, std: float = 0.1, seed: int = 0
    ) -> None:
        """`free` are ids whose rows are learned one by one; `std` is that of rows made from the table.

        The projection itself is of order one over root width, as every other matrix: a smaller one would be turned over
        by its first few updates, whose size does not depend on it.
        """
        super().__init__()
        self.model = model
        self.std = std
        self.free: Tensor
        self.table: Tensor | None
        self.register_buffer("free", torch.tensor(free), persistent=False)
        self.register_buffer("table", table, persistent=False)
        self.rows = nn.Parameter(torch.zeros(len(free), model.config.hidden_size))
        self.spread = nn.Parameter(torch.full((model.config.hidden_size,), 0.1))  # of the next-token loss, not saved
        if table is not None:
            model.embed.weight.requires_grad_(False)
            start = torch.empty(model.config.hidden_size, table.shape[1])
            start.normal_(0, table.shape[1] ** -0.5, generator=torch.Generator().manual_seed(seed))
            self.projection = nn.Parameter(start)

    def embedding(self) -> Tensor:
        """[vocab, d], tied to the head."""
        base = (
            self.model.embed.weight if self.table is None else self.std * F.linear(self.table, self.projection).float()
        )
        return base.index_add(0, self.free, self.rows)

    @torch.no_grad()
    def fold(self) -> Hybrid:
        """The network with its embeddings and updates multiplied out; this object is of no use afterwards."""
        merge_lora(self.model)
        self.model.embed.weight = nn.Parameter(self.embedding().clone())
        if self.model.config.tie_word_embeddings:
            self.model.head.weight = self.model.embed.weight
        return self.model.requires_grad_(False)


def config_of(shape: Shape, vocab_size: int, eos: int, context: int) -> HybridConfig:
    return parse_config(
        {
            "model_type": "qwen3_5_text",
            "vocab_size": vocab_size,
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size,
            "num_hidden_layers": shape.num_hidden_layers,
            "full_attention_interval": shape.attention_every,
            "num_attention_heads": shape.num_attention_heads,
            "num_key_value_heads": shape.num_key_value_heads,
            "head_dim": shape.head_dim,
            "linear_num_key_heads": shape.linear_heads,
            "linear_num_value_heads": shape.linear_heads,
            "linear_key_head_dim": shape.head_dim,
            "linear_value_head_dim": shape.head_dim,
            "tie_word_embeddings": True,
            "max_position_embeddings": context,
            "rope_parameters": {"rope_theta": 1e5, "partial_rotary_factor": 0.5},
            "eos_token_id": eos,
        }
    )


def fresh(config: HybridConfig, seed: int, final_scale: float = 1.0) -> Hybrid:
    """Weights of about 1 / sqrt(width), those that write to the residual stream smaller by the depth."""
    model = initialise(Hybrid(config), seed, std=config.hidden_size**-0.5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")):
                parameter.mul_((2 * config.num_layers) ** -0.5)
        model.norm.weight.fill_(final_scale - 1)
    return model


class LowRank(nn.Module):
    """W + B A, as a parametrisation of a weight: Hu et al. 2021."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]) * weight.shape[1] ** -0.5)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


def add_lora(model: Hybrid, rank: int) -> None:
    """Freeze the network, and give every product a low-rank update."""
    model.requires_grad_(False)
    for module in list(model.blocks.modules()):
        if isinstance(module, Projections | nn.Linear):
            nn.utils.parametrize.register_parametrization(module, "weight", LowRank(module.weight, rank))


def merge_lora(model: Hybrid) -> None:
    for module in list(model.modules()):
        if nn.utils.parametrize.is_parametrized(module, "weight"):
            nn.utils.parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
