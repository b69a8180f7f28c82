"""A virtual node: the true cost, noise and faults around the real `core.agenda`.

It hears from the router and answers only through its link, whose two directions take time. Its device may be shared: a
neighbour that starts or stops changes the speed of what is running. Its clock may drift; measured times are its own.
"""

from collections import OrderedDict
from math import exp
from random import Random
from typing import Protocol

from msgspec import Struct

from mainspring.core.actions import CloseLease, DropPass, OpenLease, SendPass
from mainspring.core.agenda import Agenda, ComeLate, Idle, RunPass, RunRound
from mainspring.core.cost import Cost, RoundCost
from mainspring.core.events import (
    PROGRESS_TOKENS,
    Event,
    LeaseEnded,
    LeaseProgress,
    LeaseStarted,
    NodeJoined,
    NodeLeft,
    WorkDone,
    WorkFailed,
    WorkStarted,
)
from mainspring.core.nouns import NodeSpec, Pass, pairs
from mainspring.simulate.world import World


class Truth(Struct, frozen=True):
    """What the node really is, beside what it declares. `poison`: request ids that kill it."""

    cost: Cost
    round_cost: RoundCost | None = None
    noise: float = 0.0
    jitter_s: float = 0.0
    cache_tokens: int = 1_000_000
    drift: float = 0.0
    detect_s: float = 0.2
    poison: frozenset[str] = frozenset()


class Inbox(Protocol):
    """The router's side of every link."""

    def deliver(self, event: Event) -> None: ...


class Device:
    """Nodes that share silicon; each slows the others while it runs."""

    def __init__(self) -> None:
        self.nodes: list[VirtualNode] = []

    def changed(self, who: "VirtualNode") -> None:
        for node in self.nodes:
            if node is not who:
                node.repace()


