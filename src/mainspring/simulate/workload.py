"""Loads: Poisson, bursts, closed loops, recorded traces, a whole day. Every generator owns its `Random`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import cos, exp, pi
from random import Random

from msgspec import Struct

from mainspring.core.nouns import Request
from mainspring.simulate.record import Outcome


class Shape(Struct, frozen=True, kw_only=True):
    """Draws requests of one kind: lognormal view length, branches of a few rows each, or tokens to generate."""

    name: str
    model: str = "m"
    slo: str = "standard"
    view_tokens: int = 4000
    view_spread: float = 0.0
    view_limits: tuple[int, int] = (1, 18_000)
    branches: tuple[int, int] = (8, 8)
    rows: int = 64
    max_tokens: tuple[int, int] = (0, 0)
    hot_views: int = 0
    deadline_s: float | None = None

    def draw(self, rng: Random, serial: int) -> Request:
        view = self.view_tokens
        if self.view_spread:
            view = int(view * exp(rng.gauss(0.0, self.view_spread)))
        view = min(max(view, self.view_limits[0]), self.view_limits[1])
        key = ""
        if self.hot_views:
            hot = int(rng.random() ** 2 * self.hot_views)
            key, view = f"{self.name}-hot-{hot}", self.view_tokens + 37 * hot
        count = rng.randint(*self.branches)
        return Request(
            id=f"{self.name}-{serial}",
            model=self.model,
            slo=self.slo,
            view_tokens=view,
            branches=() if self.max_tokens[1] else (self.rows,) * count,
            view_key=key or f"{self.name}-{serial}",
            max_tokens=rng.randint(*self.max_tokens) if self.max_tokens[1] else 0,
            deadline_s=self.deadline_s,
        )


class Open:
    """An open loop: a non-homogeneous Poisson process thinned from its peak rate."""

    def __init__(self, shapes: Sequence[tuple[float, Shape]], rate: Callable[[float], float], peak: float, seed: int):
        self.shapes, self.rate, self.peak, self.seed = shapes, rate, peak, seed

    def arrivals(self) -> Iterator[tuple[float, Request]]:
        rng = Random(self.seed)
        total = sum(share for share, _ in self.shapes)
        now, serial = 0.05, 0
        while True:
            now += rng.expovariate(self.peak)
            if rng.random() * self.peak > self.rate(now):
                continue
            pick = rng.random() * total
            shape = self.shapes[-1][1]
            for share, shape in self.shapes:  # noqa: B007 the one it stops at
                pick -= share
                if pick <= 0.0:
                    break
            serial += 1
            yield now, shape.draw(rng, serial)

    def closed(self, outcome: Outcome, now_s: float) -> Iterable[tuple[float, Request]]:
        return ()


def poisson(shapes: Sequence[tuple[float, Shape]], rate: float, seed: int) -> Open:
    return Open(shapes, lambda _: rate, rate, seed)


def bursts(
    shapes: Sequence[tuple[float, Shape]],
    mean: float,
    seed: int,
    *,
    ratio: float = 35.0,
    length_s: float = 16.0,
    steady: float = 0.2,
) -> Open:
    """Bursts of `ratio` times the mean; a share `steady` of all requests falls between them."""
    peak, every_s = mean * ratio, burst_period_s(ratio, length_s, steady)

    def rate(now_s: float) -> float:
        return peak if 5.0 <= now_s % every_s < 5.0 + length_s else mean * steady

    return Open(shapes, rate, peak, seed)


def burst_period_s(ratio: float = 35.0, length_s: float = 16.0, steady: float = 0.2) -> float:
    return ratio * length_s / (1.0 - steady)


def day(shapes: Sequence[tuple[float, Shape]], seed: int, mean: float = 3.2, peak: float = 110.0) -> Open:
    """A sine by the hour with three bursts of a minute and a half at the full peak."""

    def rate(now_s: float) -> float:
        hour = now_s / 3600.0 % 24.0
        if any(abs(hour - burst) < 0.0125 for burst in (9.5, 13.25, 17.75)):
            return peak
        return mean * 0.96 * (1.0 - 0.8 * cos(2.0 * pi * (hour - 1.0) / 24.0))

    return Open(shapes, rate, peak, seed)


class ClosedLoop:
    """`clients` callers that submit again as soon as they are answered, after `think_s`."""

    def __init__(self, shapes: list[tuple[int, Shape]], seed: int, think_s: float = 0.0, backoff_s: float = 0.005):
        self.shapes, self.rng, self.think_s, self.backoff_s = shapes, Random(seed), think_s, backoff_s
        self.serial = 0
        self.owner: dict[str, Shape] = {}

    def _draw(self, shape: Shape) -> Request:
        self.serial += 1
        request = shape.draw(self.rng, self.serial)
        self.owner[request.id] = shape
        return request

    def arrivals(self) -> Iterator[tuple[float, Request]]:
        now = 0.05
        for count, shape in self.shapes:
            for _ in range(count):
                now += self.rng.uniform(0.0, 0.001)
                yield now, self._draw(shape)

    def closed(self, outcome: Outcome, now_s: float) -> Iterable[tuple[float, Request]]:
        shape = self.owner.pop(outcome.request.id)
        pause = self.think_s if outcome.state == "answered" else max(self.think_s, self.backoff_s)
        yield now_s + pause, self._draw(shape)


class Both:
    """Several loads at once, merged by time."""

    def __init__(self, *parts: "Open | ClosedLoop | Trace"):
        self.parts = parts
        self.owner: dict[str, int] = {}

    def arrivals(self) -> Iterator[tuple[float, Request]]:
        from heapq import merge

        def tagged(index: int) -> Iterator[tuple[float, int, Request]]:
            return ((when, index, request) for when, request in self.parts[index].arrivals())

        for when, index, request in merge(*map(tagged, range(len(self.parts))), key=lambda item: item[:2]):
            if isinstance(self.parts[index], ClosedLoop):
                self.owner[request.id] = index
            yield when, request

    def closed(self, outcome: Outcome, now_s: float) -> Iterable[tuple[float, Request]]:
        index = self.owner.pop(outcome.request.id, None)
        if index is None:
            return
        for when, request in self.parts[index].closed(outcome, now_s):
            self.owner[request.id] = index
            yield when, request


class Trace:
    """A recorded trace: what happened when, replayed as it was."""

    def __init__(self, entries: list[tuple[float, Request]]):
        self.entries = sorted(entries, key=lambda entry: (entry[0], entry[1].id))

    def arrivals(self) -> Iterator[tuple[float, Request]]:
        return iter(self.entries)

    def closed(self, outcome: Outcome, now_s: float) -> Iterable[tuple[float, Request]]:
        return ()
