"""The shell's side of clients: submits in, results and refusals out, bundles and status on request.

A request's id in the core is unique for the router's life: client, link and stream. It is open from its `Submit` to the
one last message on its stream, whichever comes first: an answer, a refusal, the end of the link.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.core import events as ev
from mainspring.core.actions import Answer
from mainspring.core.nouns import Pass
from mainspring.core.refusals import WorkFailedError
from mainspring.errors import MainspringError
from mainspring.fleet.admission import bad_work, refused, request_of
from mainspring.fleet.bundles import Packed, Sending
from mainspring.fleet.errors import HTTP_CANCELLED, DrainingError, InternalError, SlowReaderError
from mainspring.fleet.links import Peer
from mainspring.fleet.scope import scoped
from mainspring.fleet.status import status_of_router
from mainspring.fleet.tally import Ending
from mainspring.version import __version__
from mainspring.wire import messages as m
from mainspring.wire.link import Received

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

FAULT = "internal fault"
UNSENT_BYTES = 512 << 10
"""Of one stream's tokens that wait for its client's connection; as one record they fit a frame."""
MAX_SENDING = 16
"""Bundles on their way to one client at once."""


@dataclass(eq=False)
class Open:
    """`half`: nodes that may hold a half-scanned view of it. `reasons`: why passes or leases of it failed; `wrong`:
    what a node said last of what is asked for. Of a generation: `leases` opened, when the first and last tokens came
    and how many, and `unsent` ones that the client's connection has no room for."""

    request_id: str
    peer: Peer
    stream: int
    slo: str
    arrival_s: float
    trace: str
    half: set[Peer] = field(default_factory=set)
    ended: m.LeaseEnded | None = None
    reasons: set[str] = field(default_factory=set)
    wrong: m.Detail | None = None
    leases: int = 0
    first_s: float | None = None
    last_s: float = 0.0
    tokens: int = 0
    unsent: list[m.Rounds] = field(default_factory=list)
    unsent_bytes: int = 0

    @property
    def streamed(self) -> bool:
        return self.first_s is not None


