"""Matrices in 8 or 4 bits with their scales beside them, read by the same loader.

**int8 rows** (`mainspring_int8_rows`): the tensor `name` is int8 [rows, columns] and `name.scale` fp16 or fp32 [rows];
a weight is int8 * scale. Symmetric, no zero point, rounded to nearest; -128 is not used.

**int4 groups** (`mainspring_int4_groups`): `name` is uint8 [rows, columns / 2], two columns a byte, the earlier in the
low nibble; `name.scale` and `name.offset` fp16 [rows, columns / GROUP]; a weight is nibble * scale + offset. 4.5 bits a
weight. Matrices of few rows or of a width that is no multiple of GROUP are int8 rows in the same file.

Only two-dimensional tensors are stored so, others stay floats, and files may mix all. Weights are widened on loading:
the formats save disk, not arithmetic.
"""

import json
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mainspring.model.config import INT4_GROUPS, INT8_ROWS

SCALE, OFFSET = ".scale", ".offset"
GROUP, LEAST_ROWS = 64, 64  # gates of a few rows decide what is remembered: they keep 8 bits


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 [rows, columns], fp16 scale [rows]) of a matrix; a row of zeros gets scale 0."""
    wide = weight.float()
    scale = (wide.abs().amax(1) / 127).half()
    # Rounded against the scale as stored: fp16 may have made it smaller.
    steps = wide / scale.float().clamp(min=1e-12)[:, None]
    return steps.round().clamp(-127, 127).to(torch.int8), scale


def widen_rows(rows: Tensor, scale: Tensor) -> Tensor:
    return rows.float() * scale.float()[:, None]


def in_groups(rows: int, columns: int) -> bool:
    """Whether a matrix of that shape is stored in 4 bits."""
    return rows >= LEAST_ROWS and columns % GROUP == 0


def group_steps(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(nibbles as floats 0 .. 15 [rows, groups, GROUP], scale and offset [rows, groups, 1] as fp16 holds them)."""
    wide = weight.float().unflatten(1, (-1, GROUP))
    least, most = wide.amin(-1, keepdim=True), wide.amax(-1, keepdim=True)
    scale, offset = ((most - least) / 15).half().float(), least.half().float()
    return ((wide - offset) / scale.clamp(min=1e-8)).round().clamp(0, 15), scale, offset


def quantise_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(uint8 [rows, columns / 2], fp16 scale and offset [rows, columns / GROUP]); columns a multiple of GROUP."""
    steps, scale, offset = group_steps(weight)
    nibbles = steps.flatten(1).to(torch.uint8)
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4, scale[..., 0].half(), offset[..., 0].half()


def widen_groups(packed: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    nibbles = torch.stack([packed & 15, packed >> 4], -1).flatten(1).float()
    wide = nibbles.unflatten(1, (-1, GROUP)) * scale.float()[..., None] + offset.float()[..., None]
    return wide.flatten(1)


def quantise_folder(folder: Path, bits: Literal[8, 4] = 8) -> None:
    """Rewrite `model.safetensors` and note it in config.json."""
    path = folder / "model.safetensors"
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(path).items():
        if tensor.dim() == 2 and bits == 4 and in_groups(*tensor.shape):
            tensors[name], tensors[name + SCALE], tensors[name + OFFSET] = quantise_groups(tensor)
        elif tensor.dim() == 2:
            tensors[name], tensors[name + SCALE] = quantise_rows(tensor)
        else:
            tensors[name] = tensor
    save_file(tensors, path, metadata={"format": "pt"})
    config = folder / "config.json"
    noted = json.loads(config.read_text("utf-8")) | {
        "quantization_config": {"quant_method": INT8_ROWS if bits == 8 else INT4_GROUPS}
    }
    config.write_text(json.dumps(noted, indent=2) + "\n", "utf-8")
