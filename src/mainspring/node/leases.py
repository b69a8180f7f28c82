"""Leases of one link, from `OpenLease` to the one `LeaseEnded`, without the device.

A lease is *scanned* by the chunks of passes, *live* once its prompt is in, and *over* when its stream is gone while the
router still has to let go of it: a pass that failed says so, its lease then ends with the router's `Cancel`. Whoever
cancels is answered at once; the device hears of it before it does anything else, so a slot is free within a round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mainspring.core.agenda import Agenda
from mainspring.core.nouns import Lease
from mainspring.engine.stream_records import Emitted, StreamSpec
from mainspring.errors import InputError, MainspringError, TooLargeError
from mainspring.node.jobs import RoundJob, Say
from mainspring.node.phrasing import ended_of, rounds_of, spec_of
from mainspring.node.tasks import Chunk
from mainspring.wire import messages as m

NO_GENERATION = "this node does not generate"
SPARE = 16
"""Leases beyond twice the slots that may be here: the router opens one while it lets go of another."""


@dataclass(frozen=True)
class Writing:
    """What a node offers streams: how many, how long, and what a reply's end is. `draw` makes seeds."""

    slots: int
    stream_tokens: int
    vocab_size: int
    ends: tuple[int, ...]
    draw: Callable[[], int]
    drafter: str = ""


@dataclass(eq=False)
class Held:
    """`sent` tokens went out. `over`: nothing of it is on the device any more, or will be."""

    link: int
    stream: int
    lease: m.OpenLease
    spec: StreamSpec
    sent: int = 0
    cached: int = 0
    live: bool = False
    over: bool = False

    @property
    def context(self) -> int:
        return self.lease.prompt_tokens + self.sent