class VirtualNode:
    def __init__(
        self, world: World, inbox: Inbox, spec: NodeSpec, truth: Truth, rng: Random, device: Device | None = None
    ) -> None:
        self.world, self.inbox, self.spec, self.truth, self.rng = world, inbox, spec, truth, rng
        self.device = device
        if device is not None:
            device.nodes.append(self)
        self.alive = False
        self.stuck = False
        self.slow = 1.0
        self.busy_s = 0.0
        self.trace: list[tuple[float, float, str, int]] = []
        self._arrive_s = 0.0
        self._reset()

    def _reset(self) -> None:
        self.agenda = Agenda(self.spec.round_cost.tokens if self.spec.round_cost else 1.0)
        self.cache: OrderedDict[str, int] = OrderedDict(self.spec.keys)
        self.streams: dict[str, list[float]] = {}
        self.running: RunPass | RunRound | None = None
        self.version = 0
        self.left_s = 0.0
        self.speed = 1.0
        self.since_s = 0.0
        self.begun_s = 0.0

    def join(self, epoch: int | None = None) -> None:
        if epoch is not None:
            import msgspec

            self.spec = msgspec.structs.replace(self.spec, epoch=epoch, keys=())
        self._reset()
        self.alive = True
        self._say(NodeJoined(self.spec))

    def die(self) -> None:
        """No goodbye: the link notices after a while."""
        if not self.alive:
            return
        self.alive = False
        self.version += 1
        self._stop()
        self.world.after(self.truth.detect_s, self.inbox.deliver, NodeLeft(self.spec.id, self.spec.epoch, True))

    def leave(self) -> None:
        self.alive = False
        self.version += 1
        self._stop()
        self._say(NodeLeft(self.spec.id, self.spec.epoch, False))

    def freeze(self) -> None:
        self.stuck = True
        self.repace()

    def thaw(self) -> None:
        self.stuck = False
        self.repace()

    def set_slow(self, factor: float) -> None:
        self.slow = factor
        self.repace()

    def receive(self, action: SendPass | DropPass | OpenLease | CloseLease) -> None:
        """The router's frame is on the wire; frames of one link keep their order."""
        when = self.world.now_s + self.spec.network_s + self._jitter()
        self._arrive_s = max(self._arrive_s, when)
        self.world.at(self._arrive_s, self._arrived, action, self.spec.epoch)

    def _arrived(self, action: SendPass | DropPass | OpenLease | CloseLease, epoch: int) -> None:
        if not self.alive or epoch != self.spec.epoch:
            return
        if isinstance(action, SendPass):
            self.agenda.add(action.work, self._clock())
        elif isinstance(action, OpenLease):
            self.agenda.open(action.lease)
            lease = action.lease
            self.streams[lease.request_id] = [0.0, float(lease.max_tokens), lease.prompt_tokens, lease.attempt]
        elif isinstance(action, DropPass):
            self.agenda.drop(action.pass_id)
        else:
            self._end_stream(action.request_id)
        self._work()

    def _work(self) -> None:
        while self.alive and self.running is None:
            step = self.agenda.next(self._clock())
            if isinstance(step, Idle):
                return
            if isinstance(step, ComeLate):
                self._say(WorkFailed(self.spec.id, self.spec.epoch, step.work.id, late=True))
                continue
            self._begin(step)

    def _begin(self, step: RunPass | RunRound) -> None:
        noise = exp(self.rng.gauss(0.0, self.truth.noise)) if self.truth.noise else 1.0
        if isinstance(step, RunPass):
            self.left_s = self._pass_s(step.work) * noise
            self._say(WorkStarted(self.spec.id, self.spec.epoch, step.work.id))
        else:
            context = sum(int(s[2] + s[0]) for name, s in self.streams.items() if name in step.request_ids)
            cost = self.truth.round_cost or self.spec.round_cost
            self.left_s = (cost.seconds(len(step.request_ids), context) if cost else 0.001) * noise
        self.running = step
        self.begun_s = self.since_s = self.world.now_s
        self.speed = self._speed()
        self._schedule()
        if self.device is not None:
            self.device.changed(self)
        if isinstance(step, RunPass) and any(part.request_id in self.truth.poison for part in step.work.parts):
            self.world.after(self.left_s / 2.0, self.die)

    def _pass_s(self, work: Pass) -> float:
        """The truth about a pass: what the cache really holds decides what is scanned."""
        view = rows = attention = 0
        for index, part in enumerate(work.parts):
            start = part.view_from
            if start and index not in work.shares and (part.prefix or part.view_key):
                key = part.prefix or part.view_key
                if part.prefix and key not in self.cache:
                    start = 0
            view += part.view_to - start
            rows += part.rows
            attention += pairs(start, part.view_to, part.rows)
        return self.truth.cost.seconds(view, rows, attention)

    def _speed(self) -> float:
        """Seconds of work done a second."""
        if self.stuck:
            return 0.0
        factor = self.slow
        if self.device is not None and len(self.device.nodes) > 1:
            busy = any(node is not self and node.running is not None for node in self.device.nodes)
            factor *= self.spec.busy_neighbour if busy else self.spec.idle_neighbour
        return 1.0 / factor

    def repace(self) -> None:
        if self.running is None or not self.alive:
            return
        now = self.world.now_s
        self.left_s = max(0.0, self.left_s - (now - self.since_s) * self.speed)
        self.since_s = now
        self.speed = self._speed()
        self._schedule()

    def _schedule(self) -> None:
        self.version += 1
        if self.speed > 0.0:
            self.world.after(self.left_s / self.speed, self._finished, self.version)

    def _finished(self, version: int) -> None:
        if version != self.version or not self.alive or self.running is None:
            return
        step, now = self.running, self.world.now_s
        took = now - self.begun_s
        self._stop()
        measured = took * (1.0 + self.truth.drift)
        if isinstance(step, RunPass):
            self.trace.append((self.begun_s, took, "pass", step.work.id))
            self._pass_done(step.work, measured)
        else:
            self.trace.append((self.begun_s, took, "round", len(step.request_ids)))
            self.agenda.round_done(measured, self._clock())
            self._round_done(step)
        self._work()

    def _stop(self) -> None:
        if self.running is not None:
            self.busy_s += self.world.now_s - self.begun_s
        self.running = None
        if self.device is not None:
            self.device.changed(self)

    def _pass_done(self, work: Pass, measured_s: float) -> None:
        gained: dict[str, int] = {}
        for part in work.parts:
            if part.view_key:
                self.cache[part.view_key] = part.view_to
                self.cache.move_to_end(part.view_key)
                gained[part.view_key] = part.view_to
            if part.opens_lease and self.agenda.begin(part.request_id, self._clock()):
                self.streams[part.request_id][0] = 0.0
        dropped = self._evict()
        keys = tuple((key, tokens) for key, tokens in gained.items() if key not in dropped)
        self._say(WorkDone(self.spec.id, self.spec.epoch, work.id, measured_s, keys, tuple(dropped)))

    def _evict(self) -> list[str]:
        total = sum(self.cache.values())
        dropped: list[str] = []
        pinned = self.agenda.pinned()
        for key in list(self.cache):
            if total <= self.truth.cache_tokens:
                break
            if key not in pinned:
                total -= self.cache.pop(key)
                dropped.append(key)
        return dropped

    def _round_done(self, step: RunRound) -> None:
        tokens = self.spec.round_cost.tokens if self.spec.round_cost else 1.0
        for request_id in step.request_ids:
            stream = self.streams.get(request_id)
            if stream is None:
                continue
            attempt = int(stream[3])
            if stream[0] == 0.0:
                self._say(LeaseStarted(self.spec.id, self.spec.epoch, request_id, attempt))
            before = stream[0]
            stream[0] = min(stream[1], stream[0] + tokens)
            if stream[0] >= stream[1]:
                self._end_stream(request_id)
                self._say(LeaseEnded(self.spec.id, self.spec.epoch, request_id, int(stream[0]), attempt=attempt))
            elif int(before) // PROGRESS_TOKENS != int(stream[0]) // PROGRESS_TOKENS:
                self._say(LeaseProgress(self.spec.id, self.spec.epoch, request_id, int(stream[0]), attempt))

    def _end_stream(self, request_id: str) -> None:
        self.agenda.close(request_id)
        self.streams.pop(request_id, None)

    def _say(self, event: Event) -> None:
        self.world.after(self.spec.network_s + self._jitter(), self.inbox.deliver, event)

    def _jitter(self) -> float:
        return self.rng.uniform(0.0, self.truth.jitter_s) if self.truth.jitter_s else 0.0

    def _clock(self) -> float:
        return self.world.now_s * (1.0 + self.truth.drift)
