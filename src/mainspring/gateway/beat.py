"""The timer that tells `Pressure` how late a loop is: it should come every `BEAT_S`."""

import asyncio
from collections.abc import Callable

from mainspring.gateway.pressure import BEAT_S, Pressure


class Beat:
    """From `start`, within a running loop, to `stop`."""

    def __init__(self, pressure: Pressure, now_s: Callable[[], float]) -> None:
        self._pressure, self._now_s = pressure, now_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.came(self._now_s())

    def came(self, due_s: float) -> None:
        now_s = self._now_s()
        self._pressure.beat(due_s, now_s)
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self.came, now_s + BEAT_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
