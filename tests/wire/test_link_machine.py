"""Two links and all that a transport may do to them: a state machine under virtual time.

A transport keeps each stream's order and may delay, cut into pieces and let streams overtake each other; it may fall
silent and come back, be dropped, and either process may be stopped for a while. Sound ends then never accuse each
other: passes come in order and once, every exchange has one last message or the link is over, and the link is over only
for silence, a drop or a goodbye.
"""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainspring.wire import messages as m
from mainspring.wire.errors import Close, LimitError
from mainspring.wire.link import Closed, Received, Rules
from support.links import Rig, offer, work

IDLE_S = m.Timing().idle_s
STREAMS = 6
BLAMELESS = {Close.IDLE, Close.LOST, Close.GOODBYE, Close.DRAINED}


class TwoLinks(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 30), longest_s=st.sampled_from([0.0, 0.01, 0.4]), pieces=st.integers(0, 90))
    def join(self, seed: int, longest_s: float, pieces: int) -> None:
        random = Random(seed)
        self.rig = Rig(delay_s=0.001, rules=Rules(streams=STREAMS)).join()
        self.node, self.router = self.rig.left, self.rig.right
        self.rig.run(0.5)
        self.rig.network.delay_s = lambda _stream: random.random() * longest_s
        self.rig.network.pieces = pieces
        self.passes = 0
        self.opened: dict[int, str] = {}
        self.cancelled: set[int] = set()
        self.answered: set[int] = set()
        self.silent_s = 0.0
        self.excuse = False

    # -------------------------------------------------------------- what the shells do

    def alive(self) -> bool:
        return self.node.closed is None and self.router.closed is None

    def router_awake(self) -> bool:
        return self.alive() and not self.router.asleep

    def node_awake(self) -> bool:
        return self.alive() and not self.node.asleep

    def held(self, kind: type) -> list[Received]:
        return [each for each in self.node.got(kind) if each.stream not in self.answered]

    def router_opens(self, message: m.Message, what: str) -> None:
        try:
            self.opened[self.router.open(message)] = what
        except LimitError:
            assert self.router.link.open_streams >= STREAMS

    @precondition(router_awake)
    @rule()
    def send_a_pass(self) -> None:
        before = len(self.opened)
        self.router_opens(work(self.passes + 1), "work")
        self.passes += len(self.opened) - before

    @precondition(router_awake)
    @rule()
    def open_a_lease(self) -> None:
        lease = m.OpenLease(request="r", epoch=3, prompt_tokens=10, max_tokens=5, prompt=bytes(40))
        self.router_opens(lease, "lease")

    @precondition(router_awake)
    @rule()
    def fetch_a_bundle(self) -> None:
        self.router_opens(m.FetchBundle(bundle="b"), "bundle")

    @precondition(router_awake)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        streams = sorted(stream for stream, what in self.opened.items() if what != "bundle")
        if streams:
            stream = data.draw(st.sampled_from(streams))
            self.cancelled.add(stream)
            self.router.send(stream, m.Cancel(reason="enough"))

    @precondition(node_awake)
    @rule(data=st.data(), well=st.booleans(), started=st.booleans())
    def answer_a_pass(self, data: st.DataObject, well: bool, started: bool) -> None:
        if not (held := self.held(m.Work)):
            return
        got = data.draw(st.sampled_from(held))
        assert isinstance(got.message, m.Work)
        if started:
            self.node.send(got.stream, m.Started(fence=got.message.fence))
        last = (
            m.Done(fence=got.message.fence, measured_s=0.1)
            if well
            else m.Failed(fence=got.message.fence, reason="cancelled")
        )
        self.node.send(got.stream, last)
        self.answered.add(got.stream)

    @precondition(node_awake)
    @rule(data=st.data(), over=st.booleans())
    def go_on_with_a_lease(self, data: st.DataObject, over: bool) -> None:
        if held := self.held(m.OpenLease):
            got = data.draw(st.sampled_from(held))
            self.node.send(
                got.stream, m.LeaseEnded(tokens=1, finish="length") if over else m.Rounds(tokens=b"\1\0\0\0")
            )
            self.answered |= {got.stream} if over else set()

    @precondition(node_awake)
    @rule(count=st.integers(0, 3))
    def serve_a_bundle(self, count: int) -> None:
        for got in self.held(m.FetchBundle)[:1]:
            for _ in range(count):
                self.node.send(got.stream, m.BundleData(data=b"x" * 500))
            self.node.send(got.stream, m.BundleEnd(found=count > 0, size=500 * count))
            self.answered.add(got.stream)

    @precondition(node_awake)
    @rule(first=st.booleans())
    def report(self, first: bool) -> None:
        self.node.send(0, offer() if first else m.NodeReport(waiting=1))

    @precondition(router_awake)
    @rule()
    def release(self) -> None:
        self.router.send(0, m.Release(request="r"))

    # -------------------------------------------------------------- what the world does

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.3, 1.9, 5.0]))
    def time_passes(self, seconds: float) -> None:
        troubled = not self.rig.network.up or self.node.asleep or self.router.asleep
        self.silent_s += seconds if troubled else 0.0
        self.excuse = self.excuse or self.silent_s > IDLE_S / 3
        self.rig.run(seconds)

    @rule()
    def cut(self) -> None:
        self.rig.network.cut()

    @rule()
    def heal(self) -> None:
        self.rig.network.heal()

    @rule(router=st.booleans())
    def stop_a_process(self, router: bool) -> None:
        (self.router if router else self.node).asleep = True

    @rule()
    def processes_go_on(self) -> None:
        for end in (self.node, self.router):
            if end.asleep:
                end.wake()

    @precondition(alive)
    @rule(chance=st.integers(0, 5))
    def drop(self, chance: int) -> None:
        if not chance:
            self.excuse = True
            self.rig.network.drop()

    @precondition(alive)
    @rule(chance=st.integers(0, 5), router=st.booleans())
    def say_goodbye(self, chance: int, router: bool) -> None:
        end = self.router if router else self.node
        if not chance and not end.asleep:
            self.excuse = True
            end.close(Close.GOODBYE)

    # -------------------------------------------------------------- what must hold

    @invariant()
    def passes_come_in_order_and_once(self) -> None:
        ids = [got.message.fence.pass_id for got in self.node.got(m.Work) if isinstance(got.message, m.Work)]
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) <= self.passes

    @invariant()
    def every_exchange_ends_at_most_once(self) -> None:
        ends = [e.stream for e in self.router.heard if isinstance(e, Received) and e.last]
        assert len(ends) == len(set(ends))
        assert set(ends) <= self.answered

    @invariant()
    def the_end_is_the_last_event_and_nobody_is_accused(self) -> None:
        for end in (self.node, self.router):
            closed = [at for at, event in enumerate(end.heard) if isinstance(event, Closed)]
            assert closed in ([], [len(end.heard) - 1])
            if end.closed is not None:
                assert end.closed.close in BLAMELESS, end.closed
                assert self.excuse, end.closed
                assert end.link.next_deadline() is None

    @invariant()
    def memory_is_bounded(self) -> None:
        for end in (self.node, self.router):
            assert end.link.open_streams <= STREAMS + 1
            assert end.link._buffered <= 48 << 20
            assert len(end.link._early) <= STREAMS

    @invariant()
    def a_cancel_is_heard_only_where_it_was_sent(self) -> None:
        assert {got.stream for got in self.node.got(m.Cancel)} <= self.cancelled

    def teardown(self) -> None:
        """The world heals; whoever still has a link answers everything, and everything arrives."""
        if not hasattr(self, "rig"):
            return
        self.rig.network.heal()
        self.processes_go_on()
        for _ in range(40):
            self.rig.run(0.5)
            if not self.alive():
                self.rig.run(2 * IDLE_S)
                assert self.node.closed is not None
                assert self.router.closed is not None
                return
            for got in self.held(m.Work):
                assert isinstance(got.message, m.Work)
                self.node.send(got.stream, m.Done(fence=got.message.fence, measured_s=0.1))
                self.answered.add(got.stream)
            for got in self.held(m.OpenLease):
                self.node.send(got.stream, m.LeaseEnded(tokens=1, finish="length"))
                self.answered.add(got.stream)
            for got in self.held(m.FetchBundle):
                self.node.send(got.stream, m.BundleEnd(found=False))
                self.answered.add(got.stream)
        ends = {e.stream for e in self.router.heard if isinstance(e, Received) and e.last}
        assert ends == set(self.opened)
        assert self.node.link.open_streams == self.router.link.open_streams == 0
        for end in (self.node, self.router):
            assert end.link._buffered == end.link._control.buffered  # a ping may be on its way


TwoLinks.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestTwoLinks = TwoLinks.TestCase
