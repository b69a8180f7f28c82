"""A whole fleet under virtual time: the real shell, real links over memory networks, virtual nodes, scripted clients.

A virtual node does what a real one does with a pass (views, parents, checkpoints, order) but answers with hashes of
what it read, so a mixed-up view, branch, label or shard shows. `expected` is what a client must get.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits
from mainspring.fleet.bundle_check import Check
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.driver import Driver
from mainspring.fleet.scope import realm_of, scoped_key
from mainspring.fleet.settings import Settings
from mainspring.fleet.shell import Shell
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.link import Closed, Joined, Link, Received
from mainspring.wire.memory import Network, connect
from mainspring.wire.transport import Connection, Identity, Lost
from support.links import World
from support.packed import by_beginning, hash_of

ROUTER = Identity("fleet", "router", "hill")
BUNDLE = bytes(range(256)) * 4000
FAST = Cost(0.004, 1e-5, 2e-5)


def words(*numbers: int) -> bytes:
    return np.asarray(numbers, "<u4").tobytes()


def submit(
    view: int = 200, branches: int = 4, rows: int = 8, *, seed: int = 0, model: str = "tiny", slo: str = "standard",
    **fields: object,
) -> m.Submit:  # fmt: skip
    rng = np.random.default_rng(seed)
    labels = 3
    return m.Submit(
        request=f"r{seed}", model=model, slo=slo, view_tokens=rng.integers(0, 1000, view).astype("<u4").tobytes(),
        branch_lengths=words(*[rows] * branches),
        branch_tokens=rng.integers(0, 1000, rows * branches).astype("<u4").tobytes(),
        label_counts=words(*[labels] * branches), label_ids=words(*list(range(labels)) * branches), **fields,
    )  # type: ignore[arg-type]  # fmt: skip


def generation(prompt: int = 50, tokens: int = 40, *, seed: int = 0, **fields: object) -> m.Submit:
    fields.setdefault("sampling", m.Sampling())
    return m.Submit(
        request=f"g{seed}", model="tiny", slo="standard",
        view_tokens=np.arange(prompt, dtype="<u4").tobytes(), max_tokens=tokens, **fields,
    )  # type: ignore[arg-type]  # fmt: skip


def logits(view: bytes, lengths: bytes, tokens: bytes, counts: bytes, ids: bytes) -> bytes:
    """f32 of a hash of the view, the branch and the label."""
    out: list[float] = []
    at = label_at = 0
    label_ids = m.u32(ids)
    for length, count in zip(m.u32(lengths).tolist(), m.u32(counts).tolist(), strict=True):
        seen = hashlib.sha256(view + b"|" + tokens[4 * at : 4 * (at + length)]).digest()
        for label in label_ids[label_at : label_at + count].tolist():
            digest = hashlib.sha256(seen + label.to_bytes(4, "little")).digest()
            out.append(int.from_bytes(digest[:4], "little") / 2**31 - 1.0)
        at, label_at = at + length, label_at + count
    return np.asarray(out, "<f4").tobytes()


def known_as(key: str, client: str = "gate", realm: str = "") -> str:
    """What router and nodes call a client's key."""
    return scoped_key(key, realm_of(Identity("fleet", "client", client, realm=realm)))


def expected(request: m.Submit) -> bytes:
    r = request
    return logits(r.view_tokens, r.branch_lengths, r.branch_tokens, r.label_counts, r.label_ids)


class Ear:
    """A connection's receiver, deaf once the party has dialled anew."""

    def __init__(self, party: "Party", link: Link) -> None:
        self.party, self.link = party, link

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        if self.party.link is self.link:
            self.party.data_received(stream, data, end)

    def stream_reset(self, stream: int) -> None:
        if self.party.link is self.link:
            self.party.stream_reset(stream)

    def writable(self) -> None: ...

    def connection_lost(self, lost: Lost) -> None:
        if self.party.link is self.link:
            self.party.connection_lost(lost)


