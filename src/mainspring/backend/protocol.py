"""What the engine asks of a device. Arrays stay inside; what crosses is numpy, ints and opaque handles.

A pass scores several requests at once. Its *views* are scanned once each (or come as a handle of a state kept earlier);
its *branches* fork their view's state and see that view and themselves, nothing else. What comes back are the logits of
each branch's label ids after its last token. Handles belong to one backend object and live until released.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mainspring.backend.generation import GenerationBackend, SlotLimits

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

NO_STATE = -1


@dataclass(frozen=True)
class PackedPass:
    """Ragged arrays, concatenated: V views, B branches.

    view_states[i] is NO_STATE for a view that starts from nothing, else a handle; view i then goes on from there, and
    with view_lengths[i] == 0 it only forks it. A handle with tokens to add is moved forward in place.
    keep[i] asks for a handle of the state at view i's end.
    """

    view_tokens: IntArray  # [sum view_lengths]
    view_lengths: IntArray  # [V]
    view_states: IntArray  # [V]
    keep: NDArray[np.bool_]  # [V]
    branch_tokens: IntArray  # [sum branch_lengths]
    branch_lengths: IntArray  # [B], each at least 1
    branch_views: IntArray  # [B] index into the views, ascending
    label_ids: IntArray  # [sum label_counts]
    label_counts: IntArray  # [B]

    def __post_init__(self) -> None:
        checks = (
            (self.view_lengths.sum() == len(self.view_tokens), "view_lengths must sum to the view tokens"),
            (len(self.view_lengths) == len(self.view_states) == len(self.keep), "one state and keep a view"),
            (self.branch_lengths.sum() == len(self.branch_tokens), "branch_lengths must sum to the branch tokens"),
            (len(self.branch_lengths) == len(self.branch_views) == len(self.label_counts), "one view a branch"),
            (self.label_counts.sum() == len(self.label_ids), "label_counts must sum to the label ids"),
            (bool((self.branch_lengths > 0).all()), "a branch has at least one token"),
            (bool((np.diff(self.branch_views) >= 0).all()), "branches come in the order of their views"),
        )
        for holds, what in checks:
            if not holds:
                raise ValueError(f"packed pass: {what}")

    @property
    def rows(self) -> int:
        return len(self.view_tokens) + len(self.branch_tokens)


@dataclass(frozen=True)
class PassResult:
    logits: FloatArray  # [sum label_counts], branch after branch
    states: tuple[int, ...]  # a view: its handle where kept, else NO_STATE
    seconds: float  # device time of the pass, after a sync


@dataclass(frozen=True)
class Limits:
    """What one pass may hold. `context_tokens` bounds view + branch, the others bound memory. `kept_bytes`: for kept
    views, and as much again for checkpoints of prompts, where nobody says how much."""

    context_tokens: int
    pass_rows: int
    vocab_size: int
    kept_bytes: int = 256 << 20


class Backend(Protocol):
    """One model on one device. Not thread-safe: one piece of work at a time."""

    @property
    def device(self) -> str:
        """For people: `cpu (2 threads, onednn)`."""
        ...

    @property
    def numerics(self) -> str:
        """fp32, bf16, fp8 or q4."""
        ...

    @property
    def limits(self) -> Limits: ...

    def score_pass(self, work: PackedPass) -> PassResult: ...

    def prefill(self, tokens: IntArray, state: int = NO_STATE, *, capacity: int = 0) -> int:
        """Move `state` (a new one for NO_STATE, with room for `capacity` tokens) over `tokens`; its handle."""
        ...

    def copy(self, state: int, *, capacity: int = 0) -> int:
        """A handle of the state's copy, with room for `capacity` tokens in all: to go on from a state that stays."""
        ...

    def state_bytes(self, state: int) -> int:
        """Device memory the state holds on its own account. May be asked from another thread while a pass runs."""
        ...

    def generation(self, limits: "SlotLimits") -> "GenerationBackend":
        """Slots of this model, once. DeviceError where this device does not generate."""
        ...

    def release(self, state: int) -> None:
        """Free a state. Releasing one twice, or one never handed out, is a ValueError. May be called from another
        thread while a pass runs that does not use the state."""
        ...


def open_backend(path: Path, device: str = "cpu", *, threads: int | None = None) -> Backend:
    """Load the checkpoint in folder `path` on `device`: "cpu" (`threads` of it, None measures), "cuda" or "null"."""
    if device == "cpu":
        from mainspring.backend.torch_cpu import TorchBackend

        return TorchBackend.open(path, threads=threads)
    if device == "cuda":
        from mainspring.backend.cuda.backend import CudaBackend

        return CudaBackend.open(path)
    if device == "null":
        from mainspring.backend.null import NullBackend

        return NullBackend.open(path)
    raise ValueError(f"device {device!r} is not known; known: cpu, cuda, null")
