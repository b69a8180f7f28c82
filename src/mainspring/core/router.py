"""The router: one page from event to action.

    router = Router()
    actions = router.handle(Submit(request), now_s)
    router.next_deadline()    # when to call handle(Timer(), now_s) if nothing happens before

No clock, no sockets, no randomness: equal events give equal actions. Time is float seconds on one monotone axis; a step
back, or to no time at all, is read as no step and counted. Bad input ends in `Refuse` or `RejectNode`, never
in an exception.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mainspring.core import leases, recovery
from mainspring.core.actions import Action, Admit, Refuse, RejectNode
from mainspring.core.admission import assess
from mainspring.core.dispatch import feed, insist, offer
from mainspring.core.events import (
    Cancel,
    Event,
    LeaseEnded,
    LeaseProgress,
    LeaseStarted,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeRefined,
    Submit,
    Timer,
    WorkDone,
    WorkFailed,
    WorkStarted,
)
from mainspring.core.jobs import FOREVER, Held, Job
from mainspring.core.nodestate import LeaseState, NodeState
from mainspring.core.nouns import DEFAULT_CLASSES, SloClass
from mainspring.core.refine import refine
from mainspring.core.refusals import BadNodeError, BadShapeError
from mainspring.core.results import settle
from mainspring.core.state import Counters, State
from mainspring.errors import MainspringError


class Router:
    def __init__(self, classes: Iterable[SloClass] = DEFAULT_CLASSES) -> None:
        """Raises `BadShapeError` for a class without a usable target: better no router than one that fails later."""
        by_name = {slo.name: slo for slo in classes}
        for slo in by_name.values():
            slo.check()
        self.state = State(by_name)
        self._handlers: dict[type, Callable[[Any, float], list[Action]]] = {
            Submit: self._submit,
            Cancel: self._cancel,
            NodeJoined: self._joined,
            NodeLeft: self._left,
            NodeDraining: self._draining,
            NodeRefined: self._refined,
            WorkStarted: self._started,
            WorkDone: self._done,
            WorkFailed: self._failed,
            LeaseStarted: self._lease,
            LeaseProgress: self._lease,
            LeaseEnded: self._lease,
            Timer: self._timer,
        }

    @property
    def counters(self) -> Counters:
        return self.state.counters

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Everything to do about one event; timers that are due run first."""
        state = self.state
        if not state.now_s <= now_s < FOREVER:  # also NaN; nothing would ever happen after the end of time
            state.counters.clock_steps += 1
            now_s = state.now_s
        state.now_s = now_s
        actions: list[Action] = []
        if state.timers and state.timers[0][0] <= now_s:
            state.behind_s = max(now_s - state.timers[0][0], state.behind_s / 2.0)
            actions = self._timer(event, now_s)
        if type(event) is not Timer:
            actions += self._handlers[type(event)](event, now_s)
        for model in state.models.values():
            if model.hungry:
                actions += insist(state, model, now_s)
        state.drop_idle_timers()
        return actions

    def next_deadline(self) -> float | None:
        timers = self.state.timers
        return timers[0][0] if timers else None

    def _submit(self, event: Submit, now_s: float) -> list[Action]:
        state, request = self.state, event.request
        if request.id in state.jobs:
            state.counters.rejected += 1
            return []
        state.counters.submitted += 1
        try:
            request.check()
            if request.slo not in state.classes:
                raise BadShapeError("no such class", param="slo")
            job = Job(request, state.classes[request.slo], now_s)
            finish = assess(state, job, now_s)
        except MainspringError as error:
            state.counters.refused += 1
            # Without its traceback, whose frames hold the list that it goes into: a ring that only the collector ends.
            return [Refuse(request.id, error.with_traceback(None))]
        state.jobs[request.id] = job
        for shard in job.shards:
            state.enqueue(shard)
        if job.due_s < FOREVER:
            state.at(now_s + (job.due_s - now_s) / 2.0, "expiry", job)  # re-armed for the exact moment then
        return [Admit(request.id, finish - now_s), *feed(state, state.models[request.model], now_s)]

    def _cancel(self, event: Cancel, _now_s: float) -> list[Action]:
        job = self.state.jobs.get(event.request_id)
        if job is None:
            self.state.counters.stale += 1
            return []
        self.state.counters.cancelled += 1
        return recovery.close(self.state, job)

    def _joined(self, event: NodeJoined, now_s: float) -> list[Action]:
        state, spec = self.state, event.node
        actions: list[Action] = []
        try:
            spec.check()
            old = state.nodes.get(spec.id)
            if old is not None and spec.epoch <= old.epoch:
                raise BadNodeError("this life of the node is over", param="epoch")
            node = NodeState(spec)
        except MainspringError as error:
            state.counters.rejected += 1
            return [RejectNode(spec.id, error.with_traceback(None))]
        if old is not None:  # a new life before the end of the old one was noticed: it died of something
            actions += recovery.on_left(state, old, crashed=True)
        state.add_node(node)
        actions += offer(state, node, now_s)
        return actions if old is None else actions + feed(state, state.models[old.model], now_s)

    def _left(self, event: NodeLeft, now_s: float) -> list[Action]:
        node = self._node(event.node_id, event.epoch)
        if node is None:
            return []
        actions = recovery.on_left(self.state, node, event.crashed)
        return actions + feed(self.state, self.state.models[node.model], now_s)

    def _draining(self, event: NodeDraining, now_s: float) -> list[Action]:
        node = self._node(event.node_id, event.epoch)
        if node is None:
            return []
        node.draining = True
        self.state.models[node.model].hungry.pop(node.id, None)
        self.state.models[node.model].refresh()
        return feed(self.state, self.state.models[node.model], now_s)

    def _refined(self, event: NodeRefined, now_s: float) -> list[Action]:
        """Constants that can't be used change nothing and are counted: the node goes on with those it has."""
        node = self._node(event.node_id, event.epoch)
        if node is None:
            return []
        try:
            refine(self.state, node, event)
        except MainspringError:
            self.state.counters.rejected += 1
        return offer(self.state, node, now_s)

    def _started(self, event: WorkStarted, now_s: float) -> list[Action]:
        node, held = self._work(event.node_id, event.epoch, event.pass_id)
        if node is None or held is None:
            return []
        held.started_s = now_s - min(max(0.0, event.ago_s), now_s - held.sent_s)
        node.retime()
        if node.held and node.held[0] is held:
            node.late = False  # it speaks
            self.state.at(max(now_s, node.overdue_s()), "overdue", held)
        return offer(self.state, node, now_s)

    def _done(self, event: WorkDone, now_s: float) -> list[Action]:
        node, held = self._work(event.node_id, event.epoch, event.pass_id)
        if node is None or held is None:
            return []
        node.fit.observe(*held.shape, event.measured_s / held.factor)
        actions = settle(self.state, node, held, event, now_s)
        return actions + offer(self.state, node, now_s)

    def _failed(self, event: WorkFailed, now_s: float) -> list[Action]:
        node, held = self._work(event.node_id, event.epoch, event.pass_id)
        if node is None or held is None:
            return []
        if not all(0 <= index < len(held.members) for index in event.failed):
            event = msgspec.structs.replace(event, failed=())  # names what it never had: believe none of its results
        actions = settle(self.state, node, held, event, now_s)
        actions += recovery.on_failed(self.state, node, held, event)
        actions += offer(self.state, node, now_s)
        return actions + feed(self.state, self.state.models[node.model], now_s)

    def _lease(self, event: LeaseStarted | LeaseProgress | LeaseEnded, now_s: float) -> list[Action]:
        node = self._node(event.node_id, event.epoch)
        if node is None:
            return []
        lease = node.leases.get(event.request_id)
        if lease is None or lease.lease.attempt != event.attempt:
            self.state.counters.stale += 1
            return offer(self.state, node, now_s)  # it may have been taken for silent
        actions = leases.on_event(self.state, node, event, now_s)
        return actions + offer(self.state, node, now_s) if isinstance(event, LeaseEnded) else actions

    def _timer(self, _event: Event, now_s: float) -> list[Action]:
        state = self.state
        actions: list[Action] = []
        for kind, subject in state.due_timers(now_s):
            if kind == "wake" and isinstance(subject, NodeState):
                if subject.wake_s <= now_s and state.nodes.get(subject.id) is subject:
                    subject.wake_s = FOREVER
                    subject.late = subject.late and bool(subject.held)  # silent for its streams alone: asked again
                    actions += offer(state, subject, now_s)
            elif kind == "overdue" and isinstance(subject, Held):
                actions += recovery.on_overdue(state, subject, now_s)
            elif kind == "expiry" and isinstance(subject, Job):
                actions += recovery.on_expiry(state, subject, now_s)
            elif isinstance(subject, LeaseState):
                actions += leases.on_silence(state, subject, now_s)
            elif isinstance(subject, str):
                actions += recovery.on_abandoned_model(state, subject)
        return actions

    def _node(self, node_id: str, epoch: int) -> NodeState | None:
        node = self.state.nodes.get(node_id)
        if node is None or node.epoch != epoch:
            self.state.counters.stale += 1
            return None
        node.heard_s = self.state.now_s
        if not node.held:
            node.late = False  # it speaks; with work held only word of that work counts
        return node

    def _work(self, node_id: str, epoch: int, pass_id: int) -> tuple[NodeState | None, Held | None]:
        """Fenced by (pass, node, epoch): anything else is an echo of an earlier life."""
        node = self._node(node_id, epoch)
        if node is None:
            return None, None
        entry = self.state.passes.get(pass_id)
        if entry is None or entry[0] is not node:
            self.state.counters.stale += 1
            return None, None
        return entry
