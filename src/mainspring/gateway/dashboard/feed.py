"""The latest snapshot's JSON, made once a second for all watchers together, and the chart's past.

A watcher that reads slowly skips to the latest: nothing is queued for anybody. Making a snapshot asks nobody: the
gateway polls its router by itself.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mainspring.faultlog import log_fault
from mainspring.gateway.dashboard.history import History
from mainspring.gateway.dashboard.snapshot import Rates, Snapshot, gateway_facts, snapshot_of
from mainspring.gateway.errors import RETRY_S, BusyError

if TYPE_CHECKING:
    from mainspring.gateway.service import Gateway

log = logging.getLogger("mainspring.gateway")

EVERY_S = 1.0


def snapshot(gateway: "Gateway", rates: Rates | None = None) -> Snapshot:
    """What `/status` says now."""
    return snapshot_of(gateway_facts(gateway), gateway.router, age_s=gateway.router_age_s(), rates=rates)


class Feed:
    """`start` begins to keep the past, the first watcher does so at the latest. `gateway.closing` ends every stream."""

    def __init__(self, gateway: "Gateway", *, every_s: float = EVERY_S) -> None:
        self.gateway = gateway
        self._now_s, self._every_s = gateway.now_s, every_s
        self._history = History()
        self._news = asyncio.Condition()
        self._keeper: asyncio.Task[None] | None = None
        self._watchers = 0
        self.closed = False
        self.number = 0
        self.latest = b""

    @property
    def watchers(self) -> int:
        return self._watchers

    def start(self) -> None:
        """Within the loop; again is nothing."""
        if self._keeper is None and not self.closed:
            self.look()
            self._keeper = asyncio.create_task(self._keep(), name="dashboard feed")

    def watch(self) -> None:
        """`unwatch` must follow. BusyError, and then nothing follows."""
        most = self.gateway.config.limits.listeners
        if self._watchers >= most:
            raise BusyError(f"limits.listeners: {most} watch already", retry_after_s=RETRY_S, limit=most)
        self._watchers += 1
        self.gateway.counts.listeners = self._watchers
        try:
            self.start()
            self.look()
        except BaseException:
            self.unwatch()
            raise

    def unwatch(self) -> None:
        self._watchers -= 1
        self.gateway.counts.listeners = self._watchers

    def look(self) -> None:
        """One look: a point of the chart, and where somebody watches, the JSON."""
        status, age_s = self.gateway.router, self.gateway.router_age_s()
        rates = None if status is None else self._history.add(status, self._now_s() - age_s)
        if self._watchers:
            self.latest = msgspec.json.encode(snapshot(self.gateway, rates))
            self.number += 1

    def past(self) -> bytes:
        """JSON of the chart's points up to now."""
        return msgspec.json.encode(self._history.points(self._now_s()))

    async def after(self, number: int) -> int:
        """Waits for a snapshot later than `number`, or the end: the latest one's number."""
        async with self._news:
            await self._news.wait_for(lambda: self.number > number or self.closed)
        return self.number

    async def _keep(self) -> None:
        while not self.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self.gateway.closing.wait()
                    self.closed = True
            try:
                self.look()
            except Exception as error:  # a page must not end the process, nor stay silent
                log_fault(log, error, "no snapshot for the dashboard; the next is tried in %g s", self._every_s)
            async with self._news:
                self._news.notify_all()
