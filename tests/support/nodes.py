"""A whole node but its process, under virtual time: real engine, scheduler and link; a router's end driven by the test.

The worker runs a job at once and tells of it when its device seconds are over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mainspring.backend.generation import SlotLimits
from mainspring.backend.null import NullBackend
from mainspring.backend.protocol import Backend, Limits
from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits as Offered
from mainspring.engine import Engine, Segment
from mainspring.engine.streams import Streams
from mainspring.node.health import Health
from mainspring.node.leases import Writing
from mainspring.node.membership import Membership
from mainspring.node.offering import Offering
from mainspring.node.outcome import Outcome
from mainspring.node.probe import Probe
from mainspring.node.roundfit import RoundFit
from mainspring.node.runner import Runner, execute
from mainspring.node.scheduler import Scheduler
from mainspring.node.tasks import Task
from mainspring.node.views import Views
from mainspring.node.writer import Writer
from mainspring.wire import messages as m
from mainspring.wire.link import Closed, Link, Rules
from mainspring.wire.memory import Network, connect
from mainspring.wire.transport import Accept, Identity
from support.links import End, World

WHO, ROUTER = Identity("fleet", "node", "ant"), Identity("fleet", "router", "hill")
COST = (0.01, 1e-5, 1e-5)
ROUND = RoundCost(0.01, 0.001)


@dataclass
class VirtualWorker:
    engine: Engine
    world: World
    writer: Writer | None = None
    tasks: list[Task] = field(default_factory=list)
    device_s: float = 0.0
    """What the null device has slept, in all: the clock of what runs there."""
    slower: float = 1.0
    cost: Cost | None = None
    """Where the device's own seconds are real ones, which no test wants: those of the shape by this."""
    before_s: float = 0.0
    """How long a job lies in the worker before it touches anything."""

    @property
    def ran(self) -> list[Sequence[Segment]]:
        """The segments of passes, measurements and canaries."""
        return [task.segments for task in self.tasks if task.segments]

    def start(self, task: Task, done: Callable[[Outcome], None]) -> None:
        self.tasks.append(task)
        if self.before_s:
            self.world.call_later(self.before_s, lambda: self._run(task, done))
        else:
            self._run(task, done)

    def slept(self, seconds: float) -> None:
        self.device_s += seconds

    def _run(self, task: Task, done: Callable[[Outcome], None]) -> None:
        outcome = execute(self.engine, task, lambda: self.device_s, self.writer)
        if self.cost is not None and task.segments:
            view, rows = sum(len(s.tokens) for s in task.segments), sum(s.rows for s in task.segments)
            outcome = replace(outcome, seconds=self.cost.seconds(view, rows))
        self.world.call_later(outcome.seconds * self.slower, lambda: done(outcome))


def null_backend(cost: tuple[float, float, float] = COST, **limits: int) -> NullBackend:
    shape = {"context_tokens": 32_768, "pass_rows": 65_536, "vocab_size": 300, **limits}
    return NullBackend(Limits(**shape), cost, sleep=lambda _: None)


