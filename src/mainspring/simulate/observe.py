"""What a run looked like over time: queue, goodput and outcomes in equal bins. Costs one comparison an event."""

from mainspring.core.actions import Action
from mainspring.core.events import Event
from mainspring.core.router import Router
from mainspring.simulate.record import Outcome


class Watch:
    """Pass as `observe` to a simulation; `queue` holds (time, waiting shards)."""

    def __init__(self, policy: object, every_s: float) -> None:
        self.policy = policy
        self.every_s = every_s
        self.queue: list[tuple[float, int]] = []
        self._next_s = 0.0

    def __call__(self, _event: Event, _actions: list[Action], now_s: float) -> None:
        if now_s < self._next_s:
            return
        self._next_s = now_s + self.every_s
        if isinstance(self.policy, Router):
            waiting = sum(model.queued() for model in self.policy.state.models.values())
        else:
            waiting = len(getattr(self.policy, "open", ()))
        self.queue.append((now_s, waiting))


def goodput_over_time(outcomes: list[Outcome], horizon_s: float, bins: int = 200) -> dict[str, list[float]]:
    """Weighted tokens a second answered in time, by class and bin of completion."""
    width = horizon_s / bins
    series: dict[str, list[float]] = {}
    for outcome in outcomes:
        if not outcome.in_time or outcome.done_s >= horizon_s:
            continue
        line = series.setdefault(outcome.slo.name, [0.0] * bins)
        line[int(outcome.done_s / width)] += outcome.slo.weight * outcome.request.tokens / width
    return dict(sorted(series.items()))
