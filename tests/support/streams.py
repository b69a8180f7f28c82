"""Streams driven to their ends, and what they said."""

from collections import defaultdict
from dataclasses import dataclass, field

from mainspring.backend.generation import GenerationBackend
from mainspring.engine.stream_records import Emitted, Ended, StreamSpec
from mainspring.engine.streams import Streams
from support.slots import tiny_slots


@dataclass
class Told:
    """By stream: tokens, how it ended, and each round's (tokens, drafted, accepted)."""

    tokens: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[str, Ended] = field(default_factory=dict)
    log: dict[str, list[tuple[tuple[int, ...], int, int]]] = field(default_factory=lambda: defaultdict(list))
    events: list[Emitted] = field(default_factory=list)

    def hear(self, events: list[Emitted]) -> None:
        for event in events:
            assert event.id not in self.ended, "a stream that ended went on"
            self.events.append(event)
            self.tokens[event.id].extend(event.tokens)
            if event.tokens:
                self.log[event.id].append((event.tokens, event.drafted, event.accepted))
            if event.ended is not None:
                self.ended[event.id] = event.ended


def tiny_streams(backend: GenerationBackend | None = None, **more: object) -> Streams:
    return Streams(backend or tiny_slots(), **more)  # type: ignore[arg-type]


def run(streams: Streams, *specs: StreamSpec, piece: int = 512) -> Told:
    """All of them side by side, to their ends."""
    told = Told()
    for spec in specs:
        streams.open(spec)
    while streams.live:
        told.hear(streams.step(piece))
    return told


def written(streams: Streams, spec: StreamSpec) -> list[int]:
    return run(streams, spec).tokens[spec.id]
