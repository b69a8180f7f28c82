"""The hybrid network on the CPU in fp32.

Views run first, in pieces of at most `PIECE_ROWS` rows so that activations stay bounded whatever the view's length, and
leave K/V and recurrent states; branches then run together, forking those states by reading them. View rows get no head
and, in the last layer, no queries and no MLP; branches get the head's label rows alone.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mainspring.backend.gauges import Gauges, of_this_process
from mainspring.backend.generation import SlotLimits
from mainspring.backend.handles import Handles
from mainspring.backend.heap import keep_freed_memory
from mainspring.backend.onednn_weights import pack_weights
from mainspring.backend.protocol import NO_STATE, IntArray, Limits, PackedPass, PassResult
from mainspring.backend.threads import choose_threads
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.errors import DeviceError
from mainspring.model.hybrid import Hybrid
from mainspring.model.loading import load_hybrid, load_mtp
from mainspring.model.mtp import MtpHead
from mainspring.model.state import State
from mainspring.ops.linear import onednn

PIECE_ROWS = 2048
PASS_ROWS = 65_536


class TorchBackend:
    numerics = "fp32"

    def __init__(self, model: Hybrid, *, packed: bool | None = None, mtp: MtpHead | None = None) -> None:
        """`packed` lays weights out for oneDNN; None does so where the library has it. `mtp` drafts for generation."""
        self.packed = onednn.available() if packed is None else packed
        if self.packed:
            pack_weights(model)
        self._model, self._mtp, self._generates = model, mtp, False
        self._states: Handles[State] = Handles()
        self.limits = Limits(model.config.max_position_embeddings, PASS_ROWS, model.config.vocab_size)

    @classmethod
    def open(cls, path: Path, *, threads: int | None = None) -> "TorchBackend":
        """`threads` is torch's number for the whole process; None measures which pays."""
        torch.set_num_threads(threads or choose_threads())
        keep_freed_memory()
        return cls(load_hybrid(path), mtp=load_mtp(path))

    def generation(self, limits: SlotLimits) -> TorchSlots:
        """Slots of this model; once."""
        if self._generates:
            raise DeviceError("this backend's slots are open already")
        self._generates = True
        with torch.inference_mode():
            return TorchSlots(self._model, self._mtp, limits, packed=self.packed)

    @property
    def device(self) -> str:
        layout = "onednn" if self.packed else "plain"
        return f"cpu ({torch.get_num_threads()} threads, {layout})"

    @torch.inference_mode()
    def score_pass(self, work: PackedPass) -> PassResult:
        started = time.perf_counter()
        states = [
            self._states[handle] if handle != NO_STATE else self._model.new_state(int(length))
            for handle, length in zip(work.view_states.tolist(), work.view_lengths.tolist(), strict=True)
        ]
        self._advance(states, _split(work.view_tokens, work.view_lengths))
        logits = self._branches(work, states)
        handles = tuple(
            handle if handle != NO_STATE else (self._states.add(state) if keep else NO_STATE)
            for handle, state, keep in zip(work.view_states.tolist(), states, work.keep.tolist(), strict=True)
        )
        return PassResult(logits, handles, time.perf_counter() - started)

    @torch.inference_mode()
    def prefill(self, tokens: IntArray, state: int = NO_STATE, *, capacity: int = 0) -> int:
        target = self._model.new_state(max(capacity, len(tokens))) if state == NO_STATE else self._states[state]
        self._advance([target], [torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))])
        return self._states.add(target) if state == NO_STATE else state

    @torch.inference_mode()
    def copy(self, state: int, *, capacity: int = 0) -> int:
        return self._states.add(self._states[state].copy(capacity))

    def state_bytes(self, state: int) -> int:
        return self._states[state].nbytes

    def gauges(self) -> Gauges:
        return of_this_process()

    def release(self, state: int) -> None:
        self._states.remove(state)

    def _advance(self, states: Sequence[State], views: Sequence[Tensor]) -> None:
        """Move each state over its view: long views piece by piece, short ones together."""
        long = [len(view) > PIECE_ROWS for view in views]
        for state, view in (pair for pair, alone in zip(zip(states, views, strict=True), long, strict=True) if alone):
            for piece in view.split(PIECE_ROWS):
                self._model.extend(piece, [len(piece)], [state], update=True, outputs="none")
        short = [i for i, alone in enumerate(long) if not alone and len(views[i])]
        for group in _groups([len(views[i]) for i in short]):
            mine = [short[i] for i in group]
            tokens = torch.cat([views[i] for i in mine])
            lengths = [len(views[i]) for i in mine]
            self._model.extend(tokens, lengths, [states[i] for i in mine], update=True, outputs="none")

    def _branches(self, work: PackedPass, states: Sequence[State]) -> np.ndarray:
        branches = _split(work.branch_tokens, work.branch_lengths)
        parents = work.branch_views.tolist()
        hidden = [torch.zeros(0, self._model.config.hidden_size)]
        for group in _groups([len(branch) for branch in branches]):
            tokens = torch.cat([branches[i] for i in group])
            lengths = [len(branches[i]) for i in group]
            where = [parents[i] for i in group]
            hidden.append(self._model.extend(tokens, lengths, states, where, update=False, outputs="last"))
        return self._label_logits(torch.cat(hidden), work)

    def _label_logits(self, hidden: Tensor, work: PackedPass) -> np.ndarray:
        """Each branch's hidden row [d] against the head rows of its own label ids."""
        branch = torch.from_numpy(np.repeat(np.arange(len(work.label_counts)), work.label_counts))
        rows = self._model.head.weight[torch.from_numpy(work.label_ids)]
        # vecdot a (branch, label) pair: its value depends on no other pair, unlike a product's blocking.
        logits: np.ndarray = torch.linalg.vecdot(hidden[branch].float(), rows.float()).numpy()
        return logits


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Neighbours of at most PIECE_ROWS rows together (a longer one alone)."""
    group: list[int] = []
    rows = 0
    for i, length in enumerate(lengths):
        if group and rows + length > PIECE_ROWS:
            yield group
            group, rows = [], 0
        group.append(i)
        rows += length
    if group:
        yield group


def _split(tokens: IntArray, lengths: IntArray) -> list[Tensor]:
    return list(torch.from_numpy(tokens).split(lengths.tolist()))
