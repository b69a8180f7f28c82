"""Whatever a router asks in whatever order, cut short wherever: each pass is answered once and rightly, nothing leaks.

Chunked and whole scans, shared views, kept views that may have been evicted, cancels, releases, lost links, a device
that breaks or answers NaN; a cache of three views or none. The oracle is the null device's own function of view, branch
and label."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainspring.wire import messages as m
from support.nodes import NodeRig, expected, null_backend, part

VIEW = 30
NAMES = st.integers(0, 4)
BRANCHES = st.lists(st.lists(st.integers(0, 299), min_size=1, max_size=3), max_size=3)


def view_of(name: int) -> list[int]:
    return [(name * 31 + i) % 300 for i in range(VIEW)]


@dataclass
class Shard:
    request: str
    name: int
    keyed: bool
    at: int = 0


@dataclass
class Asked:
    """What each part must answer with: (view, branches)."""

    parts: list[tuple[list[int], list[list[int]]]] = field(default_factory=list)


class NodeMachine(RuleBasedStateMachine):
    @initialize(views=st.integers(0, 3), cost=st.sampled_from([0.0, 0.01, 0.3]), before_s=st.sampled_from([0.0, 0.01]))
    def begin(self, views: int, cost: float, before_s: float) -> None:
        self.backend = null_backend((cost, 1e-6, 1e-6))
        self.rig = NodeRig(self.backend, cache_bytes=views * VIEW * 4096).join()
        self.rig.worker.before_s = before_s
        self.asked: dict[int, Asked] = {}
        self.shards: list[Shard] = []
        self.count = 0
        self.fault = ""
        real = self.backend.score_pass

        def faulty(work):
            fault, self.fault = self.fault, ""
            if fault == "memory":
                raise MemoryError
            if fault == "engine":
                raise RuntimeError("device lost")
            done = real(work)
            if fault == "nan" and len(done.logits):
                done.logits[0] = np.nan
            return done

        self.backend.score_pass = faulty

    def request(self) -> str:
        self.count += 1
        return f"r{self.count}"

    def send(self, asked: Asked, *parts: m.Part, within_s: float = 60.0) -> None:
        self.asked[self.rig.send(*parts, within_s=within_s)] = asked

    @rule(name=NAMES, branches=BRANCHES, keyed=st.booleans(), within_s=st.sampled_from([0.001, 0.2, 60.0]))
    def whole(self, name: int, branches: list[list[int]], keyed: bool, within_s: float) -> None:
        key = f"k{name}" if keyed else ""
        asked = Asked([(view_of(name), branches)])
        self.send(asked, part(self.request(), view_of(name), branches, view_key=key), within_s=within_s)

    @rule(name=NAMES, other=NAMES, branches=BRANCHES, more=BRANCHES)
    def shared(self, name: int, other: int, branches: list[list[int]], more: list[list[int]]) -> None:
        """A view, another request on the same view, and a third on its own."""
        asked = Asked([(view_of(name), branches), (view_of(other), more), (view_of(name), more)])
        self.send(
            asked,
            part(self.request(), view_of(name), branches, view_key=f"k{name}"),
            part(self.request(), view_of(other), more),
            part(self.request(), (), more, view_from=VIEW, parent=0),
        )

    @rule(name=NAMES, branches=BRANCHES)
    def kept(self, name: int, branches: list[list[int]]) -> None:
        """A router that believes the view is here."""
        key = f"k{name}"
        self.send(Asked([(view_of(name), branches)]), part(self.request(), (), branches, view_from=VIEW, prefix=key))

    @rule(name=NAMES, branches=BRANCHES, begin=st.booleans())
    def prefixed(self, name: int, branches: list[list[int]], begin: bool) -> None:
        """A view that goes on from a kept beginning of itself."""
        view, at = view_of(name), VIEW // 2
        if begin:
            self.send(Asked([(view[:at], [])]), part(self.request(), view[:at], (), view_key=f"p{name}"))
        piece = part(self.request(), view[at:], branches, view_from=at, prefix=f"p{name}", view_key=f"k{name}")
        self.send(Asked([(view, branches)]), piece)

    @rule(name=NAMES, keyed=st.booleans())
    def chunked(self, name: int, keyed: bool) -> None:
        self.shards.append(Shard(self.request(), name, keyed))

    @precondition(lambda self: self.shards)
    @rule(which=st.integers(0, 99), step=st.integers(0, VIEW), branches=BRANCHES, last=st.booleans())
    def chunk(self, which: int, step: int, branches: list[list[int]], last: bool) -> None:
        """The next chunk: view tokens; branches once the view's end is reached."""
        shard = self.shards[which % len(self.shards)]
        view = view_of(shard.name)
        to = min(VIEW, shard.at + (step if shard.at else max(1, step)))
        ends = to == VIEW
        key = f"k{shard.name}" if shard.keyed and ends and to > shard.at else ""
        over = ends and last
        asked = Asked([(view, branches if ends else [])])
        piece = part(shard.request, view[shard.at : to], branches if ends else (), view_from=shard.at, view_key=key,
                     more=not over)  # fmt: skip
        shard.at = to
        if over:
            self.shards.remove(shard)
        self.send(asked, piece)

    @precondition(lambda self: self.shards)
    @rule(which=st.integers(0, 99))
    def again(self, which: int) -> None:
        """A shard that failed begins anew."""
        self.shards[which % len(self.shards)].at = 0

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 999))
    def cancel(self, which: int) -> None:
        self.rig.router.send(list(self.asked)[which % len(self.asked)], m.Cancel())

    @precondition(lambda self: self.shards)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        shard = self.shards.pop(which % len(self.shards))
        self.rig.router.send(0, m.Release(request=shard.request))

    @rule(fault=st.sampled_from(["memory", "engine", "nan"]))
    def breaks(self, fault: str) -> None:
        self.fault = fault

    @rule()
    def loses_its_router(self) -> None:
        self.check()
        self.rig.network.drop()
        self.asked.clear()
        self.shards.clear()
        self.rig.join()

    @rule(seconds=st.sampled_from([0.0, 0.005, 0.05, 1.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.rig.run(seconds)

    @invariant()
    def bytes_add_up(self) -> None:
        if hasattr(self, "rig"):
            store = self.rig.engine.store
            assert 0 <= store.used_bytes <= store.budget_bytes
            assert self.rig.router.closed is None

    def check(self) -> None:
        for stream, asked in self.asked.items():
            answer = self.rig.last(stream)
            if answer is None:
                continue
            bad = set(answer.failed) or set(range(len(asked.parts))) if isinstance(answer, m.Failed) else set()
            good = [
                expected(view, branches) for i, (view, branches) in enumerate(asked.parts) if i not in bad and branches
            ]
            wanted = np.concatenate(good) if good else np.zeros(0, np.float32)
            assert np.array_equal(m.f32(answer.logits), wanted)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        rig = self.rig
        rig.run(400.0)
        assert all(rig.last(stream) is not None for stream in self.asked), "each is answered"
        self.check()
        assert rig.scheduler.views.half_scanned == rig.engine.store.held == 0
        assert len(self.backend._views) == len(rig.engine.store)
        assert not rig.scheduler.busy
        assert rig.scheduler.passes._bytes == 0
        assert not rig.scheduler.views._promised
        assert all(key.startswith(b"v") for key, _ in rig.engine.store.listing())


TestNodeMachine = NodeMachine.TestCase
TestNodeMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
