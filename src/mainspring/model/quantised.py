"""Matrices as int8 rows with a scale each: a quarter of fp32, read by the same loader.

In a safetensors file the tensor `name` is int8 [rows, columns] and `name.scale` fp16 or fp32 [rows]; a weight is
int8 * scale. Symmetric, no zero point, rounded to nearest; -128 is not used. Only two-dimensional tensors are stored
so, others stay floats, and files may mix both. Weights are widened on loading: the format saves disk, not arithmetic.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mainspring.model.config import INT8_ROWS

SCALE = ".scale"
NOTE = {"quant_method": INT8_ROWS}


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 [rows, columns], fp16 scale [rows]) of a matrix; a row of zeros gets scale 0."""
    wide = weight.float()
    scale = (wide.abs().amax(1) / 127).half()
    # Rounded against the scale as stored: fp16 may have made it smaller.
    steps = wide / scale.float().clamp(min=1e-12)[:, None]
    return steps.round().clamp(-127, 127).to(torch.int8), scale


def widen_rows(rows: Tensor, scale: Tensor) -> Tensor:
    return rows.float() * scale.float()[:, None]


def quantise_folder(folder: Path) -> None:
    """Rewrite `model.safetensors` and note it in config.json."""
    path = folder / "model.safetensors"
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(path).items():
        if tensor.dim() == 2:
            tensors[name], tensors[name + SCALE] = quantise_rows(tensor)
        else:
            tensors[name] = tensor
    save_file(tensors, path, metadata={"format": "pt"})
    config = folder / "config.json"
    noted = json.loads(config.read_text("utf-8")) | {"quantization_config": NOTE}
    config.write_text(json.dumps(noted, indent=2) + "\n", "utf-8")
