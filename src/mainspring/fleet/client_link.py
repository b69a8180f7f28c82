"""One link on the client's side: a `transport.Receiver` on an event loop, and what was asked on its streams."""

import asyncio
from collections import deque
from collections.abc import Callable

from mainspring.fleet.errors import LinkLostError
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.exchanges import CONTROL
from mainspring.wire.link import CloseConnection, Closed, Joined, Link, LinkEvent, Received
from mainspring.wire.transport import Connection, Lost

SHORTEST_SLEEP_S = 6e-4
"""A loop's timers are a millisecond coarse: what is due sooner would be asked for over and over until then."""
UNREAD = 4096
"""Messages of one request that nobody reads: then it is cancelled."""


class Asked:
    """An exchange: `async with` cancels it unless it is over, `async for` gives its messages up to the last."""

    def __init__(
        self, link: "ClientLink", stream: int, *, cancels: bool, accepted: Callable[[float], None] | None = None
    ) -> None:
        self._link, self._stream, self._accepted = link, stream, accepted
        self.cancels = cancels
        self._messages: deque[m.Message] = deque()
        self._more = asyncio.Event()
        self._fault: Exception | None = None
        self._over = False

    async def __aenter__(self) -> "Asked":
        return self

    async def __aexit__(self, *_error: object) -> None:
        if not self._over:
            self._over = True
            self._link.cancel(self._stream)

    def __aiter__(self) -> "Asked":
        return self

    async def __anext__(self) -> m.Message:
        while not self._messages:
            if self._fault is not None:
                raise self._fault
            if self._over:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._messages.popleft()

    def hear(self, message: m.Message, last: bool) -> None:
        self._over = self._over or last
        if self._accepted is not None and isinstance(message, m.Accepted):
            self._told(message.predicted_s)  # whoever waits for the answer need not wake up for it
            return
        if self._fault is not None:  # an answer that came along with it must not hide it
            return
        if len(self._messages) >= UNREAD and not last:
            self.fail(LinkLostError(f"{UNREAD} messages of one request were not read"))
            self._link.cancel(self._stream)
            return
        self._messages.append(message)
        self._more.set()

    def _told(self, predicted_s: float) -> None:
        assert self._accepted is not None  # noqa: S101 - the caller has looked
        try:
            self._accepted(predicted_s)
        except Exception as error:  # the asker's, and for it alone
            self._fault = self._fault or error
            self._more.set()

    def fail(self, fault: LinkLostError) -> None:
        self._fault = self._fault or fault
        self._over = True
        self._more.set()


class ClientLink:
    """`joined` is called once the router said welcome; `closed` is done when the link is over, `gone` set when its
    connection is too."""

    def __init__(self, hello: m.Hello, now_s: Callable[[], float], joined: Callable[[], None]) -> None:
        self._now_s, self._joined = now_s, joined
        self._loop = asyncio.get_running_loop()
        self._link = Link.dial(hello, now_s())
        self._connection: Connection | None = None
        self._asked: dict[int, Asked] = {}
        self._armed_s = float("inf")
        self.closed: asyncio.Future[Closed] = self._loop.create_future()
        self.gone = asyncio.Event()
        self.draining = False

    def accept(self, connection: Connection) -> "ClientLink":
        self._connection = connection
        self._loop.call_soon(self._turn)
        return self

    def ask(
        self, message: m.Submit | m.AskStatus | m.FetchBundle, accepted: Callable[[float], None] | None = None
    ) -> Asked:
        """`accepted(predicted_s)` is called instead of giving the message out; what it raises comes from the iteration.
        LimitError when as many requests are open as the router allows; LinkLostError when the link just ended."""
        try:
            stream = self._link.open(message, self._now_s())
        except ValueError as error:
            raise LinkLostError("the link has just ended") from error
        asked = self._asked[stream] = Asked(self, stream, cancels=isinstance(message, m.Submit), accepted=accepted)
        self._turn()
        return asked

    def cancel(self, stream: int) -> None:
        """A fetch can't be taken back: what still comes of it is not kept."""
        asked = self._asked.pop(stream, None)
        if asked is not None and asked.cancels:
            self._link.send(stream, m.Cancel(), self._now_s())
            self._turn()

    def close(self, close: Close, message: str) -> None:
        self._take(self._link.close(close, message, self._now_s()))
        self._turn()

    # -------------------------------------------------------------- what the transport calls

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        self._take(self._link.receive(stream, data, end, self._now_s()))
        self._turn()

    def stream_reset(self, stream: int) -> None:
        self._take(self._link.reset(stream, self._now_s()))
        self._turn()

    def writable(self) -> None:
        """Nothing here is held back: a request is one frame."""

    def connection_lost(self, lost: Lost) -> None:
        self.gone.set()
        self._take(self._link.lost(lost.close, lost.message, lost.remote, self._now_s()))
        self._turn()

    # -------------------------------------------------------------- within

    def _take(self, events: list[LinkEvent]) -> None:
        for event in events:
            if isinstance(event, Joined):
                self._joined()
            elif isinstance(event, Received):
                self._hear(event)
            elif isinstance(event, Closed):
                self._end(event)

    def _hear(self, event: Received) -> None:
        if event.stream == CONTROL:
            self.draining = self.draining or isinstance(event.message, m.Drain)
            return
        asked = self._asked.get(event.stream)
        if event.last:
            self._asked.pop(event.stream, None)
        if asked is not None:
            asked.hear(event.message, event.last)

    def _end(self, closed: Closed) -> None:
        asked, self._asked = self._asked, {}
        for each in asked.values():
            each.fail(LinkLostError(f"the link ended before the answer: {closed.close.name.lower()} {closed.message}"))
        if not self.closed.done():
            self.closed.set_result(closed)

    def _turn(self) -> None:
        outputs, events = self._link.poll(self._now_s())
        self._take(events)
        for output in outputs:
            assert self._connection is not None  # noqa: S101 - nothing is polled before it is there
            if isinstance(output, CloseConnection):
                self._connection.close(output.close, output.message)
            else:
                self._connection.write(output.stream, output.data, output.end)
        due_s = self._link.next_deadline()
        if due_s is not None and due_s < self._armed_s:
            self._armed_s = due_s
            self._loop.call_later(max(SHORTEST_SLEEP_S, due_s - self._now_s()), self._due, due_s)

    def _due(self, due_s: float) -> None:
        """Whatever is heard puts the deadline off: the timer stays as it was set, comes too early and is set again."""
        if due_s == self._armed_s:
            self._armed_s = float("inf")
            self._turn()
