"""Every event in every order, with invariants after each step.

The machine plays shell and nodes: it starts, finishes, fails, cancels, joins, crashes, drains and waits at will. Times
are honest unless a rule says otherwise, so admitted top-class work must also keep its target when nothing went wrong.
"""

from math import isfinite

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mainspring.core.actions import Action, Admit, Answer, CloseLease, DropPass, OpenLease, Refuse, RejectNode, SendPass
from mainspring.core.admission import stretched
from mainspring.core.events import (
    Cancel,
    Event,
    LeaseEnded,
    LeaseProgress,
    LeaseStarted,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Submit,
    Timer,
    WorkDone,
    WorkFailed,
    WorkStarted,
)
from mainspring.core.nouns import Limits, NodeSpec, Pass, Request
from mainspring.core.router import Router
from router_rig import FAST, ROUND, SLOW, generate, node, score

LIMITS = Limits(pass_tokens=8000, pass_parts=12, view_tokens=16_000, slots=2, context_tokens=60_000)


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router()
        self.now = 0.0
        self.serial = 0
        self.specs: dict[str, NodeSpec] = {}
        self.held: dict[str, list[Pass]] = {}
        self.started: set[int] = set()
        self.leases: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.state: dict[str, str] = {}
        self.requests: dict[str, Request] = {}

    def tell(self, event: Event) -> None:
        for action in self.router.handle(event, self.now):
            self.take(action)

    def take(self, action: Action) -> None:
        if isinstance(action, SendPass):
            self.check_pass(action.work)
            self.held[action.work.node_id].append(action.work)
        elif isinstance(action, Answer | Refuse):
            assert self.state[action.request_id] in ("open", "new"), "answered exactly once, never after a cancel"
            self.state[action.request_id] = "closed"
            if isinstance(action, Answer) and not self.requests[action.request_id].max_tokens:
                assert action.parts
            retry = getattr(getattr(action, "error", None), "retry_after_s", None)
            assert retry is None or 0.0 < retry <= 60.0
        elif isinstance(action, Admit):
            assert self.state[action.request_id] == "new"
            assert action.predicted_s > 0.0
            assert isfinite(action.predicted_s) or self.requests[action.request_id].slo == "batch"
            self.state[action.request_id] = "open"
        elif isinstance(action, DropPass):
            self.held[action.node_id] = [w for w in self.held[action.node_id] if w.id != action.pass_id]
        elif isinstance(action, OpenLease):
            self.leases[action.lease.request_id] = action.lease.node_id
            self.attempts[action.lease.request_id] = action.lease.attempt
        elif isinstance(action, CloseLease):
            self.leases.pop(action.request_id, None)
        else:
            assert not isinstance(action, RejectNode)

    def check_pass(self, work: Pass) -> None:
        spec = self.specs[work.node_id]
        assert work.epoch == spec.epoch
        assert 1 <= len(work.parts) <= spec.limits.pass_parts
        assert work.tokens <= spec.limits.pass_tokens
        assert work.predicted_s > 0.0
        assert work.start_within_s >= 0.0
        assert len({(part.request_id, part.shard) for part in work.parts}) == len(work.parts)
        for part in work.parts:
            assert self.state[part.request_id] == "open"
            assert 0 <= part.view_from <= part.view_to <= self.requests[part.request_id].view_tokens
            assert part.branch_from <= part.branch_to
            assert part.scan + part.rows > 0 or part.opens_lease
        if len(work.parts) > 1:
            top = max(self.priority(part.request_id) for part in work.parts)
            own = self.router.state.nodes[work.node_id]
            alone = own.coef[0] + sum(
                own.coef[1] * p.scan + own.coef[2] * p.rows for p in work.parts if self.priority(p.request_id) == top
            )
            everyone = own.coef[0] + sum(own.coef[1] * p.scan + own.coef[2] * p.rows for p in work.parts)
            if abs(everyone - work.predicted_s) < 1e-6:  # else the cost was learnt anew since
                assert work.predicted_s <= alone + 4.0 * own.coef[0] + 1e-9, "low costs high four fixed costs at most"

    def priority(self, request_id: str) -> int:
        return self.router.state.classes[self.requests[request_id].slo].priority

    @rule(
        slo=st.sampled_from(["interactive", "standard", "batch"]),
        view=st.integers(1, 18_000),
        branches=st.integers(1, 60),
        key=st.sampled_from(["", "hot", "warm"]),
        deadline=st.sampled_from([None, None, None, 0.3, 2.0, -1.0]),
        model=st.sampled_from(["m", "m", "m", "q"]),
    )
    def submit(self, slo: str, view: int, branches: int, key: str, deadline: float | None, model: str) -> None:
        self.serial += 1
        view = {"hot": 3000, "warm": 7000}.get(key, view)
        request = score(f"s{self.serial}", slo, view, branches, view_key=key, deadline_s=deadline, model=model)
        self.enter(request)

    @rule(slo=st.sampled_from(["interactive", "standard", "batch"]), prompt=st.integers(1, 9000))
    def generate(self, slo: str, prompt: int) -> None:
        self.serial += 1
        self.enter(generate(f"g{self.serial}", slo, prompt, 50, view_key=f"p{self.serial}"))

    def enter(self, request: Request) -> None:
        self.requests[request.id] = request
        self.state[request.id] = "new"
        self.tell(Submit(request))
        assert self.state[request.id] != "new", "admitted or refused at once"

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        live = [name for name, state in self.state.items() if state == "open"]
        if live:
            name = data.draw(st.sampled_from(live))
            self.tell(Cancel(name))  # a timer that was due may refuse it first
            if self.state[name] == "open":
                self.state[name] = "cancelled"

    @rule(name=st.sampled_from(["a", "b", "c", "d"]), slow=st.booleans(), shared=st.booleans(), numerics=st.booleans())
    def join(self, name: str, slow: bool, shared: bool, numerics: bool) -> None:
        old = self.specs.get(name)
        spec = node(
            name,
            SLOW if slow else FAST,
            epoch=0 if old is None else old.epoch + 1,
            limits=LIMITS,
            round_cost=ROUND,
            device_key="gpu" if shared else "",
            busy_neighbour=1.5,
            numerics="fp8" if numerics else "bf16",
        )
        self.specs[name] = spec
        self.lose(name)
        self.tell(NodeJoined(spec))

    def lose(self, name: str) -> None:
        self.held[name] = []
        self.leases = {request: holder for request, holder in self.leases.items() if holder != name}

    @rule(data=st.data(), crashed=st.booleans())
    def leave(self, data: st.DataObject, crashed: bool) -> None:
        if self.router.state.nodes:
            name = data.draw(st.sampled_from(sorted(self.router.state.nodes)))
            self.lose(name)
            self.tell(NodeLeft(name, self.specs[name].epoch, crashed))

    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        if len(self.router.state.nodes) > 2:
            name = data.draw(st.sampled_from(sorted(self.router.state.nodes)))
            self.tell(NodeDraining(name, self.specs[name].epoch))

    def busy(self) -> list[str]:
        return [name for name, passes in sorted(self.held.items()) if passes]

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        work = self.held[data.draw(st.sampled_from(self.busy()))][0]
        if work.id not in self.started:
            self.started.add(work.id)
            self.tell(WorkStarted(work.node_id, work.epoch, work.id))

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), factor=st.sampled_from([1.0, 1.0, 1.0, 0.5, 3.0]))
    def finish(self, data: st.DataObject, factor: float) -> None:
        work = self.held[data.draw(st.sampled_from(self.busy()))].pop(0)
        self.now += work.predicted_s * factor
        gained = tuple((part.view_key, part.view_to) for part in work.parts if part.view_key)
        self.tell(WorkDone(work.node_id, work.epoch, work.id, work.predicted_s * factor, gained))

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), late=st.booleans())
    def fail(self, data: st.DataObject, late: bool) -> None:
        work = self.held[data.draw(st.sampled_from(self.busy()))].pop(0)
        failed = data.draw(st.sets(st.integers(0, len(work.parts) - 1))) if not late else set()
        self.tell(WorkFailed(work.node_id, work.epoch, work.id, late, tuple(sorted(failed))))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), step=st.sampled_from(["start", "progress", "end", "fail"]))
    def stream(self, data: st.DataObject, step: str) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.leases)))
        name = self.leases[request_id]
        epoch, attempt = self.specs[name].epoch, self.attempts[request_id]
        if step == "start":
            self.tell(LeaseStarted(name, epoch, request_id, attempt))
        elif step == "progress":
            self.tell(LeaseProgress(name, epoch, request_id, 10, attempt))
        else:
            self.tell(LeaseEnded(name, epoch, request_id, 20, step == "fail", attempt=attempt))
            self.leases.pop(request_id, None)

    @rule(wait=st.sampled_from([0.0, 0.001, 0.02, 0.3, 2.0, 20.0]))
    def wait(self, wait: float) -> None:
        until = self.now + wait
        while (when := self.router.next_deadline()) is not None and when <= until:
            self.now = max(self.now, when)
            self.tell(Timer())
        self.now = until

    @invariant()
    def counters_are_conserved(self) -> None:
        c, state = self.router.counters, self.router.state
        assert c.submitted == c.answered + c.refused + c.expired + c.failed + c.cancelled + len(state.jobs)
        assert len(state.jobs) == sum(value == "open" for value in self.state.values())

    @invariant()
    def every_open_shard_is_in_one_place(self) -> None:
        state = self.router.state
        for job in state.jobs.values():
            for shard in job.shards:
                pinned = sum(shard in node.pinned for node in state.nodes.values())
                waits = int(shard.queued) + pinned
                where = (job.request.id, shard.index)
                assert all(shard in state.passes[pass_id][1].members for pass_id in shard.flight), where
                if shard.done:
                    assert waits == 0, where
                    assert not shard.flight, where
                elif shard.flight:
                    assert waits == int(pinned), "a chunked shard's rest waits at the same node"
                else:
                    assert waits == 1, where

    @invariant()
    def every_pass_is_with_a_node_that_lives(self) -> None:
        state = self.router.state
        for pass_id, (holder, held) in state.passes.items():
            assert state.nodes.get(holder.id) is holder
            assert held in holder.held
            assert held.pass_id == pass_id
        assert len(state.passes) == sum(len(holder.held) for holder in state.nodes.values())
        for holder in state.nodes.values():
            assert all(state.nodes.get(peer.id) is peer for peer in holder.peers)
            for request_id, lease in holder.leases.items():
                assert lease.shard.job.lease_node == holder.id
                assert not lease.shard.job.closed
                assert request_id in state.jobs

    @invariant()
    def sums_and_indices_agree(self) -> None:
        for model in self.router.state.models.values():
            waiting = 0
            for queue in model.queues.values():
                shards = list(queue.scan())
                assert queue.total[0] == len(shards)
                assert queue.total[1] == sum(shard.work[1] for shard in shards)
                assert [s.key for s in shards] == sorted(s.key for s in shards)
                waiting += sum(bool(shard.job.request.view_key) for shard in shards)
            assert waiting == sum(len(shards) for shards in model.waiting.values())
            for key, holders in model.holders.items():
                assert holders
                assert all(key in node.keys or key in node.pending for node in holders.values())

    @invariant()
    def forecasts_are_not_negative(self) -> None:
        for node_state in self.router.state.nodes.values():
            assert node_state.free_s(self.now) >= self.now
            assert node_state.pinned_s >= 0.0
            assert len(node_state.held) <= 2

    @invariant()
    def an_idle_node_idles_only_by_the_rule(self) -> None:
        """Idle beside a queue: only if draining, late, unsuited to everything waiting, or others finish that sooner."""
        for model in self.router.state.models.values():
            usable = [n for n in model.usable if not n.late]
            if len(usable) == 1 and not usable[0].held and not usable[0].pinned:
                for queue in model.queues.values():
                    for shard in queue.scan():
                        request = shard.job.request
                        if request.max_tokens or not usable[0].runs(shard):
                            continue
                        c0, c1, c2, _ = usable[0].coef
                        own = c0 + c1 * request.view_tokens + c2 * shard.rows
                        if own > usable[0].above[shard.job.slo.priority]:  # not begun where its chunks may end late
                            own = stretched(usable[0], shard.job, own) * usable[0].fit.sure_ratio
                        assert self.now + own + 2 * usable[0].net_s > shard.job.due_s, "nobody else can run it"

    def teardown(self) -> None:
        """Nothing is left for ever: with every node at work and a fresh one beside them, all that is open ends."""
        self.join("z", slow=False, shared=False, numerics=False)
        for _ in range(3000):
            if not self.router.state.jobs:
                break
            busy = self.busy()
            for name in busy:
                if self.held[name]:
                    work = self.held[name].pop(0)
                    self.now += work.predicted_s / len(busy)
                    self.tell(WorkDone(work.node_id, work.epoch, work.id, work.predicted_s))
            for request_id, name in sorted(self.leases.items()):
                self.leases.pop(request_id, None)
                attempt = self.attempts[request_id]
                self.tell(LeaseEnded(name, self.specs[name].epoch, request_id, 20, attempt=attempt))
            when = self.router.next_deadline()
            if not busy and when is not None:
                self.now = max(self.now, when)
                self.tell(Timer())
        left = {
            name: [(s.queued, s.pin, s.flight, s.done) for s in j.shards] for name, j in self.router.state.jobs.items()
        }
        assert not left
        self.counters_are_conserved()
        assert not any(model.waiting or model.prompts for model in self.router.state.models.values())


RouterMachine.TestCase.settings = settings(
    max_examples=400,
    stateful_step_count=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestRouterMachine = RouterMachine.TestCase
