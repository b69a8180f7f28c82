"""Streams of tokens over a device's slots: prompts in pieces, rounds over whoever is ready, checkpoints of prompts.

Whatever fails, fails one stream: bad input before anything changed, a prompt's scan with that prompt, a round that
raises is run again a stream at a time. Text does not depend on company, on pieces, on drafts (see `SlotLimits`) or on
what was kept. One thread at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from mainspring.backend.generation import GRID, GenerationBackend, RoundResult, SlotRound
from mainspring.engine.drafting import NGRAM, NONE, DraftLength
from mainspring.engine.prefix_disk import PrefixDisk
from mainspring.engine.prefixes import Kept, PrefixStore
from mainspring.engine.slotkeeper import SlotKeeper
from mainspring.engine.spill import Spill, Spilling
from mainspring.engine.stream import Stream, drafter_kind
from mainspring.engine.stream_checks import check_spec, check_vocabulary
from mainspring.engine.stream_records import Emitted, Ended, StreamFailedError, StreamSpec
from mainspring.engine.work import NO_TOKENS, CheckpointGoneError, Tokens
from mainspring.errors import InputError

DEFAULT_CACHE_BYTES = 256 * 2**20
DEFAULT_PIECE_TOKENS = 512


@dataclass
class StreamStats:
    """Since the start. Acceptance length is emitted / rounds counted a stream (`stream_rounds`)."""

    rounds: int = 0
    stream_rounds: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    prefilled: int = 0
    cached: int = 0
    failed: int = 0
    round_seconds: float = 0.0
    histogram: list[int] = field(default_factory=list)


class Streams:
    """`cache_bytes` bounds prefix checkpoints; 0 keeps none. `drafter` is what "" in a spec means: by default the
    device's own, else n-gram lookup."""

    def __init__(
        self, backend: GenerationBackend, *, cache_bytes: int = DEFAULT_CACHE_BYTES, drafter: str | None = None
    ) -> None:
        self.backend = backend
        self.prefixes = PrefixStore(cache_bytes, backend.release)
        self.stats = StreamStats(histogram=[0] * (backend.limits.block_rows + 1))
        self.drafters = tuple(name for name in (NONE, NGRAM, backend.drafter) if name)
        self._default = drafter or backend.drafter or NGRAM
        if self._default not in self.drafters:
            raise InputError(
                f"no drafter {self._default!r} here; there are {', '.join(self.drafters)}", param="drafter"
            )
        self._streams: dict[str, Stream] = {}
        self._length = DraftLength(backend.limits.block_rows - 1)
        self._slots = SlotKeeper(backend)

    # ---------------------------------------------------------------- what there is

    @property
    def free_slots(self) -> int:
        return self._slots.free

    @property
    def retired_slots(self) -> int:
        """Slots that the device did not let go of."""
        return len(self._slots.retired)

    @property
    def live(self) -> tuple[str, ...]:
        """Ids of all streams, in the order they came."""
        return tuple(self._streams)

    @property
    def ready(self) -> tuple[str, ...]:
        """Those whose prompt is in."""
        return tuple(name for name, stream in self._streams.items() if stream.ready)

    def changes(self, limit: int = 1 << 30) -> tuple[list[tuple[bytes, int]], list[bytes]]:
        """(gained with tokens, dropped): outside keys of checkpoints since the last call. The first call watches."""
        self.prefixes.watch()
        return self.prefixes.changes(limit)

    # ---------------------------------------------------------------- a stream's life

    def open(self, spec: StreamSpec) -> int:
        """Take a slot; how many prompt tokens a checkpoint spares. Raises InputError, TooLargeError, SlotsFullError,
        CheckpointGoneError (for `resume`), DeviceError where no slot is let go of; nothing has changed then."""
        drafter = spec.drafter or self._default
        resumed = self._resumed(spec)
        before = NO_TOKENS if resumed is None else resumed.tokens.astype(np.int64)
        check_spec(spec, self.backend, drafter, self.drafters, len(before))
        if spec.id in self._streams:
            raise InputError("a stream of this id is live", param="id")
        capacity = len(before) + (spec.prompt_tokens or len(spec.tokens)) + min(spec.max_tokens, 256)
        slot = self._slots.take(drafting=bool(drafter_kind(drafter)), capacity=capacity)
        stream = Stream(spec, slot, drafter, self.backend.limits.block_rows, before)
        try:
            stream.feed(np.concatenate([before, np.asarray(spec.tokens, np.int64)]))
            self._restore(stream)
            stream.want(self.prefixes.parting(stream.chain))
            self._name(stream)
        except BaseException:
            self._slots.let_go(slot)
            raise
        self._streams[spec.id] = stream
        if stream.ready:
            self.backend.begin(slot, stream.rule, stream.prompt)
        self.stats.cached += stream.cached
        return stream.cached

    def feed(self, name: str, tokens: Tokens) -> None:
        """More of the prompt."""
        stream = self._streams[name]
        check_vocabulary(tokens, self.backend.vocab_size, "tokens")
        if len(stream.prompt) + len(tokens) > stream.prompt_tokens:
            raise InputError(f"more than the {stream.prompt_tokens} prompt tokens announced", param="tokens")
        stream.feed(tokens)
        stream.want(self.prefixes.parting(stream.chain))

    def prefill(self, name: str, most_tokens: int = DEFAULT_PIECE_TOKENS) -> int:
        """Scan the next piece of what was fed, at most `most_tokens` (64 at least); prompt tokens still to come. 0:
        rounds may begin. StreamFailedError where the device fails: the stream is over then."""
        stream = self._streams[name]
        tokens, final = stream.piece(most_tokens)
        if stream.ready or not len(tokens):
            return stream.prompt_tokens - stream.position
        try:
            self._scan(stream, tokens, final)
        except Exception as error:
            self._close(stream)
            self.stats.failed += 1
            raise StreamFailedError(f"the prompt could not be scanned ({type(error).__name__})") from error
        return stream.prompt_tokens - stream.position

    def round(self, names: Iterable[str] | None = None) -> list[Emitted]:
        """One round over the streams named that are ready, by default all that are."""
        streams = [self._streams[name] for name in (self.ready if names is None else names)]
        streams = [stream for stream in streams if stream.ready]
        length = self._draft_length(streams)
        parts, mine, events = [], [], []
        for stream in streams:
            try:  # a grammar may raise
                parts.append(stream.part(length, self.backend.limits.block_rows))
                mine.append(stream)
            except Exception as error:
                events.append(self._failed(stream, f"the constraint failed ({type(error).__name__})"))
        if mine:
            events.extend(self._run(mine, parts))
        return events

    def step(self, most_tokens: int = DEFAULT_PIECE_TOKENS) -> list[Emitted]:
        """A piece of the first prompt that is not in, then a round: for callers without an agenda of their own."""
        events: list[Emitted] = []
        waiting = next((s for s in self._streams.values() if not s.ready and s.piece(most_tokens)[0].size), None)
        if waiting is not None:
            try:
                self.prefill(waiting.spec.id, most_tokens)
            except StreamFailedError as error:
                events.append(Emitted(waiting.spec.id, (), 0, ended=waiting.end("failed", message=error.message)))
        return events + self.round()

    def cancel(self, name: str) -> Ended:
        """End a stream now, in its prompt too; its slot is free. KeyError where it is not live."""
        stream = self._streams[name]
        self._close(stream)
        return stream.end("cancelled")

    def close(self) -> None:
        """End all streams and free all checkpoints; those that there is a disk for go there first."""
        for stream in list(self._streams.values()):
            self._close(stream)
        self.prefixes.spill_all()
        self.prefixes.clear()
        if self.prefixes.spill is not None:
            self.prefixes.spill.disk.close()
            self.prefixes.spill = None

    def spill_to(self, disk: PrefixDisk) -> None:
        """From now on checkpoints that are evicted go there, and are found there. InputError where the device does not
        give its checkpoints away."""
        if not (hasattr(self.backend, "dump") and hasattr(self.backend, "load")):
            raise InputError("checkpoints of this device can't be kept on disk", param="prefix_disk")
        self.prefixes.spill = Spill(disk, cast(Spilling, self.backend))

    # ---------------------------------------------------------------- prompts

    def _resumed(self, spec: StreamSpec) -> Kept | None:
        if spec.resume is None:
            return None
        kept = self.prefixes.find_outside(spec.resume)
        if kept is None:
            raise CheckpointGoneError((spec.resume,))
        return kept

    def _restore(self, stream: Stream) -> None:
        """Put the slot where the longest kept prefix ends."""
        whole = len(stream.prompt) == stream.prompt_tokens
        kept = self.prefixes.find(stream.chain.end(), stream.prompt) if whole else None
        stream.ready = kept is not None
        if kept is None:
            kept = self.prefixes.longest(stream.chain, stream.prompt_tokens, stream.prompt)
        if kept is not None:
            self.backend.restore(stream.slot, kept.checkpoint)
            stream.position = stream.cached = len(kept.tokens)

    def _scan(self, stream: Stream, tokens: Tokens, final: bool) -> None:
        end = stream.position + len(tokens)
        saves = tuple(at for at in stream.saves(end) if self._keeps and stream.chain.at(at) not in self.prefixes)
        handles = self.backend.prefill_slot(stream.slot, tokens, saves=saves, final=final)
        stream.position = end
        self.stats.prefilled += len(tokens)
        for at, handle in zip(saves, handles, strict=True):
            self._keep(stream, stream.chain.at(at), handle, at, stream.wanted[at])
        if final:
            if self._keeps and stream.chain.end() not in self.prefixes:
                self._keep(stream, stream.chain.end(), self.backend.save(stream.slot), end, None)
            self.backend.begin(stream.slot, stream.rule, stream.prompt)
            stream.ready = True

    def _name(self, stream: Stream) -> None:
        """Marks that an earlier prompt left a checkpoint at, for another reason."""
        for at, outside in stream.wanted.items():
            if outside is not None and at <= len(stream.chain.keys) * GRID:
                self.prefixes.name(stream.chain.at(at), outside)

    @property
    def _keeps(self) -> bool:
        return self.prefixes.cap_bytes > 0

    def _keep(self, stream: Stream, key: bytes, handle: int, at: int, outside: bytes | None) -> None:
        self.prefixes.offer(key, handle, stream.prompt[:at], self.backend.checkpoint_size(handle), outside)

    # ---------------------------------------------------------------- rounds

    def _draft_length(self, streams: Sequence[Stream]) -> int:
        limits = self.backend.limits
        fixed = limits.slots * limits.block_rows if limits.deterministic else None
        return self._length.choose([stream.drafter for stream in streams], fixed_rows=fixed)

    def _run(self, streams: Sequence[Stream], parts: Sequence[SlotRound]) -> list[Emitted]:
        try:
            result = self.backend.round(tuple(parts))
        except Exception as error:
            if len(streams) == 1:
                return [self._failed(streams[0], f"the round failed ({type(error).__name__})")]
            return [event for one in zip(streams, parts, strict=True) for event in self._run([one[0]], [one[1]])]
        self._count(streams, result)
        events = []
        for stream, mine in zip(streams, result.slots, strict=True):
            if mine.fault is not None:
                events.append(self._failed(stream, mine.fault))
                continue
            try:
                event = stream.take(mine)
            except Exception as error:
                events.append(self._failed(stream, f"the constraint failed ({type(error).__name__})"))
                continue
            if event.ended is not None:
                self._close(stream)
            events.append(event)
        return events

    def _count(self, streams: Sequence[Stream], result: RoundResult) -> None:
        stats = self.stats
        stats.rounds += 1
        stats.round_seconds += result.seconds
        steps = 0
        for stream, mine in zip(streams, result.slots, strict=True):
            stats.stream_rounds += 1
            stats.emitted += len(mine.tokens)
            stats.drafted += mine.drafted
            stats.accepted += mine.accepted
            stats.histogram[len(mine.tokens)] += 1
            self._length.accepted(stream.drafter, mine.drafted, mine.accepted)
            if drafter_kind(stream.drafter):
                steps = max(steps, mine.drafted)
        self._length.measured(result.seconds, result.rows, steps)

    def _failed(self, stream: Stream, message: str) -> Emitted:
        self._close(stream)
        self.stats.failed += 1
        return Emitted(stream.spec.id, (), 0, ended=stream.end("failed", message=message))

    def _close(self, stream: Stream) -> None:
        del self._streams[stream.spec.id]
        self._slots.let_go(stream.slot)
