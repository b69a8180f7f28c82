"""What is trained: the network, its drafting head, and matrices that can be rounded as they will be stored.

Rounding passes gradients straight through (Bengio et al. 2013); `gate` turns it on, as a tensor, so that recorded steps
follow. Gates of few rows keep 8 bits on disk and are not rounded here.
"""

import torch
from torch import Tensor, nn

from mainspring.model.config import HybridConfig, parse_config
from mainspring.model.hybrid import Hybrid, Projections
from mainspring.model.mtp import MtpHead
from mainspring.model.quantised import group_steps, in_groups
from mainspring.model.saving import initialise
from mainspring.train.distill.config import WriterShape
from mainspring.train.distill.teacher import TeacherShape
from mainspring.train.parameters import fresh


class Student(nn.Module):
    def __init__(self, model: Hybrid, mtp: MtpHead) -> None:
        super().__init__()
        self.model, self.mtp = model, mtp
        self.gate: Tensor
        self.register_buffer("gate", torch.zeros(()), persistent=False)
        for module in [*model.blocks.modules(), *mtp.modules()]:
            if isinstance(module, Projections | nn.Linear):
                sizes = module.sizes if isinstance(module, Projections) else (module.weight.shape[0],)
                nn.utils.parametrize.register_parametrization(module, "weight", Rounding(self, sizes))

    def embedding(self) -> Tensor:
        """[vocab, d], tied to the head."""
        return through(self.model.embed.weight, self.gate)

    def fold(self) -> tuple[Hybrid, MtpHead]:
        """The plain networks, not rounded; this object is of no use afterwards."""
        for module in [*self.model.modules(), *self.mtp.modules()]:
            if nn.utils.parametrize.is_parametrized(module, "weight"):
                nn.utils.parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)
        return self.model.requires_grad_(False), self.mtp.requires_grad_(False)


class Rounding(nn.Module):
    """A parametrisation of one matrix, or of several on each other (`sizes` rows)."""

    def __init__(self, owner: Student, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        self._owner = [owner]  # in a list: no submodule of its own part

    def forward(self, weight: Tensor) -> Tensor:
        gate = self._owner[0].gate
        parts = [through(part, gate) for part in weight.split(self.sizes)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def through(weight: Tensor, gate: Tensor) -> Tensor:
    """`weight` where `gate` is 0, rounded to its 4-bit groups where it is 1; gradients see `weight` alone."""
    if not in_groups(*weight.shape):
        return weight
    with torch.no_grad():
        steps, scale, offset = group_steps(weight)
        off = (steps * scale + offset).flatten(1) - weight
    return weight + gate * off


def writer_config(shape: WriterShape, teacher: TeacherShape, vocab_size: int, end: int) -> HybridConfig:
    """Heads are as wide as the teacher's, and all of a head is rotated, as there."""
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
            "head_dim": teacher.head_dim,
            "linear_num_key_heads": shape.linear_heads,
            "linear_num_value_heads": shape.linear_heads,
            "linear_key_head_dim": teacher.head_dim,
            "linear_value_head_dim": teacher.head_dim,
            "tie_word_embeddings": True,
            "max_position_embeddings": shape.context,
            "rope_parameters": {"rope_theta": teacher.rope_theta, "partial_rotary_factor": 1.0},
            "eos_token_id": end,
        }
    )


def empty_student(config: HybridConfig, seed: int) -> Student:
    """Random weights of the usual sizes."""
    mtp = initialise(MtpHead(config), seed + 1, std=config.hidden_size**-0.5)
    return Student(fresh(config, seed), mtp)
