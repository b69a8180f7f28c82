"""One run: a policy, a fleet, a workload, a seed.

The policy is anything with `handle(event, now_s)` and `next_deadline()`: the real router or a baseline. The simulation
plays shell (carries out actions, keeps the timer) and clients (submits, thinks, retries).
"""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Protocol

from msgspec import Struct

from mainspring.core.actions import Action, Admit, Answer, CloseLease, DropPass, OpenLease, Refuse, SendPass
from mainspring.core.events import Event, LeaseStarted, Submit, Timer
from mainspring.core.nouns import NodeSpec, Request, SloClass
from mainspring.core.refusals import CondemnedError, ExpiredError, LeaseLostError, WorkFailedError
from mainspring.simulate.record import Outcome, Summary, summarise
from mainspring.simulate.vnode import Device, Truth, VirtualNode
from mainspring.simulate.world import World


class Policy(Protocol):
    def handle(self, event: Event, now_s: float) -> list[Action]: ...

    def next_deadline(self) -> float | None: ...


class NodePlan(Struct, frozen=True):
    """A node of the fleet: what it declares, what it is, when it joins; `faults` are (time, method, argument)."""

    spec: NodeSpec
    truth: Truth
    joins_s: float = 0.0
    faults: tuple[tuple[float, str, float], ...] = ()


class Workload(Protocol):
    """Arrivals in order of time; `closed` may add more when a request of its ends (closed loops)."""

    def arrivals(self) -> Iterator[tuple[float, Request]]: ...

    def closed(self, outcome: Outcome, now_s: float) -> Iterable[tuple[float, Request]]: ...


class Simulation:
    def __init__(
        self,
        policy: Policy,
        nodes: Iterable[NodePlan],
        workload: Workload,
        classes: Iterable[SloClass],
        seed: int = 0,
        observe: Callable[[Event, list[Action], float], None] | None = None,
    ) -> None:
        self.world = World()
        self.policy, self.workload, self.observe = policy, workload, observe
        self.classes = {slo.name: slo for slo in classes}
        self.outcomes: dict[str, Outcome] = {}
        self.nodes: dict[str, VirtualNode] = {}
        self.log: list[tuple[float, str, str]] | None = None
        self._timer_s: float | None = None
        self._arrivals = workload.arrivals()
        devices: dict[str, Device] = {}
        for index, plan in enumerate(nodes):
            key = plan.spec.device_key
            device = devices.setdefault(key, Device()) if key else None
            node = VirtualNode(self.world, self, plan.spec, plan.truth, Random(seed * 7919 + index), device)
            self.nodes[plan.spec.id] = node
            self.world.at(plan.joins_s, node.join)
            for when, method, argument in plan.faults:
                self.world.at(when, self._fault, node, method, argument)

    def _fault(self, node: VirtualNode, method: str, argument: float) -> None:
        if method == "rejoin":
            node.join(int(argument))
        elif method == "slow":
            node.set_slow(argument)
        else:
            getattr(node, method)()

    def run(self, until_s: float, progress: Callable[[float], None] | None = None, *, tail_s: float = 0.0) -> Summary:
        """Arrivals go on for `tail_s` after `until_s`, but only those before it count: else whoever hoards the longest
        line gains from the silence after it. The run ends when every admitted request is settled or an hour later."""
        self._until_s = until_s + tail_s
        self.world.at(0.01, self._next_arrival)
        limit, shown = until_s + 3600.0, 0.0
        while True:
            when = self.world.peek_s()
            if when is None or when > limit:
                break
            self.world.step()
            if progress is not None and when - shown > until_s / 200.0:
                shown = when
                progress(min(1.0, when / until_s))
        return summarise([o for o in self.outcomes.values() if o.arrival_s < until_s], until_s)

    def _next_arrival(self) -> None:
        for when, request in self._arrivals:
            if when >= self._until_s:
                return
            self.world.at(when, self._submit, request)
            self.world.at(when, self._next_arrival)
            return

    def _submit(self, request: Request) -> None:
        self.outcomes[request.id] = Outcome(request, self.classes[request.slo], self.world.now_s)
        self.deliver(Submit(request))

    def deliver(self, event: Event) -> None:
        now = self.world.now_s
        if isinstance(event, LeaseStarted):
            outcome = self.outcomes.get(event.request_id)
            if outcome is not None and outcome.first_s is None:
                outcome.first_s = now
        actions = self.policy.handle(event, now)
        if self.observe is not None:
            self.observe(event, actions, now)
        for action in actions:
            self._carry_out(action, now)
        self._keep_timer()

    def _carry_out(self, action: Action, now_s: float) -> None:
        if self.log is not None:
            self.log.append((now_s, type(action).__name__, repr(action)))
        if isinstance(action, SendPass):
            self._to_node(action.work.node_id, action)
        elif isinstance(action, OpenLease):
            self._to_node(action.lease.node_id, action)
        elif isinstance(action, DropPass | CloseLease):
            self._to_node(action.node_id, action)
        elif isinstance(action, Admit):
            self.outcomes[action.request_id].admitted = True
        elif isinstance(action, Answer):
            self._close(action.request_id, "answered", now_s)
        elif isinstance(action, Refuse):
            outcome = self.outcomes[action.request_id]
            outcome.code = action.error.code
            outcome.retry_after_s = getattr(action.error, "retry_after_s", None)
            missed = isinstance(action.error, ExpiredError)
            failed = isinstance(action.error, CondemnedError | WorkFailedError | LeaseLostError)
            self._close(action.request_id, "missed" if missed else "failed" if failed else "refused", now_s)

    def _to_node(self, node_id: str, action: SendPass | OpenLease | DropPass | CloseLease) -> None:
        node = self.nodes.get(node_id)
        if node is not None:
            node.receive(action)

    def _close(self, request_id: str, state: str, now_s: float) -> None:
        outcome = self.outcomes[request_id]
        outcome.state, outcome.done_s = state, now_s
        for when, request in self.workload.closed(outcome, now_s):
            if when < self._until_s:
                self.world.at(when, self._submit, request)

    def _keep_timer(self) -> None:
        when = self.policy.next_deadline()
        if when is not None and (self._timer_s is None or when < self._timer_s):
            self._timer_s = when
            self.world.at(when, self._tick, when)

    def _tick(self, when_s: float) -> None:
        if self._timer_s != when_s:
            return
        self._timer_s = None
        self.deliver(Timer())