class Leases:
    """`writing` None: a node that does not generate."""

    def __init__(self, node: str, agenda: Agenda, writing: Writing | None) -> None:
        self._node, self._agenda, self._writing = node, agenda, writing
        self._held: dict[str, Held] = {}
        self._by_request: dict[tuple[str, int], str] = {}
        self._cancels: dict[str, None] = {}

    def __len__(self) -> int:
        return sum(not held.over for held in self._held.values())

    @property
    def cancels(self) -> bool:
        """The device has streams that nobody waits for."""
        return bool(self._cancels)

    # ------------------------------------------------------ what the router says

    def open(self, link: int, stream: int, lease: m.OpenLease, *, draining: bool = False) -> list[Say]:
        """Nothing to say where it is taken."""
        try:
            name = f"{link}.{lease.request}.{lease.attempt}"
            spec = self._checked(lease, name)
        except MainspringError as error:
            return [Say(link, stream, refused("bad_work", str(error)))]
        if draining:
            return [Say(link, stream, refused("draining", "this node is leaving"))]
        assert self._writing is not None  # noqa: S101 - checked
        if len(self._held) >= 2 * self._writing.slots + SPARE or name in self._held:
            return [Say(link, stream, refused("out_of_memory", f"{len(self._held)} leases are here"))]
        self._held[name] = Held(link, stream, lease, spec)
        self._by_request[lease.request, lease.attempt] = name
        self._agenda.open(Lease(name, self._node, lease.prompt_tokens, lease.max_tokens, lease.token_s, lease.attempt))
        return []

    def cancel(self, stream: int) -> list[Say]:
        """Whatever the lease is at; nothing where it has ended, or `stream` is none."""
        for name, held in self._held.items():
            if held.stream == stream:
                says = [Say(held.link, stream, m.LeaseEnded(tokens=held.sent, finish="cancelled"))]
                self._forget(name)
                return says
        return []

    def end_all(self, reason: m.FailReason, message: str) -> list[Say]:
        """Streams that live are told so."""
        says = []
        for name, held in [*self._held.items()]:
            ended = m.LeaseEnded(tokens=held.sent, finish="failed", reason=reason, message=message)
            says.append(Say(held.link, held.stream, ended))
            self._forget(name)
        return says

    def lost(self) -> None:
        """The link is gone, and with it whoever waits."""
        for name in [*self._held]:
            self._forget(name)

    # ------------------------------------------------------ what the device is to do

    def take_cancels(self) -> tuple[str, ...]:
        names, self._cancels = tuple(self._cancels), {}
        return names

    def chunk(self, part: m.Part) -> Chunk | None:
        """None where the lease is not here any more, or what is asked for makes no sense for it."""
        name = self._by_request.get((part.request, part.attempt))
        held = self._held.get(name) if name is not None else None
        if held is None or held.over or held.live:
            return None
        whole = part.view_to == held.lease.prompt_tokens
        if part.view_to > held.lease.prompt_tokens or part.lease != whole:
            return None
        sampling = held.lease.sampling
        return Chunk(held.spec, part.view_from, part.view_to, (sampling.grammar_kind, sampling.grammar))

    def round(self, names: Sequence[str]) -> RoundJob:
        forwarded = [name for name in names if name in self._held and self._held[name].sent]
        return RoundJob(tuple(names), sum(self._held[name].context for name in forwarded), frozenset(forwarded))

    # ------------------------------------------------------ what came of it

    def opened(self, opened: Sequence[tuple[str, int]]) -> None:
        """These are on the device now, with so many tokens of their prompts from checkpoints."""
        for name, cached in opened:
            if name in self._held:
                self._held[name].cached = cached

    def scanned(self, chunk: Chunk, now_s: float) -> None:
        """The chunk went well; where the prompt ends, rounds begin."""
        held = self._held.get(chunk.spec.id)
        if held is not None and chunk.ends:
            held.live = True
            self._agenda.begin(chunk.spec.id, now_s)

    def spoilt(self, chunk: Chunk, *, on_device: bool = False) -> None:
        """It did not, and the pass's answer says so. `on_device`: the stream is still there."""
        held = self._held.get(chunk.spec.id)
        if held is not None:
            held.over = True
            if on_device:
                self._cancels[chunk.spec.id] = None
            self._agenda.close(chunk.spec.id)

    def emitted(self, emitted: Sequence[Emitted]) -> list[Say]:
        """What streams gave in a round; of those that were cancelled meanwhile, nothing."""
        says: list[Say] = []
        for each in emitted:
            held = self._held.get(each.id)
            if held is None:
                continue
            if len(each.tokens):
                held.sent += len(each.tokens)
                says.append(Say(held.link, held.stream, rounds_of(each, held.cached)))
            if each.ended is not None:
                says.append(Say(held.link, held.stream, ended_of(each.ended, held.sent)))
                self._forget(each.id, on_device=False)
        return says

    def broke(self, names: Sequence[str], reason: m.FailReason, message: str, *, on_device: bool = False) -> list[Say]:
        """The round that these were in failed as a whole. `on_device`: they are still there."""
        says: list[Say] = []
        for name in names:
            held = self._held.get(name)
            if held is not None:
                ended = m.LeaseEnded(tokens=held.sent, finish="failed", reason=reason, message=message)
                says.append(Say(held.link, held.stream, ended))
                self._forget(name, on_device=on_device)
        return says

    # ------------------------------------------------------ within

    def _checked(self, lease: m.OpenLease, name: str) -> StreamSpec:
        writing = self._writing
        if writing is None or not writing.slots:
            raise InputError(NO_GENERATION)
        context = lease.prompt_tokens + lease.max_tokens
        if not lease.prompt_tokens:
            raise InputError("at least one token", param="prompt")
        if context > writing.stream_tokens:
            why = f"prompt and reply: {context:,} tokens, and this node takes {writing.stream_tokens:,} a stream"
            raise TooLargeError(why, limit=writing.stream_tokens, actual=context, param="max_tokens")
        spec = spec_of(lease, name, writing.ends, writing.drafter, writing.draw())
        known = writing.vocab_size
        for what, ids in (("prompt", spec.tokens), ("sampling.stop_ids", spec.stop_ids),
                          ("sampling.logit_bias", [token for token, _ in spec.sampling.logit_bias])):  # fmt: skip
            if len(ids) and int(np.max(np.asarray(ids))) >= known:
                raise InputError(f"ids go up to {known - 1}", param=what)
        return spec

    def _forget(self, name: str, *, on_device: bool = True) -> None:
        held = self._held.pop(name)
        self._by_request.pop((held.lease.request, held.lease.attempt), None)
        self._agenda.close(name)
        if on_device and not held.over:
            self._cancels[name] = None


def refused(reason: m.FailReason, message: str) -> m.LeaseEnded:
    return m.LeaseEnded(tokens=0, finish="failed", reason=reason, message=message[:500])