class NodeRig:
    """`join()` welcomes the node as the router would; `router` is that end, with all it heard."""

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        cache_bytes: int = 2**26,
        delay_s: float = 0.002,
        known: bool = True,
        world: World | None = None,
        rules: Rules | None = None,
        name: str = "ant",
        cost: Cost | None = None,
        offered: Offered | None = None,
        slots: int = 0,
        streams: Streams | None = None,
        ends: tuple[int, ...] = (),
        prefix_bytes: int = 2**26,
        round_cost: RoundCost = ROUND,
    ) -> None:
        """`slots` of the null device, or `streams` of another one."""
        self.world = world or World()
        self.backend = backend or null_backend()
        self.engine = Engine(self.backend, cache_bytes=cache_bytes)
        limits = self.backend.limits
        self.probe = Probe(limits.context_tokens, limits.pass_rows, limits.context_tokens)
        if known:  # nothing is owed: idle time stays idle but for canaries
            self.probe.adopt(cost or Cost(*COST), ((500, 40, 0, (cost or Cost(*COST)).seconds(500, 40)),))
        self.health = Health(self.world.now_s)
        self.who = Identity("fleet", "node", name)
        self.worker = VirtualWorker(self.engine, self.world, cost=cost)
        if slots and isinstance(self.backend, NullBackend):
            self.backend.sleep = self.worker.slept
            self.backend.round_seconds = (round_cost.d0, round_cost.d1, round_cost.d2)
            streams = Streams(self.backend.generation(SlotLimits(slots)), cache_bytes=prefix_bytes)
        self.streams = streams
        writing = fit = None
        if streams is not None:
            slots = streams.backend.limits.slots
            writing = Writing(slots, limits.context_tokens, limits.vocab_size, ends, lambda: 7)
            fit = RoundFit(round_cost)
            self.worker.writer = Writer(streams)
        self.scheduler = Scheduler(name, limits, Views(self.engine.store), self.probe, self.health, writing, fit)
        self.runner = Runner(self.scheduler, self.worker, self.clock, self.world.call_later)
        self.offering = Offering(
            model="key", alias="tiny", bundle="b", packed=bytes(range(256)) * 4096, backend=self.backend,
            limits=offered or Offered(slots=slots, stream_tokens=limits.context_tokens), probe=self.probe,
            round_fit=fit,
        )  # fmt: skip
        self.delay_s, self.rules = delay_s, rules
        self.ended: list[tuple[Closed, float | None]] = []
        self.epoch = 2
        self._passes = 0

    def clock(self) -> float:
        return self.world.now_s

    def dial(self, router: Accept | None = None) -> "NodeRig":
        """To the test's own router, or to a real one's `accept`."""
        self.network = Network(self.world.call_later, lambda _stream: self.delay_s)
        hello = m.Hello(role="node", name=self.who.name, instance=7)
        self.member = Membership(
            hello, self.offering, self.runner, self.clock, self.world.call_later,
            lambda closed, lasted: self.ended.append((closed, lasted)),
        )  # fmt: skip
        if router is None:
            self.router = End(self.world, Link.answer(self.who, self.world.now_s, self.rules))
            router = self.router.accept
        connect(self.network, self.who, ROUTER, self.member.accept, router)
        return self

    def join(self) -> "NodeRig":
        self.dial()
        self.run(3 * self.delay_s)
        self.epoch += 1
        self.router.link.welcome(self.epoch, 11, self.world.now_s)
        self.router.turn()
        self.run(0.3 + 3 * self.delay_s)
        return self

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_s + seconds)

    # ------------------------------------------------------ what the router does

    def send(
        self, *parts: m.Part, within_s: float = 60.0, predicted_s: float = 0.05, pass_id: int | None = None
    ) -> int:
        self._passes += 1
        fence = m.Fence(pass_id=pass_id or self._passes, attempt=0, epoch=self.epoch)
        return self.router.open(m.Work(fence=fence, parts=parts, predicted_s=predicted_s, start_within_s=within_s))

    def heard(self, stream: int) -> list[m.Message]:
        return [e.message for e in self.router.heard if getattr(e, "stream", None) == stream]

    def last(self, stream: int) -> m.Message | None:
        """The pass's answer, once it is there: exactly one."""
        ends = [message for message in self.heard(stream) if isinstance(message, m.Done | m.Failed | m.LeaseEnded)]
        assert len(ends) <= 1
        return ends[0] if ends else None

    def done(self, stream: int) -> m.Done:
        message = self.last(stream)
        assert isinstance(message, m.Done), message
        return message

    def failed(self, stream: int) -> m.Failed:
        message = self.last(stream)
        assert isinstance(message, m.Failed), message
        return message

    @property
    def reports(self) -> list[m.NodeReport]:
        return [e.message for e in self.router.got(m.NodeReport)]


def words(values: Sequence[int]) -> bytes:
    return np.asarray(values, "<u4").tobytes()


def part(
    request: str = "r",
    view: Sequence[int] = range(1, 51),
    branches: Sequence[Sequence[int]] = ((5, 6), (7,)),
    labels: Sequence[int] = (1, 2),
    **fields: object,
) -> m.Part:
    """A view from its beginning, all branches with the same labels, unless `fields` say otherwise."""
    flat = [token for branch in branches for token in branch]
    return m.Part(
        request=request, view_tokens=words(list(view)), branch_lengths=words([len(b) for b in branches]),
        branch_tokens=words(flat), label_counts=words([len(labels)] * len(branches)),
        label_ids=words(list(labels) * len(branches)), **fields,
    )  # fmt: skip


def expected(view: Sequence[int], branches: Sequence[Sequence[int]], labels: Sequence[int] = (1, 2)) -> np.ndarray:
    """The null device's logits of a view and its branches, flat."""
    from mainspring.engine import Branch, Work

    ids = np.asarray(labels, np.int64)
    asked = tuple(Branch(np.asarray(branch, np.int64), ids) for branch in branches)
    rows = Engine(NullBackend(), cache_bytes=0).score([Work(np.asarray(list(view), np.int64), asked)])[0]
    return np.concatenate(rows)
