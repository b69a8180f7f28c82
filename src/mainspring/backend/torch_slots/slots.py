"""`GenerationBackend` on the CPU."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mainspring.backend.generation import (
    GRID,
    NO_TOKEN,
    CheckpointSize,
    RoundResult,
    SlotLimits,
    SlotResult,
    SlotRound,
    TokenRule,
    TopTokens,
)
from mainspring.backend.handles import Handles
from mainspring.backend.onednn_weights import pack_block
from mainspring.backend.protocol import FloatArray, IntArray
from mainspring.backend.torch_slots.drafting import Drafted, DraftingHead
from mainspring.backend.torch_slots.layers import Place
from mainspring.backend.torch_slots.network import Network
from mainspring.backend.torch_slots.slot import Checkpoint, Slot
from mainspring.backend.torch_slots.spilling import Leaving, loaded
from mainspring.model.hybrid import Hybrid
from mainspring.model.mtp import MtpHead
from mainspring.ops.acceptance.reference import NotFiniteError, Seen, Verified, log_probabilities, verify
from mainspring.ops.attention.tiled import decode_mask


class TorchSlots:
    """Slots of `model`, whose blocks are packed for oneDNN where `packed` says so."""

    def __init__(self, model: Hybrid, mtp: MtpHead | None, limits: SlotLimits, *, packed: bool) -> None:
        self.limits = limits
        self.drafter = "mtp" if mtp is not None else ""
        self._network = Network(model, packed=packed, vocab=limits.vocab_size)
        if limits.deterministic:
            self._network.check_places(limits.slots * limits.block_rows)
        self._config = model.config
        self._ratio = self._config.num_attention_heads // self._config.num_key_value_heads
        if mtp is not None and packed:
            pack_block(mtp.blocks[0])
        layers = self._network.attention_layers
        self._mtp = None if mtp is None else DraftingHead(self._network, mtp, layers)
        self._layers = layers + (mtp is not None)
        self._slots: dict[int, Slot] = {}
        self._faulted: set[int] = set()
        self._checkpoints: Handles[Checkpoint] = Handles()

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
        self._slots[free] = Slot(
            self._config, self._layers, drafting=drafting and self._mtp is not None, capacity=capacity
        )
        return free

    @torch.inference_mode()
    def close_slot(self, slot: int) -> None:
        self._slot(slot).close(wipe=slot in self._faulted)
        self._faulted.discard(slot)
        del self._slots[slot]

    def begin(self, slot: int, rule: TokenRule, prompt: IntArray) -> None:
        target = self._slot(slot)
        repeats = rule.choice.repetition != 1.0
        target.rule = rule
        target.seen = Seen(frozenset(np.unique(prompt).tolist()) if repeats else frozenset(), Counter())

    def position(self, slot: int) -> int:
        return self._slot(slot).length

    def _slot(self, slot: int) -> Slot:
        try:
            return self._slots[slot]
        except KeyError:
            raise ValueError(f"slot {slot} is not open") from None

    # ---------------------------------------------------------------- prompts

    @torch.inference_mode()
    def prefill_slot(
        self, slot: int, tokens: IntArray, *, saves: tuple[int, ...] = (), final: bool = True
    ) -> tuple[int, ...]:
        target = self._slot(slot)
        start, end = target.length, target.length + len(tokens)
        if start % GRID or not len(tokens):
            raise ValueError(
                f"a piece begins at a multiple of {GRID} and has a token; this has {len(tokens)} at {start}"
            )
        if any(save % GRID or not start < save <= end for save in saves) or list(saves) != sorted(set(saves)):
            raise ValueError(f"checkpoints lie on multiples of {GRID} within the piece, rising")
        self._faulted.add(slot)  # until it is through: what a piece cut short leaves may be anything
        ids = torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))
        drafting = target.drafting and self._mtp is not None
        scanned = self._network.piece(ids, target, saves, "all" if drafting else "last" if final else "none")
        if drafting and self._mtp is not None:
            self._mtp.scanned(target, ids, scanned.hidden)
        target.logits = self._network.logits(scanned.hidden[-1:])[0] if final else None
        self._faulted.discard(slot)
        return tuple(
            self._keep(target, save, scanned.hidden, start, layers)
            for save, layers in zip(saves, scanned.snapshots, strict=True)
        )

    def _keep(self, slot: Slot, save: int, hidden: Tensor, start: int, layers: Sequence[tuple[Tensor, Tensor]]) -> int:
        pending = hidden[save - start - 1 : save - start].clone() if slot.drafting else None
        recurrent, conv = torch.empty_like(slot.states[:, 0]), torch.empty_like(slot.conv)
        for i, layer in enumerate(layers):
            recurrent[i], conv[i] = layer
        kept = slot.checkpoint(length=save, recurrent=recurrent, conv=conv, pending=pending, logits=None)
        return self._checkpoints.add(kept)

    # ---------------------------------------------------------------- checkpoints

    @torch.inference_mode()
    def save(self, slot: int) -> int:
        target = self._slot(slot)
        if target.emitted or target.logits is None:
            raise ValueError("a checkpoint is taken at the prompt's end, before the first round")
        pending = None if target.pending is None else target.pending.clone()
        kept = target.checkpoint(
            length=target.length, recurrent=target.states[:, target.side].clone(), conv=target.conv.clone(),
            pending=pending, logits=target.logits,
        )  # fmt: skip
        return self._checkpoints.add(kept)

    @torch.inference_mode()
    def restore(self, slot: int, checkpoint: int) -> None:
        target, kept = self._slot(slot), self._checkpoints[checkpoint]
        if target.length:
            raise ValueError("only a slot that was just opened goes on from a checkpoint")
        if target.drafting and kept.pending is None:
            raise ValueError("the checkpoint has nothing of the drafting head")
        target.restore(kept)

    def checkpoint_size(self, checkpoint: int) -> CheckpointSize:
        kept = self._checkpoints[checkpoint]
        return CheckpointSize(kept.own_bytes, kept.buffer.number, kept.buffer.rows.nbytes)

    def release(self, checkpoint: int) -> None:
        kept = self._checkpoints[checkpoint]
        self._checkpoints.remove(checkpoint)
        kept.buffer.claims.remove(kept.length)

    def dump(self, checkpoint: int) -> Leaving:
        """All of a checkpoint, for a disk."""
        return Leaving(self._checkpoints[checkpoint])

    def load(self, arrays: Mapping[str, NDArray[np.generic]], length: int) -> int:
        """What `dump` gave, of `length` tokens. ValueError where it is of another model, or of other tokens."""
        return self._checkpoints.add(loaded(arrays, length, self._config, self._layers, self.vocab_size))

    # ---------------------------------------------------------------- rounds

    @torch.inference_mode()
    def round(self, parts: tuple[SlotRound, ...]) -> RoundResult:
        began = time.perf_counter()
        slots = [self._slot(part.slot) for part in parts]
        for slot in slots:
            slot.round.clear()
        made = self._drafts(parts, slots)
        drafts = [each.tokens for each in made]
        rows, hidden, places = self._forward(parts, slots, drafts)
        logits = self._network.logits(hidden).numpy() if places else np.zeros((0, self.vocab_size), np.float32)
        results, kept = [], []
        at = dict(zip((part.slot for part in parts if part.anchor != NO_TOKEN), places, strict=True))
        for part, slot, drafted in zip(parts, slots, drafts, strict=True):
            mine = _rows_of(slot, at.get(part.slot), logits, len(drafted))
            result, verified = _chosen(part, slot, drafted, mine)
            results.append(result)
            kept.append(verified)
        for part, slot, verified, each in zip(parts, slots, kept, made, strict=True):  # nothing is refused any more
            if verified is None:
                self._faulted.add(part.slot)
            else:
                self._commit(slot, at.get(part.slot), hidden, verified, each.read)
            slot.round.clear()
        return RoundResult(tuple(results), time.perf_counter() - began, rows)

    def _drafts(self, parts: Sequence[SlotRound], slots: Sequence[Slot]) -> list[Drafted]:
        most = self.limits.block_rows - 1
        made = [Drafted(part.drafts[: min(most, part.most - 1)], slot.drafted)
                for part, slot in zip(parts, slots, strict=True)]  # fmt: skip
        if self._mtp is None:
            return made
        for slot in slots:
            self._mtp.catch_up(slot)
        made = [each._replace(read=slot.drafted) for each, slot in zip(made, slots, strict=True)]
        asked = [min(part.draft, most, part.most - 1) if part.anchor != NO_TOKEN else 0 for part in parts]
        wanting = [i for i, count in enumerate(asked) if count > 0 and slots[i].drafting]
        for i in wanting:
            slots[i].room(slots[i].length + asked[i])
        if wanting:
            new = self._mtp.draft([slots[i] for i in wanting], [asked[i] for i in wanting])
            for i, drafted in zip(wanting, new, strict=True):
                made[i] = drafted
        return made

    def _forward(
        self, parts: Sequence[SlotRound], slots: Sequence[Slot], drafts: Sequence[tuple[int, ...]]
    ) -> tuple[int, Tensor, list[Place]]:
        """(rows forwarded, hidden rows, where each slot that has an anchor finds its own)."""
        block, fixed = self.limits.block_rows, self.limits.deterministic
        tokens: list[int] = [0] * (self.limits.slots * block) if fixed else []
        positions: list[int] = list(tokens)
        places = []
        for part, slot, drafted in zip(parts, slots, drafts, strict=True):
            if part.anchor == NO_TOKEN:
                continue
            own = (part.anchor, *drafted)
            shape = block if fixed else len(own)
            first = part.slot * block if fixed else len(tokens)
            slot.room(slot.length + shape)
            tokens[first : first + len(own)] = own
            positions[first : first + len(own)] = range(slot.length, slot.length + len(own))
            mask = decode_mask(slot.length, shape, self._ratio, torch.float32)
            places.append(Place(slot, first, len(own), shape, mask, slot.length))
        if not places:
            return 0, torch.zeros(0, self._config.hidden_size), []
        hidden = self._network.rows(torch.tensor(tokens), torch.tensor(positions), places)
        return len(tokens), hidden, places

    def _commit(self, slot: Slot, place: Place | None, hidden: Tensor, verified: Verified, read: int) -> None:
        tokens = list(verified.tokens)
        if read > slot.drafted:
            slot.drafted, slot.pending, slot.following = read, None, []
        slot.emitted += len(tokens)
        slot.seen.reply.update(tokens)
        if place is not None:
            slot.commit(place.rows, len(tokens))
            if slot.drafting:
                new = hidden[place.first : place.first + len(tokens)]
                slot.pending = new.clone() if slot.pending is None else torch.cat([slot.pending, new])
        slot.logits = None
        if slot.drafting:
            slot.following.extend(tokens)


def _rows_of(slot: Slot, place: Place | None, logits: FloatArray, drafted: int) -> FloatArray:
    """[1 + drafted, vocab]."""
    if place is not None:
        return logits[place.first : place.first + 1 + drafted]
    if slot.logits is None:
        raise ValueError("the slot's prompt has not been scanned")
    return slot.logits.numpy()[None]


def _chosen(
    part: SlotRound, slot: Slot, drafts: tuple[int, ...], logits: FloatArray
) -> tuple[SlotResult, Verified | None]:
    rule = slot.rule
    try:
        verified = verify(
            logits, drafts, rule.choice, slot.seen, index=slot.emitted, most=part.most, stop_ids=rule.stop_ids,
            min_tokens=rule.min_tokens, masks=part.masks,
        )  # fmt: skip
    except NotFiniteError as error:
        return SlotResult(fault=str(error)), None
    log = () if rule.logprobs < 0 else tuple(
        TopTokens(*log_probabilities(row, token, rule.logprobs))
        for row, token in zip(logits, verified.tokens, strict=False)
    )  # fmt: skip
    return SlotResult(verified.tokens, len(drafts), verified.accepted, verified.stopped, log), verified
