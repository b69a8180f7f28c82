"""`GenerationBackend` on an NVIDIA GPU: slots, prompts, checkpoints; rounds are in `rounding`."""

import numpy as np
import torch
from torch import Tensor

from mainspring.backend.cuda.network import Network
from mainspring.backend.cuda.state import CudaState
from mainspring.backend.cuda_slots.arrays import Arrays
from mainspring.backend.cuda_slots.buffers import Buffer, store_row
from mainspring.backend.cuda_slots.head import DraftingHead
from mainspring.backend.cuda_slots.rounding import Rounding
from mainspring.backend.cuda_slots.rounds import Rounds
from mainspring.backend.cuda_slots.runner import Runner
from mainspring.backend.cuda_slots.slot import Checkpoint, Slot, host_words
from mainspring.backend.cuda_slots.spilling import Arrays as HostArrays
from mainspring.backend.cuda_slots.spilling import Leaving, Way, loaded
from mainspring.backend.cuda_slots.trunk import Trunk
from mainspring.backend.generation import GRID, CheckpointSize, RoundResult, SlotLimits, SlotRound, TokenRule
from mainspring.backend.handles import Handles
from mainspring.backend.protocol import IntArray
from mainspring.errors import DeviceMemoryError
from mainspring.model.config import FULL
from mainspring.model.mtp import MtpHead

MEMORY = 3