class ClientDesk:
    def __init__(self, shell: "Shell") -> None:
        self.shell = shell
        self.open: dict[str, Open] = {}

    # -------------------------------------------------------------- in

    def hear(self, peer: Peer, event: Received, now_s: float) -> None:
        message, stream = event.message, event.stream
        if isinstance(message, m.Submit):
            self._submit(peer, stream, message, event.age_s + peer.half_trip_s, now_s)
        elif isinstance(message, m.Cancel):
            self._cancel(peer, stream, now_s)
        elif isinstance(message, m.FetchBundle):
            peer.streams[stream] = message
            self._fetch(peer, stream, message.bundle, now_s)
        elif isinstance(message, m.AskStatus):
            peer.streams[stream] = message
            self._tell(peer, stream, status_of_router(self.shell, message.passes, now_s), now_s)

    def left(self, peer: Peer, now_s: float) -> None:
        """Nobody works for a client that is gone."""
        for served in [*peer.streams.values()]:
            if isinstance(served, Open):
                self.shell.tell(ev.Cancel(served.request_id))
                self._forget(served, "client_gone", now_s)
        peer.streams.clear()
        peer.sending.clear()

    def abort(self, peer: Peer, stream: int, now_s: float) -> None:
        """After a fault of ours: the stream gets its last message if it still owes one."""
        served = peer.streams.get(stream)
        if isinstance(served, Open):
            self.shell.tell(ev.Cancel(served.request_id))
            self.refuse(served.request_id, InternalError(FAULT), now_s)
        elif isinstance(served, m.AskStatus):
            up_s = max(0.0, now_s - self.shell.began_s)
            fault = m.Status(router=self.shell.instance, up_s=up_s, version=__version__, fault=FAULT)
            self._tell(peer, stream, fault, now_s)
        elif isinstance(served, m.FetchBundle):
            self._tell(peer, stream, m.BundleEnd(found=False, message=FAULT), now_s)

    def _submit(self, peer: Peer, stream: int, submit: m.Submit, age_s: float, now_s: float) -> None:
        shell = self.shell
        request_id = f"{peer.name[:64]}.{peer.epoch}.{stream}"
        open_request = Open(request_id, peer, stream, submit.slo, now_s, submit.trace)
        self.open[request_id] = peer.streams[stream] = open_request
        shell.tally.submitted += 1
        try:
            if shell.draining:
                raise DrainingError
            submit = scoped(submit, peer.identity)
            request = request_of(submit, request_id, shell.models, age_s)
            shell.payloads.add(request_id, submit, request.model, peer.name)
        except MainspringError as error:
            self.refuse(request_id, error, now_s)
            return
        shell.answers.open(request_id, now_s)
        shell.tell(ev.Submit(request))

    def _cancel(self, peer: Peer, stream: int, now_s: float) -> None:
        served = peer.streams.get(stream)
        if isinstance(served, Open):
            self.shell.tell(ev.Cancel(served.request_id))
            self._say_last(served, m.Refused(code="cancelled", message="taken back", status=HTTP_CANCELLED), now_s)
            self._forget(served, "cancelled", now_s)

    def _fetch(self, peer: Peer, stream: int, bundle: str, now_s: float) -> None:
        if len(peer.sending) + peer.awaited >= MAX_SENDING:
            full = m.BundleEnd(found=False, message=f"at most {MAX_SENDING} bundles are sent to one client at once")
            self._tell(peer, stream, full, now_s)
            return
        peer.awaited += 1

        def have(packed: Packed | None, when_s: float) -> None:
            peer.awaited -= 1
            if packed is None:
                self._tell(peer, stream, m.BundleEnd(found=False), when_s)
            elif not peer.closed:
                peer.sending.append(Sending(stream, packed))
                peer.streams.pop(stream, None)
                self.shell.touch(peer)

        self.shell.fetches.want(bundle, have, now_s)

    def _tell(self, peer: Peer, stream: int, last: m.Message, now_s: float) -> None:
        """The last message of a question."""
        self.shell.say(peer, stream, last, now_s)
        peer.streams.pop(stream, None)

    # -------------------------------------------------------------- out

    def trace(self, request_id: str) -> str:
        open_request = self.open.get(request_id)
        return "" if open_request is None else open_request.trace

    def scanning(self, work: Pass, peer: Peer) -> None:
        """A chunk leaves a half-scanned view behind."""
        for part in work.parts:
            open_request = self.open.get(part.request_id)
            if part.more and open_request is not None:
                open_request.half.add(peer)

    def failed(self, request_ids: set[str], reason: str) -> None:
        for request_id in request_ids:
            open_request = self.open.get(request_id)
            if open_request is not None:
                open_request.reasons.add(reason)

    def wrong(self, request_id: str, detail: m.Detail) -> None:
        """For its caller's eyes alone."""
        open_request = self.open.get(request_id)
        if open_request is not None:
            open_request.wrong = detail

    def admit(self, request_id: str, predicted_s: float, now_s: float) -> None:
        open_request = self.open.get(request_id)
        if open_request is not None:
            accepted = m.Accepted(predicted_s=min(86_400.0, max(0.0, predicted_s)))
            self.shell.say(open_request.peer, open_request.stream, accepted, now_s)

    def answer(self, answer: Answer, now_s: float) -> None:
        open_request = self.open.get(answer.request_id)
        if open_request is None:
            return
        message: m.Message
        if open_request.ended is not None:
            message = self._whole(open_request, open_request.ended, now_s)
        else:
            message = self.shell.answers.result(answer.request_id, answer.parts, answer.late, now_s)
        self._say_last(open_request, message, now_s)
        self._forget(open_request, "", now_s, late=answer.late)

    def refuse(self, request_id: str, error: MainspringError, now_s: float) -> None:
        """Nothing for a request that has had its answer."""
        open_request = self.open.get(request_id)
        if open_request is not None:
            last = refused(error)
            if isinstance(error, WorkFailedError) and open_request.reasons - {"late"} == {
                "bad_work"
            }:  # chunks of a refused lease come back late
                last = bad_work(open_request.wrong)
            self._say_last(open_request, last, now_s)
            self._forget(open_request, last.code, now_s)

    def relay(self, request_id: str, rounds: m.Rounds, now_s: float) -> None:
        """At once, or when the connection takes more again: then as one, so a slow reader costs frames and not memory;
        beyond `UNSENT_BYTES` the stream is given up, and no other one."""
        open_request = self.open.get(request_id)
        if open_request is None:
            return
        open_request.first_s = now_s if open_request.first_s is None else open_request.first_s
        open_request.last_s = now_s
        open_request.tokens += len(rounds.tokens) // 4
        self.shell.tally.streamed(len(rounds.tokens) // 4, now_s)
        if not open_request.peer.full and not open_request.unsent:
            self.shell.say(open_request.peer, open_request.stream, rounds, now_s)
            return
        open_request.unsent.append(rounds)
        open_request.unsent_bytes += rounds.nbytes
        if open_request.unsent_bytes > UNSENT_BYTES:
            self.shell.tell(ev.Cancel(request_id))
            self.refuse(request_id, SlowReaderError(limit=UNSENT_BYTES), now_s)

    def resume(self, peer: Peer, now_s: float) -> None:
        """The connection takes more."""
        for served in [*peer.streams.values()]:
            if isinstance(served, Open) and served.unsent and not peer.full:
                self._send_rest(served, now_s)

    def lease_ended(self, request_id: str, ended: m.LeaseEnded, node: str) -> None:
        """Kept until the core says that this was the answer; a failed lease may be opened again elsewhere."""
        open_request = self.open.get(request_id)
        if open_request is not None:
            open_request.ended = replace(ended, node=node)

    def _whole(self, open_request: Open, ended: m.LeaseEnded, now_s: float) -> m.LeaseEnded:
        """With what only the router knows; what only it needs is left out."""
        arrival_s = open_request.arrival_s
        return replace(
            ended, gained=(), message="", retries=max(0, open_request.leases - 1), total_s=now_s - arrival_s,
            first_s=0.0 if open_request.first_s is None else open_request.first_s - arrival_s,
            queue_s=self.shell.answers.queue_s(open_request.request_id),
        )  # fmt: skip

    def _send_rest(self, open_request: Open, now_s: float) -> None:
        unsent, open_request.unsent, open_request.unsent_bytes = open_request.unsent, [], 0
        if unsent:
            self.shell.say(open_request.peer, open_request.stream, m.joined_rounds(unsent), now_s)

    def _say_last(self, open_request: Open, message: m.Message, now_s: float) -> None:
        self._send_rest(open_request, now_s)
        self.shell.say(open_request.peer, open_request.stream, message, now_s)

    def _forget(self, open_request: Open, code: str, now_s: float, *, late: bool = False) -> None:
        shell, request_id = self.shell, open_request.request_id
        self.open.pop(request_id, None)
        open_request.peer.streams.pop(open_request.stream, None)
        shell.later(lambda: shell.payloads.release(request_id))  # what the core was told before may still send it
        shell.answers.close(request_id)
        shell.nodes.work.release(request_id, open_request.half, now_s)
        shell.tally.ended(ending_of(open_request, late, code, now_s))


def ending_of(request: Open, late: bool, code: str, now_s: float) -> Ending:
    """A generation counts by its first token."""
    if request.first_s is None:
        return Ending(now_s, request.slo, now_s - request.arrival_s, late, code)
    gap_s = (request.last_s - request.first_s) / (request.tokens - 1) if request.tokens > 1 else 0.0
    return Ending(now_s, request.slo, request.first_s - request.arrival_s, late, code, request.tokens, gap_s)
