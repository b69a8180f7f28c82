"""A checkpoint out of the device as named arrays, and into it again, bit for bit. Rounds don't wait for either's bytes.

Out: in the device's thread the checkpoint's K/V rows are copied within the device, in the order of everything else, so
that whoever writes on behind it later changes nothing (0.1 ms for 100 MB); the rest of it nobody writes. From then on
another thread brings it to the host by a stream of its own, through one pinned buffer of PIECE bytes: small, so that a
round's few words never queue behind more than a piece of it (40 us at 50 GB/s). What waits for that thread is bounded
by who starts it (`engine.prefix_disk`).

In: where the prompt would be scanned otherwise, so it is waited for. Types that numpy lacks go as integers of their
width.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mainspring.backend.cuda_slots.buffers import Buffer
from mainspring.backend.cuda_slots.slot import Checkpoint

Arrays = Mapping[str, NDArray[np.generic]]
PIECE = 2 << 20
OPTIONAL = ("pending", "logits")


class Way:
    """From the device to the host, for one thread at a time that is not the device's."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._pinned = torch.empty(PIECE, dtype=torch.uint8, pin_memory=self._on_gpu)
        self._stream: Any = torch.cuda.Stream(device) if self._on_gpu else None

    def mark(self) -> Any:
        """In the device's thread: all that it has queued."""
        if not self._on_gpu:
            return None
        event = torch.cuda.Event()
        event.record()
        return event

    def down(self, tensor: Tensor, after: Any) -> NDArray[np.generic]:
        """A copy of `tensor`, contiguous, as it is once `after` is through."""
        source = tensor.reshape(-1).view(torch.uint8)
        target = np.empty(source.numel(), np.uint8)
        for at in range(0, len(target), PIECE):
            piece = source[at : at + PIECE]
            self._copy(piece, after)
            target[at : at + len(piece)] = self._pinned[: len(piece)].numpy()
        return target.view(_numpy_type(tensor.dtype)).reshape(tensor.shape)

    def _copy(self, piece: Tensor, after: Any) -> None:
        if self._stream is None:
            self._pinned[: len(piece)].copy_(piece)
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(after)
            self._pinned[: len(piece)].copy_(piece, non_blocking=True)
            done = torch.cuda.Event(blocking=True)  # it sleeps: a core that spins is one that launches no rounds
            done.record()
        done.synchronize()


class Leaving:
    """One checkpoint on its way out; see `engine.prefix_disk.Leaving`."""

    def __init__(self, kept: Checkpoint, way: Way) -> None:
        self._way, self._after = way, None
        self._counts = np.array([kept.length, kept.read], np.int64)
        found = {
            "rows": kept.buffer.rows[:, : kept.length], "recurrent": kept.recurrent, "conv": kept.conv,
            "pending": kept.pending, "logits": kept.logits,
        }  # fmt: skip
        self._tensors = {name: x for name, x in found.items() if x is not None}
        self.nbytes = sum(x.nbytes for x in self._tensors.values()) + self._counts.nbytes

    @torch.inference_mode()
    def begin(self) -> bool:
        try:
            self._tensors["rows"] = self._tensors["rows"].clone(memory_format=torch.contiguous_format)
        except torch.OutOfMemoryError:
            return False
        self._after = self._way.mark()
        return True

    @torch.inference_mode()
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        found = {name: self._way.down(x, self._after) for name, x in self._tensors.items()}
        return found | {"counts": self._counts}


@torch.inference_mode()
def loaded(arrays: Arrays, length: int, like: Checkpoint) -> Checkpoint:
    """Of a prompt of `length` tokens. `like`: shapes, types and place of all that a checkpoint here may have, its
    buffer's one row long. ValueError where an array is missing, misshaped or of something else."""
    counts = arrays.get("counts")
    if counts is None or counts.shape != (2,) or counts.dtype != np.int64 or int(counts[0]) != length:
        raise ValueError("not of this prompt")
    if not 0 <= int(counts[1]) <= length:
        raise ValueError("more rows of the drafting head than tokens")
    layers, _, *row = like.buffer.rows.shape
    wanted = {"rows": (like.buffer.rows, (layers, length, *row))}
    for name in ("recurrent", "conv", *OPTIONAL):
        tensor = getattr(like, name)
        if tensor is not None:
            wanted[name] = (tensor, tuple(tensor.shape))
    found: dict[str, Tensor] = {}
    for name, (tensor, shape) in wanted.items():
        array = arrays.get(name)
        if array is None and name in OPTIONAL:
            continue
        if array is None or array.shape != shape or array.dtype != _numpy_type(tensor.dtype):
            raise ValueError(f"{name} is missing or of another model")
        found[name] = torch.from_numpy(array).view(tensor.dtype).to(tensor.device)
    heads = (row[1], row[2])
    buffer = Buffer.empty(layers, length, heads, like.buffer.rows)
    buffer.rows[:, :length] = found["rows"]
    buffer.claims.append(length)
    return Checkpoint(
        buffer, length, found["recurrent"], found["conv"], int(counts[1]), found.get("pending"), found.get("logits")
    )


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    """Its own, or the integer of its width."""
    own = {torch.float32: np.float32, torch.bfloat16: np.int16, torch.float16: np.int16}
    return np.dtype(own[dtype])
