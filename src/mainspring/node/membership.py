"""One link's life on the node's side, as a `transport.Receiver` around a `wire.link.Link`.

Hello, welcome, `Offer`, `NodeReport` (fresh first, then what changed); `Work` and `OpenLease` go to the scheduler, its
answers come back on their own streams; `FetchBundle` is answered from memory in pieces while the backlog is low. When
the link is lost, passes not begun are forgotten. No decisions: the order of work is `core.agenda`'s, liveness and order
the link's. The clock and `call_later` are given, so the same code runs on a loop and in virtual time.
"""

import logging
from collections.abc import Callable, Sequence
from math import isfinite

from mainspring.node.departure import Departure
from mainspring.node.jobs import Say
from mainspring.node.offering import Offering
from mainspring.node.reports import Reports
from mainspring.node.runner import CallLater, Clock, Runner
from mainspring.node.sending import BundleSender
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.exchanges import CONTROL
from mainspring.wire.link import CloseConnection, Closed, Joined, Link, LinkEvent, Received, Rules
from mainspring.wire.transport import HIGH_BYTES, Connection, Lost

log = logging.getLogger(__name__)
LINGER_S = 3.0
"""Beyond what a transport may take to close."""


class Membership:
    """`ended` is called once, with how the link ended and for how long it had been welcomed (None: never)."""

    def __init__(
        self,
        hello: m.Hello,
        offering: Offering,
        runner: Runner,
        clock: Clock,
        call_later: CallLater,
        ended: Callable[[Closed, float | None], None],
        rules: Rules | None = None,
    ) -> None:
        self.serial = -1
        self.connection: Connection | None = None
        self.link = Link.dial(hello, clock(), rules)
        self.departure = Departure()
        self._offering, self._runner = offering, runner
        self._clock, self._call_later, self._ended = clock, call_later, ended
        self._reports = Reports(runner.scheduler, offering)
        self._sender = BundleSender(offering.packed, offering.bundle, offering.sha256)
        self._joined_s: float | None = None
        self._end: tuple[Closed, float | None] | None = None
        self._due_s = float("inf")
        self._polling = False

    # ------------------------------------------------------ what the transport calls

    def accept(self, connection: Connection) -> "Membership":
        self.connection = connection
        self._call_later(0.0, self.poll)
        return self

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        self._hear(self.link.receive(stream, data, end, self._clock()))

    def stream_reset(self, stream: int) -> None:
        self._hear(self.link.reset(stream, self._clock()))

    def writable(self) -> None:
        """Rounds may go on."""
        self._runner.turn()
        self.poll()

    def connection_lost(self, lost: Lost) -> None:
        self._hear(self.link.lost(lost.close, lost.message, lost.remote, self._clock()))
        self._gone()

    # ------------------------------------------------------ what the node calls

    @property
    def full(self) -> bool:
        """The router takes what is said more slowly than it is made."""
        return self.connection is not None and self.connection.backlog_bytes > HIGH_BYTES

    def say(self, says: Sequence[Say]) -> None:
        for say in says:
            self.link.send(say.stream, say.message, self._clock())
        self.poll()

    def drain(self, within_s: float, reason: str) -> None:
        """Leave in good order: tell the router, run what is held, say goodbye."""
        if self._joined_s is None:
            self.close(Close.GOODBYE, reason)
            return
        now_s = self._clock()
        trip_s = self.link.round_trip_s
        self.link.send(CONTROL, m.Drain(within_s=within_s, reason=reason), now_s)
        self._drain(within_s, now_s, linger_s=2.0 * trip_s if isfinite(trip_s) else 1.0)

    def close(self, close: Close, message: str) -> None:
        self._hear(self.link.close(close, message, self._clock()))

    def poll(self) -> None:
        """Hand the link's output to the transport; reports, pieces of the bundle and the goodbye when they are due."""
        if self._polling:
            return
        self._polling = True
        try:
            self._poll()
        finally:
            self._polling = False

    # ------------------------------------------------------ within

    def _poll(self) -> None:
        now_s = self._clock()
        if self._joined_s is not None:
            self._tell(now_s)
        outputs, events = self.link.poll(now_s)
        connection = self.connection
        if connection is not None:
            for output in outputs:
                if isinstance(output, CloseConnection):
                    connection.close(output.close, output.message)
                else:
                    connection.write(output.stream, output.data, output.end)
        for event in events:
            self._on(event)
        self._wake()

    def _tell(self, now_s: float) -> None:
        report = self._reports.due(now_s)
        if report is not None:
            self.link.send(CONTROL, report, now_s)
        if self.connection is not None:
            for stream, message in self._sender.pieces(self.connection.backlog_bytes):
                self.link.send(stream, message, now_s)
        if self.departure.may_go(self._runner.scheduler.busy, now_s):
            for event in self.link.close(Close.DRAINED, "drained", now_s):
                self._on(event)

    def _hear(self, events: Sequence[LinkEvent]) -> None:
        for event in events:
            self._on(event)
        self._runner.turn()
        self.poll()

    def _on(self, event: LinkEvent) -> None:
        if isinstance(event, Joined):
            self._join()
        elif isinstance(event, Received):
            self._received(event)
        elif isinstance(event, Closed):
            self._closed(event)

    def _join(self) -> None:
        now_s = self._clock()
        self._joined_s = now_s
        self.serial = self._runner.scheduler.joined(now_s)
        self._runner.link = self
        self.link.send(CONTROL, self._offering.offer(generates=self.link.version >= m.GENERATES), now_s)
        log.info("joined as epoch %d", self.link.epoch)

    def _received(self, event: Received) -> None:
        now_s, message, scheduler = self._clock(), event.message, self._runner.scheduler
        says: list[Say] = []
        if isinstance(message, m.Work):
            says = scheduler.work(event.stream, message, event.age_s + self._half_trip_s(), now_s)
        elif isinstance(message, m.OpenLease):
            says = scheduler.lease(event.stream, message)
        elif isinstance(message, m.Cancel):
            says = scheduler.cancel(event.stream, now_s)
        elif isinstance(message, m.FetchBundle):
            self._sender.asked(event.stream, message.bundle)
        elif isinstance(message, m.Release):
            scheduler.release(message.request)
        elif isinstance(message, m.Drain):
            log.info("the router asks to leave within %g s: %s", message.within_s, m.one_line(message.reason))
            self._drain(message.within_s, now_s, linger_s=0.0)
        elif isinstance(message, m.Declined):
            log.error("the router declined the offer (%s): %s", m.one_line(message.code), m.one_line(message.message))
        elif isinstance(message, m.Goodbye):
            log.info("the router says goodbye: %s", m.one_line(message.reason))
        for say in says:
            self.link.send(say.stream, say.message, now_s)

    def _drain(self, within_s: float, now_s: float, *, linger_s: float) -> None:
        self._runner.scheduler.drain(within_s, now_s)
        self.departure.begin(now_s, within_s, linger_s)
        self.poll()

    def _closed(self, closed: Closed) -> None:
        now_s = self._clock()
        lasted_s = None if self._joined_s is None else now_s - self._joined_s
        self._joined_s = None
        self._sender.clear()
        if self._runner.link is self:
            self._runner.link = None
            self._runner.scheduler.lost(self.serial, now_s)
        self._end = closed, lasted_s
        # The transport lingers until the goodbye is out, and then calls `connection_lost`: a process that ended before
        # that would look as if it had crashed.
        self._call_later(LINGER_S if self.connection is not None else 0.0, self._gone)

    def _gone(self) -> None:
        """Once: tells whoever waits for the end."""
        end, self._end = self._end, None
        if end is not None:
            self._ended(*end)

    def _half_trip_s(self) -> float:
        """0 until the first pong: the ping goes out with the welcome's answer, long before any work."""
        trip_s = self.link.round_trip_s
        return trip_s / 2.0 if isfinite(trip_s) else 0.0

    def _wake(self) -> None:
        deadline_s = self.link.next_deadline()
        if deadline_s is None:
            return
        if self._joined_s is not None:
            deadline_s = min(deadline_s, self._reports.due_s(), self.departure.due_s(self._clock()))
        if deadline_s >= self._due_s:
            return
        self._due_s = deadline_s

        def wake() -> None:
            if self._due_s == deadline_s:
                self._due_s = float("inf")
                self.poll()

        self._call_later(max(0.0, deadline_s - self._clock()), wake)
