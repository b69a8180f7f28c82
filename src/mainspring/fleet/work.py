"""Passes and leases on nodes: cut and sent, their outcomes checked and told to the core.

Every outcome is looked at before the core hears of it: lengths and finiteness of logits, indices of parts. Fences and
order are the link's.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.core import events as ev
from mainspring.core.nouns import Lease, Pass
from mainspring.core.refusals import BadShapeError, LeaseLostError
from mainspring.errors import TooLargeError
from mainspring.fleet.answers import split
from mainspring.fleet.links import Peer
from mainspring.fleet.tally import PassRecord
from mainspring.wire import messages as m
from mainspring.wire.errors import Close, LimitError
from mainspring.wire.exchanges import CONTROL

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

log = logging.getLogger("mainspring.fleet")

FRAME_ROOM = 64 << 10
LEASE_ROOM = 1 << 20
"""Of an `OpenLease` beside its prompt: marks, a grammar, biases."""
UNBLAMED = frozenset({"late", "draining"})


@dataclass(eq=False)
class Sent:
    """A pass on a node; `stream` None while it is held back from a full connection."""

    work: Pass
    message: m.Work
    labels: tuple[int, ...]
    sent_s: float
    peer: Peer
    stream: int | None = None

    @property
    def shards(self) -> frozenset[tuple[str, int]]:
        return frozenset((part.request_id, part.shard) for part in self.work.parts)


@dataclass(eq=False)
class LeaseStream:
    """`tokens` came, of which the core was `told`; at most `most` may."""

    request_id: str
    peer: Peer
    stream: int
    most: int
    attempt: int = 0
    tokens: int = 0
    told: int = 0
    shards = frozenset[tuple[str, int]]()


class WorkDesk:
    def __init__(self, shell: "Shell") -> None:
        self.shell = shell
        self.passes: dict[int, Sent] = {}
        self.leases: dict[str, LeaseStream] = {}

    # -------------------------------------------------------------- passes

    def send_pass(self, work: Pass, now_s: float) -> None:
        peer = self.shell.book.node(work.node_id, work.epoch)
        if peer is None:  # its `NodeLeft` is on its way to the core, which then gives this work to others
            return
        parts, attempt = self.shell.payloads.parts(work)
        parts = tuple(
            replace(part, attempt=self.leases[part.request].attempt)
            if part.of_lease and part.request in self.leases else part
            for part in parts
        )  # fmt: skip
        size = sum(map(wire_bytes, parts))
        if size > m.Work.cap - FRAME_ROOM:
            log.error("pass %d of %d bytes does not fit in a frame", work.id, size)
            self.shell.tell(ev.WorkFailed(work.node_id, work.epoch, work.id))
            return
        fence = m.Fence(pass_id=work.id, attempt=attempt, epoch=work.epoch)
        message = m.Work(
            fence=fence, parts=parts, predicted_s=work.predicted_s, start_within_s=work.start_within_s,
            priority=work.priority, trace=self.shell.clients.trace(work.parts[0].request_id),
        )  # fmt: skip
        labels = tuple(self.shell.payloads[part.request_id].labels_of(part) for part in work.parts)
        sent = Sent(work, message, labels, now_s, peer)
        self.passes[work.id] = sent
        self.shell.answers.sent(work)
        self.shell.clients.scanning(work, peer)
        if peer.full or peer.held_back:
            peer.held_back.append(sent)
        else:
            self._write(sent, now_s)

    def resume(self, peer: Peer, now_s: float) -> None:
        """The connection takes more: what was held back goes, late what waited too long."""
        while peer.held_back and not peer.full and not peer.closed:
            sent = peer.held_back.popleft()
            assert isinstance(sent, Sent)  # noqa: S101 - nothing else is held back
            left_s = sent.work.start_within_s - (now_s - sent.sent_s)
            if left_s <= 0.0:
                del self.passes[sent.work.id]
                self.shell.tell(ev.WorkFailed(peer.name, peer.epoch, sent.work.id, late=True))
                continue
            sent.message = replace(sent.message, start_within_s=left_s)
            self._write(sent, now_s)
            self.shell.touch(peer)

    def _write(self, sent: Sent, now_s: float) -> None:
        peer = sent.peer
        try:
            sent.stream = peer.link.open(sent.message, now_s)
        except LimitError as error:
            self.shell.close(peer, Close.LIMIT, error.message, now_s)
            return
        peer.streams[sent.stream] = sent
        self.shell.touch(peer)

    def lost(self, peer: Peer) -> None:
        """Passes and leases never outlive their link."""
        for served in [*peer.streams.values(), *peer.held_back]:
            if isinstance(served, Sent):
                self.passes.pop(served.work.id, None)
            elif isinstance(served, LeaseStream) and self.leases.get(served.request_id) is served:
                del self.leases[served.request_id]
        peer.held_back.clear()

    def drop_pass(self, pass_id: int, now_s: float) -> None:
        sent = self.passes.get(pass_id)
        if sent is None:
            return
        if sent.stream is None:
            sent.peer.held_back.remove(sent)
            del self.passes[pass_id]
        else:
            self.shell.say(sent.peer, sent.stream, m.Cancel(reason="nobody waits for it"), now_s)

    def about_pass(self, sent: Sent, message: m.Message, now_s: float) -> None:
        work, peer, shell = sent.work, sent.peer, self.shell
        if isinstance(message, m.Started):
            ago_s = message.ago_s + peer.half_trip_s
            shell.answers.began(work, now_s - ago_s)
            shell.tell(ev.WorkStarted(peer.name, peer.epoch, work.id, ago_s))
            return
        self.passes.pop(work.id, None)
        failed: tuple[int, ...] = ()
        if isinstance(message, m.Failed):
            failed = tuple(sorted(set(message.failed))) or tuple(range(len(work.parts)))
            failed = tuple(index for index in failed if index < len(work.parts))
        elif not isinstance(message, m.Done):
            return
        pieces, bad = split(message.logits, sent.labels, failed)
        shell.answers.keep(work, pieces, message.measured_s)
        if bad:
            log.warning("node %s, pass %d: logits of %d parts are too few or not finite", peer.name, work.id, len(bad))
        if isinstance(message, m.Done) and not bad:
            shell.tally.passes.append(PassRecord(peer.name, work.id, now_s, work.predicted_s, message.measured_s,
                                                 len(work.parts), work.tokens))  # fmt: skip
            shell.tell(ev.WorkDone(peer.name, peer.epoch, work.id, message.measured_s, message.gained, message.dropped))
            return
        reason = message.reason if isinstance(message, m.Failed) else "not_finite"
        shell.tally.count(f"failed_{reason}")
        if isinstance(message, m.Failed):
            log.info("node %s, pass %d failed: %s %s", peer.name, work.id, reason, m.one_line(message.message))
        shell.clients.failed({work.parts[index].request_id for index in {*failed, *bad}}, reason)
        if isinstance(message, m.Failed):
            for detail in message.details:
                if detail.index in failed:
                    shell.clients.wrong(work.parts[detail.index].request_id, detail)
        if reason == "draining" and not peer.draining:
            peer.draining = True
            shell.tell(ev.NodeDraining(peer.name, peer.epoch))
        shell.tell(
            ev.WorkFailed(
                peer.name, peer.epoch, work.id, late=reason in UNBLAMED and not bad,
                failed=tuple(sorted({*failed, *bad})), view_missing=reason == "view_missing" and not bad,
                gained=message.gained, dropped=message.dropped,
            )
        )  # fmt: skip

    # -------------------------------------------------------------- leases

    def open_lease(self, lease: Lease, now_s: float) -> None:
        open_request = self.shell.clients.open.get(lease.request_id)
        state = self.shell.core.state.nodes.get(lease.node_id)
        peer = self.shell.book.node(lease.node_id, state.epoch) if state is not None else None
        if peer is None or open_request is None:  # its end is on its way to the core
            return
        if open_request.streamed:  # a node gave tokens before its prompt's pass failed: never twice
            self.shell.tell(ev.Cancel(lease.request_id))
            self.shell.clients.refuse(lease.request_id, LeaseLostError("tokens had been streamed"), now_s)
            return
        message = self.shell.payloads.lease(lease, peer.epoch, open_request.trace)
        if len(message.prompt) > m.OpenLease.cap - LEASE_ROOM:
            self.shell.tell(ev.Cancel(lease.request_id))
            self.shell.clients.refuse(lease.request_id, too_long(lease.prompt_tokens), now_s)
            return
        try:
            stream = peer.link.open(message, now_s)
        except LimitError as error:
            self.shell.close(peer, Close.LIMIT, error.message, now_s)
            return
        open_request.leases += 1
        peer.streams[stream] = self.leases[lease.request_id] = LeaseStream(
            lease.request_id, peer, stream, lease.max_tokens, lease.attempt
        )
        self.shell.touch(peer)

    def close_lease(self, request_id: str, now_s: float) -> None:
        lease = self.leases.pop(request_id, None)
        if lease is not None and lease.stream in lease.peer.streams:
            self.shell.say(lease.peer, lease.stream, m.Cancel(reason="nobody waits for it"), now_s)

    def about_lease(self, lease: LeaseStream, message: m.Message, now_s: float) -> None:
        """Nothing of a lease that is closed here. A node that sends more than was asked for, or counts otherwise than
        came, has failed: a stream cut short must not look whole."""
        if self.leases.get(lease.request_id) is not lease:
            return
        if isinstance(message, m.Rounds):
            self._tokens(lease, message, now_s)
        elif isinstance(message, m.LeaseEnded):
            sound = message.finish in ("stop", "length") and message.tokens == lease.tokens
            if message.finish in ("stop", "length") and not sound:
                log.error("node %s says %d tokens where %d came", lease.peer.name, message.tokens, lease.tokens)
            if not sound:  # what we cancel is not in `leases` any more
                self.shell.tally.count(f"leases_failed_{message.reason or 'engine'}")
                log.info("node %s, a lease failed: %s %s", lease.peer.name, message.reason, m.one_line(message.message))
                self.shell.clients.failed({lease.request_id}, message.reason or "engine")
                if message.reason == "bad_work" and message.message:
                    wrong = m.Detail(index=0, code=BadShapeError.code, message=message.message)
                    self.shell.clients.wrong(lease.request_id, wrong)
            self._ended(lease, message, failed=not sound)

    def _tokens(self, lease: LeaseStream, message: m.Rounds, now_s: float) -> None:
        peer, name = lease.peer, lease.peer.name
        if lease.tokens + len(message.tokens) // 4 > lease.most:
            log.error("node %s sends more than the %d tokens of a lease", name, lease.most)
            self.shell.say(peer, lease.stream, m.Cancel(reason="more tokens than asked for"), now_s)
            self._ended(lease, m.LeaseEnded(tokens=lease.tokens, finish="failed"), failed=True)
            return
        if lease.tokens == 0:
            self.shell.tell(ev.LeaseStarted(name, peer.epoch, lease.request_id, lease.attempt))
        lease.tokens += len(message.tokens) // 4
        if lease.tokens - lease.told >= ev.PROGRESS_TOKENS:
            lease.told = lease.tokens
            self.shell.tell(ev.LeaseProgress(name, peer.epoch, lease.request_id, lease.tokens, lease.attempt))
        self.shell.clients.relay(lease.request_id, message, now_s)

    def _ended(self, lease: LeaseStream, message: m.LeaseEnded, *, failed: bool) -> None:
        del self.leases[lease.request_id]
        peer = lease.peer
        if not failed:
            self.shell.clients.lease_ended(lease.request_id, message, peer.name)
        self.shell.tell(
            ev.LeaseEnded(
                peer.name, peer.epoch, lease.request_id, lease.tokens, failed, message.gained, lease.attempt
            )
        )  # fmt: skip

    def release(self, request_id: str, peers: set[Peer], now_s: float) -> None:
        """The request is settled: half-scanned views of it may go."""
        for peer in peers:
            if not peer.closed:
                self.shell.say(peer, CONTROL, m.Release(request=request_id), now_s)


def too_long(tokens: int) -> TooLargeError:
    most = (m.OpenLease.cap - LEASE_ROOM) // 4
    why = f"prompt: {tokens:,} tokens, and at most {most:,} are sent to a node"
    return TooLargeError(why, limit=most, actual=tokens, param="view_tokens")


def wire_bytes(part: m.Part) -> int:
    """On the wire, within a few bytes above."""
    arrays = (part.view_tokens, part.branch_lengths, part.branch_tokens, part.label_counts, part.label_ids)
    return sum(map(len, arrays)) + 1024
