"""Counters into rates: what a chart shows of the minutes before somebody looked. Pure, bounded, time an argument."""

from collections import deque

from msgspec import Struct

from mainspring.gateway.dashboard.snapshot import Rates
from mainspring.wire import messages as m

POINTS = 240
WINDOW_S = 240.0
LONGEST_STEP_S = 30.0
"""A longer gap between two looks is a hole in the chart, not one flat line."""
TOKENS_OVER_S = 5.0


class Look(Struct, frozen=True):
    when_s: float
    router: int
    up_s: float
    answered: float
    refused: float
    failed: float
    tokens: float
    open: int


class History:
    """Of the whole fleet, as the router counts. A router that restarted counts from zero: no rate is negative."""

    def __init__(self) -> None:
        self._last: Look | None = None
        self._points: deque[tuple[float, Rates]] = deque(maxlen=POINTS)

    def add(self, status: m.Status, now_s: float) -> Rates:
        """`now_s`: when the router said so. The same status again is no new point."""
        last = self._last
        if self._points and last is not None and (last.router, last.up_s) == (status.router, status.up_s):
            return self._points[-1][1]
        look = look_at(status, now_s)
        rates = rates_between(last, look)
        self._last = look
        self._points.append((now_s, rates))
        return rates

    def points(self, now_s: float) -> list[Rates]:
        """Oldest first, at most 240 of the last four minutes."""
        return [
            Rates(
                ago_s=round(now_s - when_s, 3), answered=rates.answered, refused=rates.refused, failed=rates.failed,
                tokens=rates.tokens, open=rates.open,
            )
            for when_s, rates in self._points
            if now_s - when_s <= WINDOW_S
        ]  # fmt: skip


def look_at(status: m.Status, now_s: float) -> Look:
    """Tokens come from the passes that ended in the last seconds, the router keeps no counter of them."""
    counters = status.counters
    tokens = sum(each.tokens for each in status.passes if each.ago_s <= TOKENS_OVER_S) / TOKENS_OVER_S
    return Look(
        now_s, status.router, status.up_s, counters.get("answered", 0.0), counters.get("refused", 0.0),
        counters.get("failed", 0.0) + counters.get("expired", 0.0), tokens, int(counters.get("open", 0.0)),
    )  # fmt: skip


def rates_between(last: Look | None, look: Look) -> Rates:
    step_s = 0.0 if last is None else look.when_s - last.when_s
    if last is None or last.router != look.router or not 0.0 < step_s <= LONGEST_STEP_S:
        return Rates(ago_s=0.0, answered=None, refused=None, failed=None, tokens=look.tokens, open=look.open)
    return Rates(
        ago_s=0.0,
        answered=max(0.0, look.answered - last.answered) / step_s,
        refused=max(0.0, look.refused - last.refused) / step_s,
        failed=max(0.0, look.failed - last.failed) / step_s,
        tokens=look.tokens,
        open=look.open,
    )
