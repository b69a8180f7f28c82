"""Leases as the engine knows them, and what it says as it goes out. Pure functions."""

from collections.abc import Sequence

import numpy as np

from mainspring.engine.sampling import Sampling
from mainspring.engine.stream_records import Emitted, Ended, StreamSpec
from mainspring.errors import InputError
from mainspring.node.writer import capped
from mainspring.wire import messages as m

DRAFTERS = ("", "mtp", "ngram", "none")
SEEDS = 1 << 64


def spec_of(lease: m.OpenLease, name: str, ends: Sequence[int], drafter: str, seed: int) -> StreamSpec:
    """`ends`: the bundle's own ids that end a reply. `drafter` and `seed` stand in for what the lease leaves open.
    InputError for what makes no sense."""
    asked = lease.sampling
    if asked.drafter not in DRAFTERS:
        raise InputError(f"known are {', '.join(DRAFTERS[1:])}", param="sampling.drafter")
    stops = dict.fromkeys(asked.stop_ids)
    if not asked.ignore_eos:
        stops |= dict.fromkeys(ends)
    return StreamSpec(
        id=name, tokens=m.u32(lease.prompt).astype(np.int64), max_tokens=lease.max_tokens,
        sampling=Sampling(
            temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p, min_p=asked.min_p,
            seed=(seed if asked.seed is None else asked.seed) % SEEDS, frequency_penalty=asked.frequency_penalty,
            presence_penalty=asked.presence_penalty, repetition_penalty=asked.repetition_penalty,
            logit_bias=tuple(sorted(asked.logit_bias.items())),
        ),
        stop_ids=tuple(stops), min_tokens=asked.min_tokens, drafter=asked.drafter or drafter,
        logprobs=asked.top_logprobs, marks=tuple((tokens, key.encode()) for key, tokens in lease.marks),
        salt=lease.salt.encode(),
    )  # fmt: skip


def rounds_of(emitted: Emitted, cached: int) -> m.Rounds:
    """Of at least one token; `cached` ones of the prompt were not scanned."""
    top = emitted.top or ()
    return m.Rounds(
        tokens=np.asarray(emitted.tokens, "<u4").tobytes(), rounds=emitted.rounds, drafted=emitted.drafted,
        accepted=emitted.accepted, cached=cached, logprobs=np.asarray(emitted.logprobs or (), "<f4").tobytes(),
        top_ids=np.asarray([token for each in top for token, _ in each], "<u4").tobytes(),
        top_logprobs=np.asarray([logprob for each in top for _, logprob in each], "<f4").tobytes(),
    )  # fmt: skip


def ended_of(ended: Ended, sent: int) -> m.LeaseEnded:
    """`sent`: tokens that went out, all of them."""
    failed = ended.finish == "failed"
    return m.LeaseEnded(
        tokens=sent, finish=ended.finish, reason="engine" if failed else None, cached_tokens=ended.cached_tokens,
        rounds=ended.rounds, drafted=ended.drafted, accepted=ended.accepted, stop_id=ended.stop_id,
        message=ended.message[:500] if failed else "", histogram=capped(ended.histogram),
    )  # fmt: skip