class Party:
    """One process that dials: a link, a connection, a timer. `asleep`: stopped; what comes is read when it wakes."""

    role: m.Role = "client"
    realm = ""

    def __init__(self, fleet: "Fleet", name: str, instance: int = 7) -> None:
        self.fleet, self.world, self.name, self.instance = fleet, fleet.world, name, instance
        self.asleep = self.dead = False
        self.closed: Closed | None = None
        self._unread: list[Callable[[], None]] = []
        self._timer = 0
        self.dial()

    def dial(self) -> None:
        self.closed = None
        self.joined = False
        hello = m.Hello(role=self.role, name=self.name, instance=self.instance)
        self.link = Link.dial(hello, self.world.now_s)
        self.network = Network(self.world.call_later, lambda _stream: self.fleet.delay_s)
        identity = Identity("fleet", self.role, self.name, realm=self.realm)
        connect(self.network, identity, ROUTER, self.accept, self.fleet.driver.accept)

    def accept(self, connection: Connection) -> "Ear":
        self.connection = connection
        self.world.call_later(0.0, self.turn)
        return Ear(self, self.link)

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        if self.dead:
            return
        if self.asleep:
            self._unread.append(lambda: self.data_received(stream, data, end))
            return
        self._take(self.link.receive(stream, data, end, self.world.now_s))
        self.turn()

    def stream_reset(self, stream: int) -> None:
        self._take(self.link.reset(stream, self.world.now_s))

    def connection_lost(self, lost: Lost) -> None:
        if self.asleep:
            self._unread.append(lambda: self.connection_lost(lost))
        elif not self.dead:
            self._take(self.link.lost(lost.close, lost.message, lost.remote, self.world.now_s))

    def turn(self) -> None:
        if self.asleep or self.dead:
            return
        outputs, events = self.link.poll(self.world.now_s)
        self._take(events)
        for output in outputs:
            if hasattr(output, "data"):
                self.connection.write(output.stream, output.data, output.end)
            else:
                self.connection.close(output.close, output.message)
        self._timer += 1
        timer, deadline = self._timer, self.link.next_deadline()
        if deadline is not None:
            self.world.call_later(
                max(0.0, deadline - self.world.now_s), lambda: self.turn() if timer == self._timer else None
            )

    def wake(self) -> None:
        self.asleep = False
        unread, self._unread = self._unread, []
        for read in unread:
            read()
        self.turn()

    def say(self, stream: int, message: m.Message) -> None:
        self.link.send(stream, message, self.world.now_s)
        self.turn()

    def kill(self) -> None:
        """kill -9: the process is gone, the network says nothing."""
        self.dead = True

    def leave(self) -> None:
        self._take(self.link.close(Close.GOODBYE, "enough", self.world.now_s))
        self.turn()

    def _take(self, events: list[object]) -> None:
        for event in events:
            if isinstance(event, Joined):
                self.joined = True
                self.on_join()
            elif isinstance(event, Closed):
                self.closed = event
                self.on_close()
            elif isinstance(event, Received):
                self.on_message(event)

    def on_join(self) -> None: ...

    def on_close(self) -> None: ...

    def on_message(self, event: Received) -> None: ...


