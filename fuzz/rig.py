"""The router's shell with peers that a script moves: what they hold stays bounded, each request is answered once."""

from collections.abc import Callable
from hashlib import sha256

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.fleet.bundles import BundleCache, Packed
from mainspring.fleet.links import Peer
from mainspring.fleet.settings import Settings
from mainspring.fleet.shell import Shell
from mainspring.wire import messages as m
from mainspring.wire.errors import BusyError, Close
from mainspring.wire.frames import FrameDecoder
from mainspring.wire.link import Rules
from mainspring.wire.transport import Identity, Lost
from script import Script
from talk import MAKERS, NAMES, message, spoiled

RULES = Rules(streams=8, buffered_bytes=1 << 16)
SETTINGS = Settings(rules=RULES, max_links=6, payload_bytes=1 << 17, client_bytes=1 << 16)
LAST = (m.Result, m.Refused, m.LeaseEnded, m.Status, m.BundleEnd)


class Stub:
    """A connection that keeps what the router writes."""

    transport, address, backlog_bytes, dialer = "memory", "memory", 0, False

    def __init__(self, peer: Identity) -> None:
        self.peer = peer
        self.decoders: dict[int, FrameDecoder] = {}
        self.got: list[tuple[int, m.Message]] = []
        self.closed = False

    def write(self, stream: int, data: bytes, end: bool = False) -> None:  # noqa: ARG002
        assert not self.closed, "nothing is written after a close"
        for frame in self.decoders.setdefault(stream, FrameDecoder(m.CAPS)).feed(data):
            self.got.append((stream, m.decode(*frame)))

    def close(self, close: Close, message: str = "") -> None:  # noqa: ARG002
        self.closed = True


class Dialled:
    """A peer and what it has been told and asked."""

    def __init__(self, cell: "Cell", role: m.Role, name: str) -> None:
        self.cell, self.role = cell, role
        self.stub = Stub(Identity("fleet", role, name))
        self.peer: Peer = cell.shell.accept(self.stub, cell.now_s)
        self.next_stream = 4
        self.asked: dict[int, int] = {}
        self.work: list[tuple[int, m.Work]] = []
        self.read = 0
        self.send(0, m.Hello(role=role, name=name, instance=cell.instances))
        self.send(0, m.Pong(nonce=0))

    def send(self, stream: int, message: m.Message) -> None:
        self.raw(stream, m.encode(message))

    def raw(self, stream: int, data: bytes, end: bool = False) -> None:
        if not self.peer.closed and not self.stub.closed:
            self.cell.shell.received(self.peer, stream, data, end, self.cell.now_s)
        self.listen()

    def ask(self, message: m.Message) -> None:
        stream, self.next_stream = self.next_stream, self.next_stream + 4
        self.asked[stream] = 0
        self.send(stream, message)

    def listen(self) -> None:
        for stream, heard in self.stub.got[self.read :]:
            if isinstance(heard, m.Work):
                self.work.append((stream, heard))
            elif stream in self.asked and isinstance(heard, LAST):
                self.asked[stream] += 1
                assert self.asked[stream] == 1, "one last message a stream"
        self.read = len(self.stub.got)

    def answer(self, s: Script) -> None:
        if not self.work:
            return
        stream, work = self.work.pop(0)
        fence, labels = work.fence, sum(part.labels for part in work.parts)
        gained = tuple((part.view_key, part.view_to) for part in work.parts if part.view_key)
        how = s.byte()
        if how & 1:
            self.send(stream, m.Started(fence=fence))
        failed: tuple[int, ...] = ()
        if how > 200:
            failed = tuple(index for index in range(len(work.parts)) if s.byte() & 1)
            labels -= sum(work.parts[index].labels for index in failed)
            reason = s.one(("view_missing", "engine", "late", "out_of_memory", "draining"))
            last: m.Message = m.Failed(
                fence=fence, reason=reason, failed=failed, logits=bytes(4 * labels) if failed else b""
            )
        else:
            last = m.Done(fence=fence, measured_s=work.predicted_s, logits=bytes(4 * labels), gained=gained)
        self.send(stream, last)


