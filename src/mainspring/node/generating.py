"""Whether a node generates, and how fast: slots of its device, what a round costs before any client asks. Blocking: run
in the device thread."""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mainspring.backend import Backend
from mainspring.backend.generation import SlotLimits
from mainspring.core.cost import RoundCost
from mainspring.engine.stream_records import StreamFailedError, StreamSpec
from mainspring.engine.streams import Streams, StreamStats
from mainspring.errors import DeviceError, InputError
from mainspring.node.config import NodeConfig
from mainspring.node.leases import Writing
from mainspring.node.roundfit import RoundFit
from mainspring.node.runner import Clock
from mainspring.node.writer import Grammars, Writer
from mainspring.text.bundle import Bundle

log = logging.getLogger(__name__)
DEFAULT_SLOTS = 4
PROMPTS = (64, 512)
"""Tokens of what is measured with, as far as the context goes."""
ROUNDS = 5
BUDGET_S = 1.0
ROOM = 16


@dataclass
class Generating:
    """What a node needs to serve streams."""

    writer: Writer
    writing: Writing
    fit: RoundFit

    @classmethod
    def of(
        cls, backend: Backend, config: NodeConfig, bundle: Bundle, clock: Clock, grammars: Grammars | None = None, *,
        only_scores: bool = False,
    ) -> "Generating | None":  # fmt: skip
        """None where it does not: no slots wanted, a bundle that does not say what ends a reply, a device that can't or
        breaks down when it is measured, a checkpoint that `only_scores`. InputError where slots were asked for by
        number and there can be none."""
        wanted = config.slots
        if wanted == 0:
            return None
        try:
            if wanted is None and only_scores:
                raise DeviceError("the model is a scorer; --slots asks for it all the same")
            if not bundle.eos_ids:
                raise DeviceError("nothing in the model's folder says what ends a reply (eos_token_id)")
            known = min(bundle.tokenizer.vocab_size, backend.limits.vocab_size)
            limits = SlotLimits(wanted or DEFAULT_SLOTS, config.block_rows, config.deterministic, known)
            kept = backend.limits.kept_bytes if config.prefix_mib is None else config.prefix_mib << 20
            streams = Streams(backend.generation(limits), cache_bytes=kept, drafter=config.drafter or None)
            context = min(backend.limits.context_tokens, config.stream_tokens or backend.limits.context_tokens)
            fit = measure_rounds(streams, limits.slots, context, known, clock)
        except DeviceError as error:
            if wanted is not None:
                raise InputError(f"no stream can be served here: {error}", param="slots") from None
            log.info("this node does not generate: %s", error)
            return None
        writing = Writing(limits.slots, context, known, bundle.eos_ids, lambda: secrets.randbits(64))
        return cls(Writer(streams, grammars), writing, fit)


def measure_rounds(streams: Streams, slots: int, context: int, vocab_size: int, clock: Clock) -> RoundFit:
    """One stream alone and all slots together, on short and longer prompts, as far as the budget goes: the first
    always, another only where its prompts, at the pace of those before, end in time. It leaves nothing behind.
    DeviceError where the device fails at it: a card may lack what its kernels were measured with."""
    began_s, scanned = clock(), 0
    fit: RoundFit | None = None
    rng = np.random.default_rng(21)
    for prompt, count in dict.fromkeys((prompt, count) for prompt in PROMPTS for count in (1, slots)):
        tokens = count * min(prompt, context - ROOM)
        took_s = clock() - began_s
        if tokens < count or (scanned and took_s + tokens * took_s / scanned > BUDGET_S):
            continue
        fit = _measure(streams, rng.integers(0, vocab_size, (count, tokens // count)), fit, clock)
        scanned += tokens
    streams.prefixes.clear()
    streams.stats = StreamStats(histogram=[0] * len(streams.stats.histogram))
    if fit is None:
        raise DeviceError("no round could be measured: the context is too short")
    return fit.settled(context)


def _measure(streams: Streams, prompts: np.ndarray, fit: RoundFit | None, clock: Clock) -> RoundFit:
    names = [f"measured{index}" for index in range(len(prompts))]
    try:
        for name, tokens in zip(names, prompts, strict=True):
            streams.open(StreamSpec(id=name, tokens=tokens, max_tokens=ROOM, drafter="none"))
            while streams.prefill(name, len(tokens)):
                pass
        _round(streams, names)  # the first tokens: nothing is forwarded
        for _ in range(ROUNDS):
            began_s = clock()
            tokens = _round(streams, names)
            took_s = max(clock() - began_s, 1e-9)
            if fit is None:  # also a warm-up
                fit = RoundFit(RoundCost(took_s / 2.0, took_s / 2.0))
            else:
                fit.note(len(names), prompts.size, took_s, tokens)
    except StreamFailedError as error:
        raise DeviceError(error.message) from error
    finally:
        for name in names:
            if name in streams.live:
                streams.cancel(name)
    assert fit is not None  # noqa: S101 - at least one round ran
    return fit


def _round(streams: Streams, names: Sequence[str]) -> int:
    """Tokens that it gave. StreamFailedError where one of the streams failed."""
    emitted = streams.round(names)
    for each in emitted:
        if each.ended is not None and each.ended.finish == "failed":
            raise StreamFailedError(each.ended.message)
    return sum(len(each.tokens) for each in emitted)
