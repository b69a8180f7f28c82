"""Wire records to the engine's arrays and the agenda's nouns, and results back. Pure functions.

Token ids beyond the vocabulary, label ids out of range and views beyond the context are `bad_work` here, before the
engine sees them; arrays come out of the wire's bytes once.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from mainspring.backend.protocol import Limits
from mainspring.core.nouns import Part, Pass
from mainspring.engine import Branch, CheckpointGoneError, Segment
from mainspring.engine.checks import check_segment
from mainspring.errors import DeviceMemoryError, InputError, MainspringError
from mainspring.node.views import Place
from mainspring.text.grammar import GrammarError
from mainspring.wire import messages as m

NO_ROOM = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")
"""How libraries say it that raise no MemoryError: CUDA's and the CPU's allocators of torch among them."""


def among(parts: Sequence[m.Part], taken: Sequence[int]) -> list[m.Part]:
    """Only these, each pointing at where its parent is now; parents of what is taken are taken."""
    place = {index: at for at, index in enumerate(taken)}
    return [
        parts[index] if parts[index].parent < 0 else replace(parts[index], parent=place[parts[index].parent])
        for index in taken
    ]


def segments_of(parts: Sequence[m.Part], places: Sequence[Place]) -> list[Segment]:
    """What the engine is to run, part by part."""
    return [
        Segment(
            _tokens(part.view_tokens), _branches(part), part.view_from, place.resume, place.take, part.parent,
            place.keep, place.must_keep,
        )
        for part, place in zip(parts, places, strict=True)
    ]  # fmt: skip


def check_segments(limits: Limits, segments: Sequence[Segment]) -> None:
    """InputError for what makes no sense for this model."""
    for index in range(len(segments)):
        check_segment(limits, segments, index, f"parts[{index}]")


def pass_of(ticket: int, node: str, work: m.Work, within_s: float) -> Pass:
    """For the agenda; `within_s` is what is left of the window."""
    parts = tuple(
        Part(part.request, part.shard, part.view_from, part.view_to, 0, len(part.branch_lengths) // 4,
             len(part.branch_tokens) // 4, part.view_key, part.prefix, part.lease)
        for part in work.parts
    )  # fmt: skip
    return Pass(ticket, node, work.fence.epoch, parts, work.predicted_s, within_s, work.priority)


def nbytes(work: m.Work) -> int:
    """Of a pass while it waits: its arrays are twice as wide here as on the wire."""
    return 2 * sum(len(part.view_tokens) + len(part.branch_tokens) + len(part.label_ids) for part in work.parts)


def joined(logits: Sequence[Sequence[np.ndarray]], skip: Sequence[int] = ()) -> bytes:
    """f32, part after part, branch after branch, but for the parts in `skip`."""
    left_out = set(skip)
    rows = [row for index, part in enumerate(logits) if index not in left_out for row in part]
    return np.concatenate(rows).astype("<f4").tobytes() if rows else b""


def not_finite(logits: Sequence[Sequence[np.ndarray]]) -> tuple[int, ...]:
    """Indices of parts with a NaN or an infinity among their logits."""
    return tuple(i for i, part in enumerate(logits) if not all(bool(np.isfinite(row).all()) for row in part))


def reason_of(error: BaseException) -> m.FailReason:
    """What the router is told of something that was raised."""
    if isinstance(error, InputError):
        return "bad_work"
    if isinstance(error, CheckpointGoneError):
        return "view_missing"
    text = str(error).lower()
    if isinstance(error, MemoryError | DeviceMemoryError) or any(words in text for words in NO_ROOM):
        return "out_of_memory"
    return "engine"


def message_of(error: BaseException) -> str:
    """For logs: our own errors never quote anybody's text, but for those of grammars; of others only the kind is
    told."""
    if isinstance(error, GrammarError):
        return f"a grammar that can't be followed ({error.code})"
    return str(error)[:500] if isinstance(error, MainspringError) else type(error).__name__


def _tokens(data: bytes) -> np.ndarray:
    return m.u32(data).astype(np.int64)


def _branches(part: m.Part) -> tuple[Branch, ...]:
    """B branches of ragged tokens and labels."""
    tokens, labels = _tokens(part.branch_tokens), _tokens(part.label_ids)
    ends, label_ends = np.cumsum(m.u32(part.branch_lengths)), np.cumsum(m.u32(part.label_counts))
    return tuple(map(Branch, np.split(tokens, ends[:-1]), np.split(labels, label_ends[:-1]))) if len(ends) else ()