class Cell:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.instances = 0
        bundles = BundleCache(check=lambda _name, _data: None)
        for name in NAMES[:4]:
            bundles.keep(name, Packed(b"bytes", sha256(b"bytes").hexdigest()))
        self.shell = Shell(SETTINGS, 1, 0.0, bundles)
        self.peers: list[Dialled] = []
        self.everybody: list[Dialled] = []
        self._join("node", "ant")
        self._join("client", "gate")
        self._offer(self.peers[0])

    def step(self, s: Script) -> None:
        self.now_s += s.one((0.0, 0.0, 0.0, 0.001, 0.05, 1.0, 40.0))
        for each in [*self.peers]:
            each.listen()
            if each.peer.closed:
                self.peers.remove(each)
        moves: tuple[Callable[[Script], None], ...] = (
            self._submit, self._submit, self._answer, self._answer, self._say, self._say, self._anything, self._dial,
            self._leave, self._ask, self._cancel, self._live,
        )  # fmt: skip
        s.one(moves)(s)
        if self.shell.next_deadline() <= self.now_s:
            self.shell.timer(self.now_s)
        self.check()

    def check(self) -> None:
        shell = self.shell
        assert not shell.tally.counts.get("faults"), "a fault of ours"
        assert 0 <= shell.payloads.held_bytes <= shell.payloads.cap_bytes
        assert len(shell.book) <= SETTINGS.max_links
        assert len(shell.fetches) <= SETTINGS.max_links * 17
        assert shell.book.unfinished.noted_bytes <= SETTINGS.max_links * (RULES.buffered_bytes + (1 << 20))

    def finish(self) -> None:
        """Everybody falls silent: links end, and nothing of any request is left."""
        for _ in range(200):
            due_s = self.shell.next_deadline()
            if due_s == float("inf"):
                break
            self.now_s = max(self.now_s, due_s)
            self.shell.timer(self.now_s)
        self.check()
        shell, c = self.shell, self.shell.core.counters
        assert len(shell.book) == 0, "the silent are sent away"
        assert not shell.clients.open
        assert len(shell.payloads) == shell.payloads.held_bytes == len(shell.answers) == 0
        assert not shell.payloads._owned
        assert not shell.core.state.jobs
        assert c.submitted == c.answered + c.refused + c.expired + c.failed + c.cancelled
        for each in self.everybody:
            each.listen()

    # -------------------------------------------------------------- moves

    def _submit(self, s: Script) -> None:
        client = self._some(s, "client")
        if client is not None and len([n for n in client.asked.values() if not n]) < RULES.streams:
            sound = s.byte() & 3
            labels = words(3)
            client.ask(
                MAKERS[m.Submit](s) if not sound else m.Submit(
                    request="r", model="tiny", slo=s.one(("standard", "batch", "interactive")),
                    view_tokens=words(5 + s.below(600)), view_key=s.one(NAMES[:4]), branch_lengths=words(1, 4),
                    branch_tokens=words(4), label_counts=words(1, 3), label_ids=labels,
                )
            )  # fmt: skip

    def _answer(self, s: Script) -> None:
        node = self._some(s, "node")
        if node is not None:
            node.answer(s)

    def _say(self, s: Script) -> None:
        node = self._some(s, "node")
        if node is not None:
            kind = s.one((m.Offer, m.NodeReport, m.NodeReport, m.Drain))
            self._offer(node) if s.byte() & 1 else node.send(0, MAKERS[kind](s))

    def _anything(self, s: Script) -> None:
        if self.peers:
            each = s.one(self.peers)
            stream = s.one((0, each.next_stream, 4, 1, 5, 9))
            each.raw(stream, spoiled(s, m.encode(message(s))), s.byte() > 240)

    def _dial(self, s: Script) -> None:
        self.instances += s.byte() & 1
        role = s.one(("node", "client"))
        self._join(role, s.one(("ant", "bee") if role == "node" else ("gate", "gate2")))

    def _leave(self, s: Script) -> None:
        if self.peers:
            each = self.peers.pop(s.below(len(self.peers)))
            close = s.one((Close.LOST, Close.GOODBYE, Close.IDLE, Close.PROTOCOL))
            lost = Lost(close, "gone", remote=True)
            self.shell.lost(each.peer, lost.close, lost.message, lost.remote, self.now_s)

    def _ask(self, s: Script) -> None:
        client = self._some(s, "client")
        if client is not None and len([n for n in client.asked.values() if not n]) < RULES.streams:
            client.ask(MAKERS[s.one((m.AskStatus, m.FetchBundle))](s))

    def _cancel(self, s: Script) -> None:
        client = self._some(s, "client")
        if client is not None and client.asked:
            client.send(s.one([*client.asked]), m.Cancel())

    def _live(self, _s: Script) -> None:
        for each in [*self.peers]:
            each.send(0, m.Pong(nonce=0))

    # -------------------------------------------------------------- within

    def _some(self, s: Script, role: m.Role) -> Dialled | None:
        some = [each for each in self.peers if each.role == role and not each.peer.closed]
        return s.one(some) if some else None

    def _join(self, role: m.Role, name: str) -> None:
        try:
            each = Dialled(self, role, name)
        except BusyError:
            return
        self.peers.append(each)
        self.everybody = [*self.everybody[-20:], each]

    def _offer(self, node: Dialled) -> None:
        node.send(
            0,
            m.Offer(
                model="key", alias="tiny", bundle="a", bundle_bytes=5, bundle_sha256="s", numerics="fp32",
                cost=Cost(0.01, 1e-5, 1e-5), limits=Limits(pass_tokens=300, slots=2),
            ),
        )  # fmt: skip


def words(count: int, value: int = 7) -> bytes:
    return value.to_bytes(4, "little") * count
