"""The protocol on an NVIDIA GPU. A pass is one forward; what exceeds a pass goes in several.

Views longer than a pass move forward in pieces first. Nothing here waits for the device but the answer of a forward.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mainspring.backend.cuda import memory
from mainspring.backend.cuda.explain import check, describe
from mainspring.backend.cuda.graphs import GRAPH_ROWS, Runner
from mainspring.backend.cuda.job import NONE, Job, exact
from mainspring.backend.cuda.network import SMALL_ROWS, Network
from mainspring.backend.cuda.state import CudaState
from mainspring.backend.generation import GenerationBackend, SlotLimits
from mainspring.backend.handles import Handles
from mainspring.backend.protocol import NO_STATE, FloatArray, IntArray, Limits, PackedPass, PassResult
from mainspring.errors import DeviceError, DeviceMemoryError
from mainspring.model.hybrid import Hybrid
from mainspring.model.loading import load_hybrid, load_mtp
from mainspring.model.mtp import MtpHead
from mainspring.ops.attention import tiles
from mainspring.ops.gated_delta.segments import SEGMENT_ROWS
from mainspring.ops.gated_delta.triton import WIDE_HEADS
from mainspring.ops.ragged import CHUNK_ROWS

_NUMERICS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class CudaBackend:
    def __init__(
        self, model: Hybrid, *, pass_rows: int | None = None, graph_rows: int = GRAPH_ROWS, mtp: MtpHead | None = None,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:  # fmt: skip
        """Takes over `model`'s weights, in whatever float type they have. `pass_rows` None: by free memory. `mtp`
        drafts for generation. `segment_rows`: see `Network`."""
        check(model.config)
        self._mtp, self._generates = mtp, False
        self._network = Network(model, segment_rows=segment_rows)
        self._runner = Runner(self._network, graph_rows=graph_rows)
        self._states: Handles[CudaState] = Handles()
        weights = self._network.embed
        free = torch.cuda.mem_get_info(weights.device)[0] if weights.is_cuda else 0
        if pass_rows is None:
            pass_rows = memory.pass_rows(model.config, weights.element_size(), free)
        c = model.config
        self.limits = Limits(c.max_position_embeddings, pass_rows, c.vocab_size, int(memory.KEPT_SHARE * free))
        self.numerics = _NUMERICS[weights.dtype]

    @classmethod
    def open(cls, path: Path) -> "CudaBackend":
        """bf16 on the current CUDA device. CheckpointError for the folder, DeviceError where there is no device."""
        device = describe().require()
        try:
            model = load_hybrid(path, dtype=torch.bfloat16, device=device)
            backend = cls(model, mtp=load_mtp(path, dtype=torch.bfloat16, device=device))
            backend.warm()
            return backend
        except torch.OutOfMemoryError as error:
            raise DeviceMemoryError(f"the weights do not fit the device: {_first_line(error)}") from None

    @torch.inference_mode()
    def warm(self) -> None:
        """Compile every kernel that a pass of this model can need, so that none is compiled in the middle of one.

        Half a minute the first time on a machine; the compiler keeps what it made. Variants follow from whether a
        branch has more than one chunk, whether a view is long enough for its keys or itself to be cut, and how many
        rows and views there are.
        """
        many, segment = -(-WIDE_HEADS // self._network.heads.values), self._network.segment_rows
        passes = [(1, 1, 1), (1, tiles.SPLIT_KEYS + 1, CHUNK_ROWS + 1), (many, SMALL_ROWS // many + 1, 1)]
        for views, length, rows in passes + [(views, segment + 1, 1) for views in (1, many) if segment]:
            zeros, one = np.zeros(max(length, rows), np.int64), np.ones(1, np.int64)
            job = Job([zeros[:length]] * views, [None] * views, zeros[:rows], one * rows, one - 1, one, one)
            self._runner.launch(job, exact(job, self._network.grid(job)))

    @property
    def device(self) -> str:
        return f"{describe().name} ({self.numerics}, triton)"

    @torch.inference_mode()
    def score_pass(self, work: PackedPass) -> PassResult:
        started = time.perf_counter()
        ends = work.view_lengths.cumsum().tolist()
        views = [work.view_tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        states = [self._states[handle] if handle != NO_STATE else None for handle in work.view_states.tolist()]
        try:
            logits = self._run(work, views, states)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise DeviceMemoryError(f"a pass of {work.rows:,} rows: {_first_line(error)}") from None
        handles = tuple(
            handle if handle != NO_STATE else (self._states.add(state) if keep and state is not None else NO_STATE)
            for handle, state, keep in zip(work.view_states.tolist(), states, work.keep.tolist(), strict=True)
        )
        return PassResult(logits, handles, time.perf_counter() - started)

    @torch.inference_mode()
    def prefill(self, tokens: IntArray, state: int = NO_STATE, *, capacity: int = 0) -> int:
        target = self._states[state] if state != NO_STATE else self._new_state(max(capacity, len(tokens)))
        self._advance([target], [np.asarray(tokens)])
        return self._states.add(target) if state == NO_STATE else state

    @torch.inference_mode()
    def copy(self, state: int, *, capacity: int = 0) -> int:
        return self._states.add(self._states[state].copy(capacity))

    def state_bytes(self, state: int) -> int:
        return self._states[state].nbytes

    def generation(self, limits: SlotLimits) -> GenerationBackend:
        """Slots of this model; once. DeviceError where there is no room for them."""
        from mainspring.backend.cuda_slots.slots import CudaSlots

        if self._generates:
            raise DeviceError("this backend's slots are open already")
        try:
            with torch.inference_mode():
                slots = CudaSlots(self._network, self._mtp, limits)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise DeviceMemoryError(f"{limits.slots} slots do not fit the device: {_first_line(error)}") from None
        self._generates = True
        return slots

    def release(self, state: int) -> None:
        self._states.remove(state)

    def _run(self, work: PackedPass, views: list[IntArray], states: list[CudaState | None]) -> FloatArray:
        """Moves `states` (filled in where a view is kept) over `views`; the branches' logits."""
        room = self.limits.pass_rows
        split = work.rows > room
        for n, (view, keep) in enumerate(zip(views, work.keep.tolist(), strict=True)):
            if states[n] is None and (keep or (split and len(view))):
                states[n] = self._new_state(len(view))
        if split:
            held = [(s, v) for s, v in zip(states, views, strict=True) if s is not None]
            self._advance([s for s, _ in held], [v for _, v in held])
            views = [NONE for _ in views]
            return np.concatenate([self._forward(job) for job in _jobs(work, views, states, room)])
        return self._forward(
            Job(
                views, states, work.branch_tokens, work.branch_lengths, work.branch_views, work.label_ids,
                work.label_counts,
            )
        )  # fmt: skip

    def _advance(self, states: Sequence[CudaState], views: Sequence[IntArray]) -> None:
        """Each state over its view, piece by piece, several short views at once."""
        room = self.limits.pass_rows
        group: list[tuple[CudaState, IntArray]] = []
        for state, view in zip(states, views, strict=True):
            for start in range(0, len(view), room):
                piece = view[start : start + room]
                # Two pieces of one state never share a forward: the first fills it up.
                if sum(len(tokens) for _, tokens in group) + len(piece) > room:
                    self._forward(_views_only(group))
                    group = []
                group.append((state, piece))
        if group:
            self._forward(_views_only(group))

    def _forward(self, job: Job) -> FloatArray:
        for state, tokens in zip(job.states, job.view_tokens, strict=True):
            if state is not None:
                state.reserve(state.length + len(tokens))
        logits = self._runner.run(job)
        for state, tokens in zip(job.states, job.view_tokens, strict=True):
            if state is not None and len(tokens):
                state.advanced(len(tokens))
        return logits

    def _new_state(self, capacity: int) -> CudaState:
        weights = self._network.embed
        return CudaState.empty(self._network.config, capacity, dtype=weights.dtype, device=weights.device)


def _views_only(group: Sequence[tuple[CudaState, IntArray]]) -> Job:
    return Job([tokens for _, tokens in group], [state for state, _ in group], NONE, NONE, NONE, NONE, NONE)


def _jobs(work: PackedPass, views: list[IntArray], states: list[CudaState | None], room: int) -> list[Job]:
    """With the views done, as many as the branches need."""
    jobs: list[Job] = []
    rows, labels = np.cumsum(work.branch_lengths), np.cumsum(work.label_counts)
    first = 0
    while first < len(rows) or not jobs:
        before = int(rows[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(rows, before + room, side="right"))) if len(rows) else 0
        asked = slice(int(labels[first - 1]) if first else 0, int(labels[end - 1]) if end else 0)
        jobs.append(
            Job(
                views, states, work.branch_tokens[before : int(rows[end - 1]) if end else 0],
                work.branch_lengths[first:end], work.branch_views[first:end],
                work.label_ids[asked], work.label_counts[first:end],
            )
        )  # fmt: skip
        if end == len(rows):
            break
        first = end
    return jobs


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200]
