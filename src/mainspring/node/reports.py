"""When a node reports and what: the first time everything, then what changed, at least every few seconds. Pure."""

from typing import Any

from mainspring.node.offering import Offering
from mainspring.node.scheduler import Scheduler
from mainspring.node.views import TOLD
from mainspring.wire import messages as m

EVERY_S = 2.0
SOONEST_S = 0.25
"""Between two reports, however much changes; what belongs to a pass comes with its `Done` anyhow."""


class Reports:
    """Of one link: what was told before is not told again."""

    def __init__(self, scheduler: Scheduler, offering: Offering) -> None:
        self._scheduler, self._offering = scheduler, offering
        self._last_s = -1e18
        self._fresh = True
        self._state = ""
        self._told: object = (offering.probe.cost, offering.probe.provisional)
        self._left: list[tuple[str, int]] = []

    def due_s(self) -> float:
        return self._last_s + (SOONEST_S if self._urgent() else EVERY_S)

    def due(self, now_s: float) -> m.NodeReport | None:
        if now_s < self.due_s():
            return None
        self._last_s = now_s
        return self._report(now_s)

    def _urgent(self) -> bool:
        return (
            self._fresh
            or bool(self._left)
            or self._scheduler.health.state != self._state
            or self._scheduler.changed
            or self._cost() != self._told
        )

    def _cost(self) -> object:
        return self._offering.probe.cost, self._offering.probe.provisional

    def _report(self, now_s: float) -> m.NodeReport:
        health, probe, views = self._scheduler.health, self._offering.probe, self._scheduler.views
        what: dict[str, Any] = {}
        if self._fresh:
            self._left = list(self._scheduler.all_keys())
            what["fresh"] = True
        if self._left:
            what["gained"], self._left = tuple(self._left[:TOLD]), self._left[TOLD:]
        elif self._scheduler.changed:
            what["gained"], what["dropped"] = self._scheduler.changes()
        fit = self._scheduler.rounds.fit
        if fit is not None and (self._fresh or fit.moved):
            what["round_cost"] = fit.tell()
        if self._scheduler.rounds.written is not None:
            what["written"] = self._scheduler.rounds.written
        if self._fresh or self._cost() != self._told:
            self._told = self._cost()
            what |= {"cost": probe.cost, "anchors": probe.anchors, "provisional": probe.provisional}
        self._fresh, self._state = False, health.state
        gauges = self._offering.gauges()
        return m.NodeReport(
            state=health.state, idle_s=health.idle_s(now_s), waiting=health.waiting, running=health.running,
            cache_bytes=views.store.used_bytes, passes=health.passes, failures=health.failures,
            slots_used=len(self._scheduler.leases), memory_bytes=gauges.memory_bytes,
            memory_total_bytes=gauges.memory_total_bytes, temperature_c=gauges.temperature_c, **what,
        )  # fmt: skip