class Client(Party):
    """`told[stream]` is everything that came on it, `ends` the last messages by stream."""

    def __init__(self, fleet: "Fleet", name: str = "gate", instance: int = 7, realm: str = "") -> None:
        self.realm = realm
        self.told: dict[int, list[m.Message]] = {}
        self.ends: dict[int, m.Message] = {}
        self.asked: dict[int, m.Submit] = {}
        super().__init__(fleet, name, instance)

    def on_message(self, event: Received) -> None:
        self.told.setdefault(event.stream, []).append(event.message)
        if event.last:
            assert event.stream not in self.ends, "one last message a stream"
            self.ends[event.stream] = event.message

    def open(self, message: m.Message) -> int:
        stream = self.link.open(message, self.world.now_s)
        if isinstance(message, m.Submit):
            self.asked[stream] = message
        self.turn()
        return stream

    def cancel(self, stream: int) -> None:
        self.say(stream, m.Cancel())

    def result(self, stream: int) -> m.Result:
        end = self.ends[stream]
        assert isinstance(end, m.Result), end
        assert end.logits == expected(self.asked[stream]), "what was asked is what was answered"
        return end

    def status(self) -> m.Status:
        stream = self.open(m.AskStatus(passes=10))
        self.fleet.run(0.05)
        end = self.ends[stream]
        assert isinstance(end, m.Status)
        return end

    def refusal(self, stream: int) -> str:
        end = self.ends[stream]
        assert isinstance(end, m.Refused), end
        return end.code


@dataclass
class Faults:
    slow: float = 1.0
    nan: int = 0
    """Passes to answer with NaN in the first logit."""
    short: int = 0
    twice: int = 0
    oom: int = 0
    miss: int = 0
    poison: set[str] = field(default_factory=set)
    """Beginnings of request ids that kill the process that runs them."""


