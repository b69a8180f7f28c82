"""Between the shell and a transport: connections in, callbacks to the shell, one timer. Clock and timer are given.

driver = Driver(shell, clock, loop.call_later)
await transport.listen(host, port, driver.accept)
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress

from mainspring.faultlog import log_fault
from mainspring.fleet.links import Peer
from mainspring.fleet.offloop import Done, attempt
from mainspring.fleet.shell import Shell
from mainspring.wire.errors import Close
from mainspring.wire.transport import Connection, Lost

log = logging.getLogger("mainspring.fleet")

CallLater = Callable[[float, Callable[[], None]], object]
LONGEST_SLEEP_S = 60.0
SHORTEST_SLEEP_S = 6e-4
"""A loop's timers are a millisecond coarse (uvloop rounds to the nearest): what is due sooner would come at once and be
set again, 70 times a request of 8,000 tokens. A pass may so leave a millisecond later than the core wished."""


class Driver:
    """`accept` is what a transport's `listen` is given. After `Shell` calls from elsewhere, call `arm`.

    `executor` runs what blocks, `to_loop` brings its end back; without them it is done on the spot."""

    def __init__(
        self, shell: Shell, clock: Callable[[], float], call_later: CallLater, executor: Executor | None = None,
        to_loop: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:  # fmt: skip
        self.shell = shell
        self.clock = clock
        self._call_later = call_later
        self._armed_s = float("inf")
        self._timer = 0
        self._read_s = clock()
        self._ahead_s = 0.0
        if executor is not None and to_loop is not None:
            self._executor, self._to_loop = executor, to_loop
            shell.off_loop.blocking = self._block

    def now_s(self) -> float:
        """The clock, going on from where it was after a step back."""
        read_s = self.clock()
        if read_s < self._read_s:
            self._ahead_s += self._read_s - read_s
        self._read_s = read_s
        return read_s + self._ahead_s

    def accept(self, connection: Connection) -> "Port":
        peer = self.shell.accept(connection, self.now_s())
        self.arm()
        return Port(self, peer)

    def arm(self) -> None:
        """Timers are not taken back, since a virtual clock's can't be: one that was overtaken does nothing."""
        now_s = self.now_s()
        due_s = min(self.shell.next_deadline(), now_s + LONGEST_SLEEP_S)
        if due_s < self._armed_s:
            self._armed_s = due_s
            self._timer += 1
            timer = self._timer
            self._call_later(max(SHORTEST_SLEEP_S, due_s - now_s), lambda: self._due(timer))

    def _block(self, work: Callable[[], object], done: Done) -> None:
        def back(outcome: object) -> None:
            done(outcome, self.now_s())
            self.arm()

        def hand_over(future: "Future[object]") -> None:
            if not future.cancelled():
                with suppress(RuntimeError):  # the loop is closed: nobody is left to hear of it
                    self._to_loop(lambda: back(future.result()))

        self._executor.submit(attempt, work).add_done_callback(hand_over)

    def _due(self, timer: int) -> None:
        if timer == self._timer:
            self._armed_s = float("inf")
            self.shell.timer(self.now_s())
            self.arm()


class Port:
    """`transport.Receiver` for one connection. What the shell did not expect ends this link and no other."""

    def __init__(self, driver: Driver, peer: Peer) -> None:
        self._driver = driver
        self.peer = peer

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        self._call(lambda shell, now_s: shell.received(self.peer, stream, data, end, now_s))

    def stream_reset(self, stream: int) -> None:
        self._call(lambda shell, now_s: shell.reset(self.peer, stream, now_s))

    def writable(self) -> None:
        self._call(lambda shell, now_s: shell.writable(self.peer, now_s))

    def connection_lost(self, lost: Lost) -> None:
        self._call(lambda shell, now_s: shell.lost(self.peer, lost.close, lost.message, lost.remote, now_s))

    def _call(self, do: Callable[[Shell, float], None]) -> None:
        try:
            do(self._driver.shell, self._driver.now_s())
        except Exception as error:
            log_fault(log, error, "a fault on the link of %s %s", self.peer.role, self.peer.name)
            self.peer.connection.close(Close.INTERNAL, "internal fault")
        self._driver.arm()
