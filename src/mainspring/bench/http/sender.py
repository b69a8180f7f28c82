"""The open loop: sends each request at its time over aiohttp and notes how it ended.

At most `most_open` requests are open; one that would exceed it is not sent and counted as that, never skipped in
silence. `hang_up` and `hurry` are shares of requests that leave early, or that come with a deadline too short to wait
long: what soaks are made of.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

import aiohttp
from msgspec import Struct

from mainspring.bench.http.figures import Ending, Endings

MOST_OPEN = 4096
SPIN_S = 0.0005
"""An event loop's timers are a millisecond coarse: what is due within this long is sent at once."""


class Target(Struct, frozen=True, kw_only=True):
    """`url` of the route; several, with commas between them, are asked in turn. A share `hang_up` of the requests leave
    after `patience_s` (uniform). A share `second` come in `second_class`, and of the others a share `hurry` carry a
    deadline within `hurry_ms`."""

    url: str
    api_key: str | None = None
    slo_class: str = ""
    deadline_ms: float | None = None
    timeout_s: float = 60.0
    most_open: int = MOST_OPEN
    hang_up: float = 0.0
    patience_s: tuple[float, float] = (0.0, 0.2)
    hurry: float = 0.0
    hurry_ms: tuple[float, float] = (20.0, 200.0)
    second: float = 0.0
    second_class: str = ""

    def headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key}"
        if self.slo_class:
            headers["x-slo-class"] = self.slo_class
        if self.deadline_ms is not None:
            headers["x-deadline-ms"] = f"{self.deadline_ms:.0f}"
        return headers


class Sender:
    """One run. `endings` fills as answers come; `run` returns when all are in or timed out."""

    def __init__(self, target: Target, *, seed: int = 0, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.target = target
        self.endings = Endings()
        self._headers = target.headers()
        self._chance = random.Random(seed)  # noqa: S311 - a seed makes runs repeatable
        self._now_s = now_s
        self._open: set[asyncio.Task[None]] = set()
        self._urls = cycle(target.url.split(","))
        self._session: aiohttp.ClientSession

    async def run(self, bodies: Iterator[bytes], times_s: Iterable[float]) -> Endings:
        """Bodies are made between sends, one ahead."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
        timeout = aiohttp.ClientTimeout(total=self.target.timeout_s)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        ) as self._session:
            began_s = self._now_s()
            for at_s in times_s:
                body = next(bodies)
                while (left_s := began_s + at_s - self._now_s()) > SPIN_S:
                    await asyncio.sleep(left_s - SPIN_S / 2)
                self._send(body, at_s, began_s)
                if left_s < 0.0:
                    await asyncio.sleep(0)  # behind its own plan: what is open must still be heard
            self.endings.sent_s = self._now_s() - began_s
            if self._open:
                await asyncio.wait(set(self._open), timeout=self.target.timeout_s + 5.0)
            for task in self._open:
                task.cancel()
            self.endings.seconds = self._now_s() - began_s
        return self.endings

    def _send(self, body: bytes, at_s: float, began_s: float) -> None:
        url = next(self._urls)  # here, so that the nth body goes to the nth address whatever becomes of the others
        if len(self._open) >= self.target.most_open:
            self.endings.add(Ending(at_s, 0.0, 0.0, 0, "not_sent"))
            return
        task = asyncio.get_running_loop().create_task(self._ask(url, body, at_s, began_s))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _ask(self, url: str, body: bytes, at_s: float, began_s: float) -> None:
        target, headers = self.target, self._headers
        late_s = self._now_s() - began_s - at_s
        if target.second and self._chance.random() < target.second:
            headers = {**headers, "x-slo-class": target.second_class}
        elif target.hurry and self._chance.random() < target.hurry:
            within_ms = self._chance.uniform(*target.hurry_ms)
            headers = {**headers, "x-deadline-ms": f"{within_ms:.2f}"}
        leaves = target.hang_up > 0.0 and self._chance.random() < target.hang_up
        status, reason, timing, predicted = 0, "", "", ""
        try:
            async with asyncio.timeout(self._chance.uniform(*target.patience_s) if leaves else None):
                async with self._session.post(url, data=body, headers=headers) as response:
                    told = await response.read()
                    status = response.status
                    timing = response.headers.get("server-timing", "")
                    predicted = response.headers.get("x-predicted-ms", "")
        except TimeoutError:
            reason = "hung_up" if leaves else "client_timeout"
        except (aiohttp.ClientError, OSError) as error:
            reason = type(error).__name__
        latency_s = self._now_s() - began_s - at_s
        if status >= 400:
            reason = self.endings.reason_of(told)
        self.endings.add(Ending(at_s, late_s, latency_s, status, reason, timing, predicted))
