"""A machine on which time passes only when told to."""

from collections.abc import Callable
from pathlib import Path

from mainspring.bench import Host
from mainspring.bench.load import Mark


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class FakeLoad:
    """`looks` are the gate's figures in turn (the last one stays); `during` is every sample's."""

    cores = 4

    def __init__(self, looks: tuple[float, ...] = (0.0,), during: float | None = 0.0) -> None:
        self.looks = list(looks)
        self.during = during

    def mark(self) -> Mark:
        return Mark(0.0, 0.0, 0.0)

    def others_since(self, _mark: Mark, /) -> float | None:
        return self.during

    def others_now(self, _mark: Mark, /) -> float:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def fake_host(folder: Path, clock: FakeClock, load: FakeLoad | None = None, say: Callable[[str], object] = len) -> Host:
    return Host(clock_ns=clock, sleep=clock.advance, load=load or FakeLoad(), lock_path=folder / "lock", say=say)
