"""The device's side of generation: streams opened, scanned, moved on and let go of, in the one worker thread.

What goes wrong with one stream ends that stream: its fault is told, the others go on.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mainspring.backend.generation import GRID
from mainspring.engine.prefix_disk import PrefixDisk
from mainspring.engine.stream_records import Constraint, Emitted, StreamSpec
from mainspring.engine.streams import Streams
from mainspring.errors import InputError
from mainspring.faultlog import log_fault
from mainspring.node.tasks import Chunk, PromptGoneError
from mainspring.wire import messages as m
from mainspring.wire.generation import HISTOGRAM

log = logging.getLogger(__name__)
SLACK = 128
"""So many tokens less than the router counted on are scanned with the chunk; where more are gone it is told."""
TOLD = 2048
"""Keys gained or dropped that one task tells; the rest comes with the next."""

Grammars = Callable[[str, str], Constraint]
"""(kind, text) -> what it allows. InputError for what can't be compiled."""


@dataclass(frozen=True)
class Wrote:
    """What became of a task's streams. `faults`: by index of the chunk. `opened`: streams that are new, and the tokens
    of their prompts that need no scan. `broke`: the whole round failed, and its
    streams are gone; `unknown`: streams asked for that are not here. Keys as the router knows them."""

    faults: dict[int, BaseException] = field(default_factory=dict)
    opened: tuple[tuple[str, int], ...] = ()
    emitted: Sequence[Emitted] = ()
    broke: BaseException | None = None
    unknown: tuple[str, ...] = ()
    gained: tuple[tuple[str, int], ...] = ()
    dropped: tuple[str, ...] = ()
    so_far: m.Written = field(default_factory=m.Written)


class Writer:
    """`grammars` None: streams with a grammar are refused."""

    def __init__(self, streams: Streams, grammars: Grammars | None = None) -> None:
        self._streams, self._grammars = streams, grammars
        self._positions: dict[str, int] = {}
        self._opened = self._failed = 0
        streams.changes(0)  # from now on they are noted

    @property
    def live(self) -> int:
        return len(self._positions)

    def run(self, chunks: Sequence[Chunk], round_ids: Sequence[str]) -> Wrote:
        """Never raises."""
        faults: dict[int, BaseException] = {}
        opened: list[tuple[str, int]] = []
        for index, chunk in enumerate(chunks):
            try:
                cached = self._chunk(chunk)
                opened += [] if cached is None else [(chunk.spec.id, cached)]
            except Exception as error:  # this stream's alone
                self.cancel([chunk.spec.id])
                faults[index] = error
        emitted: Sequence[Emitted] = ()
        broke: BaseException | None = None
        known = {*self._positions}
        ids = [each for each in round_ids if each in known]
        if ids:
            try:
                emitted = self._round(ids)
            except Exception as error:
                log_fault(log, error, "a round of %d streams failed", len(ids))
                self._failed += len(ids)
                self.cancel(ids)
                broke = error
        gained, dropped = self._streams.changes(TOLD)
        return Wrote(
            faults, tuple(opened), emitted, broke, unknown=tuple(each for each in round_ids if each not in known),
            gained=tuple((key.decode(), tokens) for key, tokens in gained),
            dropped=tuple(key.decode() for key in dropped), so_far=self.so_far(),
        )  # fmt: skip

    def cancel(self, ids: Sequence[str]) -> None:
        for each in ids:
            if self._positions.pop(each, None) is None:
                continue
            try:
                self._streams.cancel(each)
            except KeyError:  # it ended by itself
                continue
            except Exception as error:  # its slot is free or retired all the same: `Streams` sees to that
                log_fault(log, error, "a stream could not be let go of")

    def spill_to(self, disk: PrefixDisk) -> None:
        """InputError where the device does not give its checkpoints away."""
        self._streams.spill_to(disk)

    def close(self) -> None:
        """Streams end; checkpoints go to the disk where there is one."""
        self._positions.clear()
        self._streams.close()

    def so_far(self) -> m.Written:
        stats = self._streams.stats
        return m.Written(
            streams=self._opened, rounds=stats.rounds, slot_rounds=stats.stream_rounds, tokens=stats.emitted,
            drafted=stats.drafted, accepted=stats.accepted, prefilled=stats.prefilled, cached=stats.cached,
            round_s=stats.round_seconds, failed=self._failed, histogram=capped(stats.histogram),
        )  # fmt: skip

    def _chunk(self, chunk: Chunk) -> int | None:
        """Tokens that a checkpoint spared, where the stream is new."""
        name, tokens, cached = chunk.spec.id, len(chunk.spec.tokens), None
        if name not in self._positions:
            cached = self._positions[name] = self._streams.open(self._with_grammar(chunk))
            self._opened += 1
        position = self._positions[name]
        if position + SLACK < chunk.start:
            raise PromptGoneError(chunk.start, position)
        while position < chunk.to:
            most = -(-(chunk.to - position) // GRID) * GRID  # else a prompt's last few tokens are a piece of their own
            now = tokens - self._streams.prefill(name, most)
            if now <= position:  # the rest up to here is less than the engine cuts
                break
            position = self._positions[name] = now
        return cached

    def _with_grammar(self, chunk: Chunk) -> StreamSpec:
        kind, text = chunk.grammar
        if not kind:
            return chunk.spec
        if self._grammars is None:
            raise InputError("this node has no grammars: install mainspring[grammar]", param="sampling.grammar")
        return replace(chunk.spec, constraint=self._grammars(kind, text))

    def _round(self, ids: Sequence[str]) -> Sequence[Emitted]:
        emitted = self._streams.round(ids)
        for each in emitted:
            if each.ended is not None:
                self._positions.pop(each.id, None)
                self._failed += each.ended.finish == "failed"
        return emitted


def capped(histogram: Sequence[int]) -> tuple[int, ...]:
    """As the wire takes it, from rounds of one token on; what is beyond counts with the last."""
    beyond = sum(histogram[HISTOGRAM + 1 :])
    whole = tuple(histogram[1 : HISTOGRAM + 1])
    return (*whole[:-1], whole[-1] + beyond) if beyond else whole