class Node(Party):
    role: m.Role = "node"

    def __init__(
        self, fleet: "Fleet", name: str = "ant", instance: int = 1, cost: Cost = FAST, *, model: str = "key",
        limits: Limits | None = None, bundle: bytes = BUNDLE, back: float | None = None, named: str = "",
        **offer: object,
    ) -> None:  # fmt: skip
        self.cost, self.limits, self.bundle, self.back = cost, limits or Limits(slots=4), bundle, back
        self.named = named
        """The hash that its bundle goes by, where that is a lie."""
        self.fields: dict[str, object] = {"numerics": "fp32", "alias": "tiny", "model": model, **offer}
        self.faults = Faults()
        self.hashes = True
        """False: zeros, where there are too many labels to hash."""
        self.views: dict[str, bytes] = {}
        self.scans: list[str] = []
        """The view key or (request, shard) of every scan from the beginning."""
        self.log: list[m.Work] = []
        self.declined: list[m.Declined] = []
        self.fetched, self.gives_bundles = 0, True
        self._forget()
        super().__init__(fleet, name, instance)

    def _forget(self) -> None:
        self.half: dict[tuple[str, int], bytes] = {}
        self.waiting: list[tuple[int, m.Work]] = []
        self.running: tuple[int, m.Work] | None = None
        self.leases: dict[str, int] = {}
        self.opened: dict[str, m.OpenLease] = {}
        self.prompts: set[str] = set()
        self.life = getattr(self, "life", 0) + 1

    def offer(self) -> m.Offer:
        digest = hashlib.sha256(self.bundle).hexdigest()
        return m.Offer(
            **{"bundle": self.named or hash_of(self.bundle), "bundle_bytes": len(self.bundle),
               "bundle_sha256": digest, "cost": self.cost, "limits": self.limits,
               "round_cost": RoundCost(0.002, 0.001), **self.fields},
        )  # type: ignore[arg-type]  # fmt: skip

    def on_join(self) -> None:
        self._forget()
        self.say(0, self.offer())
        self.say(0, m.NodeReport(fresh=True, gained=tuple((k, len(v) // 4) for k, v in self.views.items())))

    def on_close(self) -> None:
        self._forget()
        if self.back is not None and not self.dead:
            self.world.call_later(self.back, self.dial)

    def on_message(self, event: Received) -> None:
        message = event.message
        if isinstance(message, m.Work):
            self.log.append(message)
            self.waiting.append((event.stream, message))
            self._next()
        elif isinstance(message, m.FetchBundle):
            self.fetched += 1
            if not self.gives_bundles:
                return
            for at in range(0, len(self.bundle), 256 << 10):
                self.say(event.stream, m.BundleData(data=self.bundle[at : at + (256 << 10)]))
            digest = hashlib.sha256(self.bundle).hexdigest()
            self.say(event.stream, m.BundleEnd(found=True, size=len(self.bundle), sha256=digest))
        elif isinstance(message, m.Declined):
            self.declined.append(message)
        elif isinstance(message, m.Release):
            self.half = {key: view for key, view in self.half.items() if key[0] != message.request}
        elif isinstance(message, m.OpenLease):
            self.leases[message.request] = event.stream
            self.opened[message.request] = message
            self._begin(message.request)
        elif isinstance(message, m.Cancel):
            self._cancelled(event.stream)

    def _cancelled(self, stream: int) -> None:
        for entry in [*self.waiting]:
            if entry[0] == stream:
                self.waiting.remove(entry)
                self.say(stream, m.Failed(fence=entry[1].fence, reason="cancelled"))
        for request, at in [*self.leases.items()]:
            if at == stream:
                del self.leases[request]
                self.say(stream, m.LeaseEnded(tokens=0, finish="cancelled"))

    def _begin(self, request: str) -> None:
        """Rounds begin once the lease is open and its prompt is in, in whichever order these come."""
        if request in self.prompts and request in self.leases:
            self.prompts.discard(request)
            self._lease(self.opened.pop(request), self.leases[request], 0, self.life)

    def _lease(self, lease: m.OpenLease, stream: int, sent: int, life: int) -> None:
        """Ten tokens every 20 ms."""

        def step() -> None:
            if self.dead or life != self.life or self.leases.get(lease.request) != stream:
                return
            n = min(10, lease.max_tokens - sent)
            self.say(stream, m.Rounds(tokens=words(*range(sent, sent + n))))
            if sent + n == lease.max_tokens:
                del self.leases[lease.request]
                self.say(stream, m.LeaseEnded(tokens=sent + n, finish="length"))
            else:
                self._lease(lease, stream, sent + n, life)

        self.world.call_later(0.02, step)

    def _next(self) -> None:
        if self.running is not None or not self.waiting or self.dead:
            return
        stream, work = self.running = self.waiting.pop(0)
        self.say(stream, m.Started(fence=work.fence))
        rows = sum(len(part.branch_tokens) // 4 for part in work.parts)
        view = sum(part.view_to - part.view_from for part in work.parts)
        took = self.cost.seconds(view, rows) * self.faults.slow
        life = self.life
        if any(part.request.startswith(each) for part in work.parts for each in self.faults.poison):
            self.world.call_later(took / 2.0, self.kill)
        self.world.call_later(took, lambda: self._end(stream, work, took, life))

    def _end(self, stream: int, work: m.Work, took: float, life: int) -> None:
        if self.dead or life != self.life:
            return
        if self.asleep:
            self._unread.append(lambda: self._end(stream, work, took, life))
            return
        self.running = None
        answer = self._answer(work, took)
        self.say(stream, answer)
        if isinstance(answer, m.Done):
            for part in work.parts:
                if part.lease:
                    self.prompts.add(part.request)
                    self._begin(part.request)
        self._next()

    def _answer(self, work: m.Work, took: float) -> m.Done | m.Failed:
        faults, fence = self.faults, work.fence
        if faults.oom:
            faults.oom -= 1
            return m.Failed(fence=fence, reason="out_of_memory")
        if faults.miss:
            faults.miss -= 1
            self.views.clear()
            return m.Failed(fence=fence, reason="view_missing")
        ends: list[bytes] = []
        gained: list[tuple[str, int]] = []
        out = b""
        for part in work.parts:
            lease = self.opened.get(part.request)
            if part.of_lease and (lease is None or lease.attempt != part.attempt):
                return m.Failed(fence=fence, reason="late")
            view = self._prompt(part, lease, gained) if lease is not None and part.of_lease else self._view(part, ends)
            if view is None:
                return m.Failed(fence=fence, reason="view_missing", dropped=(part.prefix,) if part.prefix else ())
            ends.append(view)
            if part.view_key:
                self.views[part.view_key] = view
                gained.append((part.view_key, len(view) // 4))
            if part.more:
                self.half[part.request, part.shard] = view
            else:
                self.half.pop((part.request, part.shard), None)
            if self.hashes:
                out += logits(view, part.branch_lengths, part.branch_tokens, part.label_counts, part.label_ids)
            else:
                out += bytes(len(part.label_ids))
        if faults.nan and out:
            faults.nan -= 1
            out = np.float32(np.nan).tobytes() + out[4:]
        if faults.short:
            faults.short -= 1
            out = out[:-4]
        done = m.Done(fence=fence, measured_s=took, logits=out, gained=tuple(gained))
        if faults.twice:
            faults.twice -= 1
            stream = next(s for s, state in self.link._streams._states.items() if state.fence == fence)
            self.connection.write(stream, m.encode(done))
        return done

    def _prompt(self, part: m.Part, lease: m.OpenLease, gained: list[tuple[str, int]]) -> bytes | None:
        """So much of it is scanned now; its marks on the way are kept."""
        assert not part.lease or part.view_to == lease.prompt_tokens
        start = lease.prompt[: 4 * part.view_from]
        if part.prefix and self.views.get(part.prefix) != start:
            return None
        if part.view_from and not part.prefix and self.half.get((part.request, part.shard)) != start:
            return None
        if not part.view_from:
            self.scans.append(f"{part.request}/{part.shard}")
        for key, tokens in lease.marks:
            if part.view_from < tokens <= part.view_to:
                self.views[key] = lease.prompt[: 4 * tokens]
                gained.append((key, tokens))
        return lease.prompt[: 4 * part.view_to]

    def _view(self, part: m.Part, ends: list[bytes]) -> bytes | None:
        if part.parent >= 0:
            return ends[part.parent]
        if part.prefix:
            start = self.views.get(part.prefix)
        elif part.view_from:
            start = self.half.get((part.request, part.shard))
        else:
            start = b""
            self.scans.append(part.view_key or f"{part.request}/{part.shard}")
        if start is None or len(start) != 4 * part.view_from:
            return None
        return start + part.view_tokens


class Fleet:
    """`run` moves time on; `settings` are the shell's."""

    def __init__(self, settings: Settings | None = None, delay_s: float = 0.001, check: Check = by_beginning) -> None:
        self.check = check
        self.world = World()
        self.delay_s = delay_s
        self.settings = settings or Settings()
        self.lives = 0
        self.boot()

    def boot(self) -> None:
        """A router process starts; also after `crash`."""
        self.lives += 1
        bundles = BundleCache(check=self.check)
        self.shell = Shell(self.settings, self.lives, self.world.now_s, bundles)
        self.driver = Driver(self.shell, lambda: self.world.now_s, self.world.call_later)

    def crash(self) -> None:
        """The router's process is gone: links end on the other side."""
        for peer in [*self.shell.book.peers]:
            peer.connection.close(Close.LOST, "")
        self.driver._timer += 1
        self.boot()

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_s + seconds)

    def empty(self) -> None:
        """Nothing of any request is left anywhere in the router."""
        shell = self.shell
        assert not shell.clients.open
        assert len(shell.payloads) == len(shell.answers) == shell.payloads.held_bytes == 0
        assert not [*shell.payloads._owned, *shell.payloads._seen, *shell.payloads._views], "nor of a client's share"
        for budget in (shell.book.unfinished, shell.book.backlog):
            assert {*budget._noted} <= shell.book.peers, "nor of a link that is gone"
            assert budget.noted_bytes == sum(budget._noted.values())
        assert not shell.nodes.work.leases
        assert not shell.core.state.jobs
        assert not shell.tally.counts.get("faults"), "no fault was swallowed"
        c = shell.core.counters
        assert c.submitted == c.answered + c.refused + c.expired + c.failed + c.cancelled