class CudaSlots:
    """Slots of `network`, whose weights they share. `ahead` False: a round is launched when it is asked for."""

    def __init__(self, network: Network, mtp: MtpHead | None, limits: SlotLimits, *, ahead: bool = True) -> None:
        self.limits = limits
        self.drafter = "mtp" if mtp is not None else ""
        c = self._config = network.config
        self._trunk = Trunk(network, self.vocab_size)
        self._attention_layers = c.layer_types.count(FULL)
        self._arrays = Arrays.empty(c, limits.slots, limits.block_rows, self.vocab_size, network.embed)
        self._head = None if mtp is None else DraftingHead(self._trunk, mtp, self._attention_layers)
        device = network.embed.device
        runner = Runner(
            Rounds(self._trunk, self._head, self._arrays),
            vocab=self.vocab_size,
            nobody=self._arrays.nobody,
            device=device,
        )
        self._slots: dict[int, Slot] = {}
        self._rounding = Rounding(runner, self._arrays, limits, heads=mtp is not None, ahead=ahead)
        self._checkpoints: Handles[Checkpoint] = Handles()
        self._way: Way | None = None

    @property
    def context_tokens(self) -> int:
        return self._config.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        return min(self.limits.vocab_size or self._config.vocab_size, self._config.vocab_size)

    # ---------------------------------------------------------------- slots

    @torch.inference_mode()
    def open_slot(self, *, drafting: bool, capacity: int = 0) -> int:
        free = next((i for i in range(self.limits.slots) if i not in self._slots), None)
        if free is None:
            raise ValueError(f"all {self.limits.slots} slots are taken")
        c, weights = self._config, self._trunk.network.embed
        layers = self._attention_layers + (self._head is not None)
        buffer = Buffer.empty(layers, max(capacity, 1), (c.num_key_value_heads, c.head_dim), weights)
        buffer.written = True
        deltas = c.num_layers - self._attention_layers
        conv = weights.new_zeros(deltas, 2, MEMORY, c.conv_dim)
        state = CudaState(buffer.rows, self._arrays.memory.states[free, :deltas], conv)
        slot = Slot(free, drafting and self._head is not None, state, buffer)
        self._slots[free] = slot
        self._say(slot)
        return free

    @torch.inference_mode()
    def close_slot(self, slot: int) -> None:
        """What is under way for it runs out on the device before anything that comes after."""
        target = self._slot(slot)
        self._rounding.forget(target)
        target.buffer.written = False
        del self._slots[slot]
        self._arrays.words[slot].zero_()
        self._arrays.stores[slot].copy_(store_row(None))

    @torch.inference_mode()
    def begin(self, slot: int, rule: TokenRule, prompt: IntArray) -> None:
        target, a = self._slot(slot), self._arrays
        if target.begun or target.logits is None:
            raise ValueError("tokens are chosen from a prompt that has been scanned, and once")
        a.rules.put(slot, rule.choice, rule.stop_ids, rule.min_tokens, self.vocab_size)
        if not rule.choice.is_plain:
            ids = torch.from_numpy(np.unique(prompt).astype(np.int64)).to(a.words.device)
            a.rules.adjust(slot, rule.choice, ids, self.vocab_size)
        target.rule = rule
        state = target.state
        a.memory.window[slot, : len(state.conv), 0, :MEMORY].copy_(state.conv[:, state.parity])
        a.first[slot].copy_(target.logits)
        if target.pending is not None:
            a.hidden[slot, 0, :1].copy_(target.pending)
        a.words[slot].copy_(host_words(target.begin()))

    def position(self, slot: int) -> int:
        return self._slot(slot).length

    def _slot(self, slot: int) -> Slot:
        try:
            return self._slots[slot]
        except KeyError:
            raise ValueError(f"slot {slot} is not open") from None

    def _say(self, slot: Slot) -> None:
        """Tell the device where the slot's K/V rows are."""
        self._arrays.stores[slot.number].copy_(store_row(slot.buffer))

    # ---------------------------------------------------------------- prompts

    @torch.inference_mode()
    def prefill_slot(
        self, slot: int, tokens: IntArray, *, saves: tuple[int, ...] = (), final: bool = True
    ) -> tuple[int, ...]:
        target = self._slot(slot)
        start, end = target.length, target.length + len(tokens)
        if target.begun or start % GRID or not len(tokens):
            raise ValueError(
                f"a piece begins at a multiple of {GRID} and has a token; this has {len(tokens)} at {start}"
            )
        if any(save % GRID or not start < save <= end for save in saves) or list(saves) != sorted(set(saves)):
            raise ValueError(f"checkpoints lie on multiples of {GRID} within the piece, rising")
        if target.room(end, start):
            self._say(target)
        handles, hidden = [], None
        for stop in sorted({*saves, end}):
            piece = np.asarray(tokens[target.length - start : stop - start], np.int64)
            hidden = self._scan(target, piece)
            if stop in saves:
                pending = None if target.pending is None else target.pending.clone()
                handles.append(self._checkpoints.add(target.checkpoint(pending=pending, logits=None)))
        if hidden is not None and final:
            target.logits = self._trunk.logits(hidden[-1:].contiguous())[0]
        return tuple(handles)

    def _scan(self, target: Slot, piece: IntArray) -> Tensor:
        hidden = self._trunk.piece(piece, target.state)
        if target.drafting and self._head is not None:
            ids = torch.from_numpy(piece).to(hidden.device)
            target.read = self._head.scanned(ids, hidden, target.pending, target.buffer, target.read)
            target.pending = hidden[-1:].clone()
        return hidden

    # ---------------------------------------------------------------- checkpoints

    @torch.inference_mode()
    def save(self, slot: int) -> int:
        target = self._slot(slot)
        if target.begun or target.logits is None:
            raise ValueError("a checkpoint is taken at the prompt's end, before the first round")
        pending = None if target.pending is None else target.pending.clone()
        return self._checkpoints.add(target.checkpoint(pending=pending, logits=target.logits))

    @torch.inference_mode()
    def restore(self, slot: int, checkpoint: int) -> None:
        target, kept = self._slot(slot), self._checkpoints[checkpoint]
        if target.length:
            raise ValueError("only a slot that was just opened goes on from a checkpoint")
        if target.drafting and kept.pending is None:
            raise ValueError("the checkpoint has nothing of the drafting head")
        target.restore(kept, target.buffer.capacity)
        self._say(target)

    def checkpoint_size(self, checkpoint: int) -> CheckpointSize:
        kept = self._checkpoints[checkpoint]
        return CheckpointSize(kept.own_bytes, kept.buffer.number, kept.buffer.rows.nbytes)

    def release(self, checkpoint: int) -> None:
        kept = self._checkpoints[checkpoint]
        self._checkpoints.remove(checkpoint)
        kept.buffer.claims.remove(kept.length)

    def dump(self, checkpoint: int) -> Leaving:
        """All of a checkpoint, for a disk; the way out is made with the first."""
        if self._way is None:
            self._way = Way(self._trunk.network.embed.device)
        return Leaving(self._checkpoints[checkpoint], self._way)

    @torch.inference_mode()
    def load(self, arrays: HostArrays, length: int) -> int:
        """What `dump` gave, of `length` tokens. ValueError where it is of another model, or of other tokens,
        DeviceMemoryError where there is no room for it."""
        c, weights = self._config, self._trunk.network.embed
        layers, deltas = self._attention_layers + (self._head is not None), c.num_layers - self._attention_layers
        like = Checkpoint(
            Buffer(weights.new_empty(layers, 1, 2, c.num_key_value_heads, c.head_dim)), 1,
            self._arrays.memory.states[0, :deltas], weights.new_empty(deltas, MEMORY, c.conv_dim), 0,
            None if self._head is None else weights.new_empty(1, c.hidden_size), self._arrays.first[0],
        )  # fmt: skip
        try:
            return self._checkpoints.add(loaded(arrays, length, like))
        except torch.OutOfMemoryError:
            raise DeviceMemoryError(f"no room for a checkpoint of {length:,} tokens") from None

    # ---------------------------------------------------------------- rounds

    @torch.inference_mode()
    def round(self, parts: tuple[SlotRound, ...]) -> RoundResult:
        slots = [self._slot(part.slot) for part in parts]
        if any(not slot.begun for slot in slots):
            raise ValueError("the slot's prompt has not been scanned")
        if len(set(map(id, slots))) != len(slots):
            raise ValueError("a slot has one part of a round")
        return self._rounding.round(list(zip(slots, parts, strict=True)), self._say)
