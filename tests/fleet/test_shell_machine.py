"""Every failure in every order, with the shell, real links and virtual nodes under virtual time.

Each request is answered once, with its own logits or a typed refusal, and nothing of it is left in the router.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.core.refusals import RefusedError
from mainspring.fleet.settings import Settings
from mainspring.wire import messages as m
from mainspring.wire.link import Rules
from support.fleet import Client, Fleet, Node, generation, submit

NAMES = ("ant", "bee", "cat")
COSTS = {"ant": Cost(0.02, 2e-5, 2e-5), "bee": Cost(0.05, 5e-5, 5e-5), "cat": Cost(0.3, 2e-4, 2e-4)}
LIMITS = Limits(pass_tokens=1200, pass_parts=6, view_tokens=4000, slots=2)
names = st.sampled_from(NAMES)


class ShellMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(Settings(rules=Rules(timing=m.Timing(idle_s=3.0)), payload_bytes=200_000))
        self.instance = 0
        self.seed = 0
        self.nodes: dict[str, Node] = {}
        self.clients: list[Client] = []
        self.start("ant")
        self.connect()

    # -------------------------------------------------------------- nodes

    @rule(name=names)
    def start(self, name: str) -> None:
        """Also in place of one that is still there: another process of the same name."""
        old = self.nodes.get(name)
        if old is not None and not old.dead and not old.asleep and old.joined:
            return
        self.instance += 1
        self.nodes[name] = Node(self.fleet, name, self.instance, COSTS[name], limits=LIMITS, back=0.4)

    @rule(name=names)
    def kill(self, name: str) -> None:
        if name in self.nodes:
            self.nodes[name].kill()

    @rule(name=names)
    def leave(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.joined and not node.asleep and not node.dead:
            node.back = None
            node.leave()

    @rule(name=names)
    def drain(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.joined and not node.asleep and not node.dead and node.closed is None:
            node.say(0, m.Drain())

    @rule(name=names)
    def stop_and_go(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or node.dead:
            return
        if node.asleep:
            node.wake()
        else:
            node.asleep = True

    @rule(name=names)
    def cut_or_heal(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None:
            if node.network.up:
                node.network.cut()
            else:
                node.network.heal()

    @rule(name=names, fault=st.sampled_from(["nan", "short", "twice", "oom", "miss"]))
    def fault(self, name: str, fault: str) -> None:
        if name in self.nodes:
            setattr(self.nodes[name].faults, fault, 1)

    @rule(name=names, factor=st.sampled_from([0.5, 1.0, 10.0]))
    def slow(self, name: str, factor: float) -> None:
        if name in self.nodes:
            self.nodes[name].faults.slow = factor

    @rule(name=names)
    def forget_views(self, name: str) -> None:
        if name in self.nodes:
            self.nodes[name].views.clear()

    # -------------------------------------------------------------- clients

    @rule()
    def connect(self) -> None:
        if len(self.clients) < 3:
            self.instance += 1
            self.clients.append(Client(self.fleet, "gate", self.instance))
            self.wait(0.05)

    def live(self) -> Client | None:
        return next((each for each in reversed(self.clients) if each.joined and each.closed is None), None)

    @rule(
        view=st.sampled_from([50, 400, 1500, 3000]),
        branches=st.sampled_from([1, 5, 60]),
        slo=st.sampled_from(["interactive", "standard", "batch", "batch"]),
        key=st.sampled_from(["", "hot"]),
        deadline=st.sampled_from([None, None, 0.5]),
    )
    def score(self, view: int, branches: int, slo: str, key: str, deadline: float | None) -> None:
        client = self.live()
        if client is None:
            return
        self.seed += 1
        seed, name = (view, f"{key}{view}") if key else (10_000 + self.seed, "")
        client.open(submit(view, branches, seed=seed, slo=slo, view_key=name, deadline_s=deadline))

    @rule(tokens=st.sampled_from([5, 90]))
    def generate(self, tokens: int) -> None:
        client = self.live()
        if client is not None:
            client.open(generation(60, tokens))

    @rule(which=st.integers(0, 30))
    def cancel(self, which: int) -> None:
        client = self.live()
        if client is not None:
            waiting = [stream for stream in client.asked if stream not in client.ends]
            if waiting:
                client.cancel(waiting[which % len(waiting)])

    @rule()
    def hang_up(self) -> None:
        client = self.live()
        if client is not None and len(self.clients) > 1:
            client.leave()

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.1, 0.5, 2.0, 7.0]))
    def wait(self, seconds: float) -> None:
        self.fleet.run(seconds)

    # -------------------------------------------------------------- what holds

    @invariant()
    def what_is_open_is_held_and_bounded(self) -> None:
        shell = self.fleet.shell
        assert set(shell.core.state.jobs) <= set(shell.clients.open)
        assert len(shell.payloads) == len(shell.answers) == len(shell.clients.open)
        assert shell.payloads.held_bytes <= shell.payloads.cap_bytes
        assert not shell.tally.counts.get("faults"), "a handler failed"

    @invariant()
    def answers_are_right(self) -> None:
        for client in self.clients:
            for stream, end in client.ends.items():
                if isinstance(end, m.Result):
                    client.result(stream)
                elif isinstance(end, m.LeaseEnded):
                    sent = b"".join(each.tokens for each in client.told[stream] if isinstance(each, m.Rounds))
                    assert m.u32(sent).tolist() == list(range(end.tokens)), "streamed once, without a gap"

    def teardown(self) -> None:
        """The world heals; then everything that was asked has had its one answer."""
        for node in self.nodes.values():
            node.faults.slow, node.faults.twice = 1.0, 0
            if not node.network.up:
                node.network.heal()
            if node.asleep and not node.dead:
                node.wake()
        self.fleet.run(10.0)
        self.instance += 1
        fresh = Node(self.fleet, "dog", self.instance, Cost(0.005, 1e-6, 1e-6), limits=LIMITS)
        self.fleet.run(400.0)
        assert fresh.joined
        for client in self.clients:
            for stream in client.asked:
                assert stream in client.ends or client.closed is not None
                end = client.ends.get(stream)
                if isinstance(end, m.Refused):
                    assert end.code in CODES, end
        self.answers_are_right()
        self.fleet.empty()


CODES = {"cancelled", "router_full", "bad_shape"} | {each.code for each in RefusedError.__subclasses__()} | {
    "unknown_model",
}  # fmt: skip

ShellMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestShellMachine = ShellMachine.TestCase
