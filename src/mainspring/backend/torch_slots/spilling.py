"""A checkpoint as named arrays, and again what it was, bit for bit."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mainspring.backend.torch_slots.buffers import Buffer
from mainspring.backend.torch_slots.slot import Checkpoint, Slot
from mainspring.model.config import HybridConfig

Arrays = Mapping[str, NDArray[np.generic]]
OPTIONAL = ("pending", "logits")


class Leaving:
    """One checkpoint on its way out; see `engine.prefix_disk.Leaving`. "counts" [2] int64: tokens, rows of the drafting
    head."""

    def __init__(self, kept: Checkpoint) -> None:
        found = {
            "rows": kept.buffer.rows[:, :, :, : kept.length], "recurrent": kept.recurrent, "conv": kept.conv,
            "pending": kept.pending, "logits": kept.logits,
        }  # fmt: skip
        self._tensors = {name: x for name, x in found.items() if x is not None}
        self._arrays: dict[str, NDArray[np.generic]] = {"counts": np.array([kept.length, kept.drafted], np.int64)}
        self.nbytes = sum(x.nbytes for x in self._tensors.values()) + self._arrays["counts"].nbytes

    @torch.inference_mode()
    def begin(self) -> bool:
        """Copies: others write on behind its rows."""
        self._arrays |= {
            name: x.clone(memory_format=torch.contiguous_format).numpy() for name, x in self._tensors.items()
        }
        self._tensors = {}
        return True

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return self._arrays


@torch.inference_mode()
def loaded(arrays: Arrays, length: int, config: HybridConfig, layers: int, vocab: int) -> Checkpoint:
    """Of a prompt of `length` tokens. ValueError where an array is missing, misshaped or of something else."""
    blank = Slot(config, layers, drafting=False)
    _, heads, size = blank.shape
    shapes = {
        "rows": (layers, 2, heads, length, size), "recurrent": tuple(blank.states[:, 0].shape),
        "conv": tuple(blank.conv.shape), "pending": (1, config.hidden_size), "logits": (vocab,),
    }  # fmt: skip
    counts = arrays.get("counts")
    if counts is None or counts.shape != (2,) or counts.dtype != np.int64 or int(counts[0]) != length:
        raise ValueError("not of this prompt")
    if not 0 <= int(counts[1]) <= length:
        raise ValueError("more rows of the drafting head than tokens")
    found: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None and name in OPTIONAL:
            continue
        if array is None or array.shape != shape or array.dtype != np.float32:
            raise ValueError(f"{name} is missing or of another model")
        found[name] = torch.from_numpy(array)
    buffer = Buffer.empty(blank.shape, length)
    buffer.rows[:, :, :, :length] = found["rows"]
    buffer.claims.append(length)
    return Checkpoint(
        buffer, length, found["recurrent"], found["conv"], int(counts[1]), found.get("pending"), found.get("logits")
    )
