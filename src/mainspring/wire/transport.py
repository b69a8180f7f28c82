"""What a transport is: reliable, ordered byte streams to one peer whose certificate was verified.

QUIC, TLS over TCP and memory look alike from here. Callbacks instead of coroutines, as in `asyncio.Protocol`: the same
shell runs under a real loop and under virtual time, and a chunk costs one call.

Stream ids are QUIC's on every transport: bit 0 says who opened (0 the dialer, 1 the listener), bit 1 is 0 (both ways),
so the dialer opens 0, 4, 8 ..., the listener 1, 5, 9 ... Writing to an id opens it; a side's ids are used in order.
Streams do not wait for each other. Each direction of a stream ends by itself with `end`.

Flow control. A reader never stops a peer: what is read is consumed at once, and its volume is bounded by counting (open
streams, caps of frames, the router's cap on payloads), so the windows of a transport only have to be larger than the
largest frame (`WINDOW_BYTES`). A writer watches `backlog_bytes`: above `HIGH_BYTES` it offers no new work or tokens
until `writable()`; a peer that lets it pass `STUCK_BYTES` is cut off (`Close.LIMIT`).
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from mainspring.wire.errors import Close
from mainspring.wire.records import Role

WINDOW_BYTES = 32 << 20
HIGH_BYTES = 4 << 20
LOW_BYTES = 1 << 20
STUCK_BYTES = 64 << 20


class Identity(Struct, frozen=True):
    """Who a verified certificate says the peer is: its one URI `spiffe://FLEET/ROLE/NAME`, of a client in a realm
    `spiffe://FLEET/client/NAME/REALM`. Clients of one realm share the views that they name, others share nothing.

    `serial` and `not_after_s` (Unix seconds) let the shell end a link whose certificate is revoked or expires while it
    lasts: the shell compares them with its wall clock and the revocation list at least once in 30 s.
    """

    fleet: str
    role: Role
    name: str
    serial: str = ""
    not_after_s: float = float("inf")
    realm: str = ""


class Lost(Struct, frozen=True):
    """The end of a connection. `remote`: the peer closed, with this code; else it is this side's or nobody's doing."""

    close: Close
    message: str = ""
    remote: bool = False


class Connection(Protocol):
    """One peer, handshake done on both sides as far as this side can tell. Calls after the end are ignored."""

    @property
    def dialer(self) -> bool:
        """True on the side that dialled."""
        ...

    @property
    def peer(self) -> Identity:
        """Verified before this object was handed out."""
        ...

    @property
    def address(self) -> str:
        """For people; changes when the peer's address does."""
        ...

    @property
    def transport(self) -> str:
        """`quic`, `tcp` or `memory`."""
        ...

    @property
    def backlog_bytes(self) -> int:
        """Written and not yet taken by the network."""
        ...

    def write(self, stream: int, data: bytes, end: bool = False) -> None:
        """Never blocks, keeps order within the stream. `end` closes our direction."""
        ...

    def close(self, close: Close, message: str = "") -> None:
        """Tells the peer if it still can; what was written before is sent first for as long as the transport lingers
        (at most a second). `connection_lost` follows on both sides; on ours when that is done."""
        ...


class Receiver(Protocol):
    """The shell's side of a connection. Calls come one at a time and never from within a call to the connection."""

    def data_received(self, stream: int, data: bytes, end: bool) -> None: ...

    def stream_reset(self, stream: int) -> None:
        """The peer gave the stream up; in a sound exchange nobody does."""
        ...

    def writable(self) -> None:
        """The backlog fell below `LOW_BYTES` after it had been above `HIGH_BYTES`."""
        ...

    def connection_lost(self, lost: Lost) -> None:
        """The last call, exactly once."""
        ...


Accept = Callable[[Connection], Receiver]
"""Called for each new connection once the peer is verified; raising WireError closes it with that error's code."""


class Endpoint(Protocol):
    """An open port."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def stop(self) -> None:
        """Takes no more connections and closes those there are (`Close.GOODBYE`)."""
        ...


class Transport(Protocol):
    """Made once from a certificate, a key, the fleet's CA and its revocation list. Nothing here retries: backoff is the
    shell's."""

    async def listen(self, host: str, port: int, accept: Accept) -> Endpoint:
        """Raises `SelfCheckError` when a handshake with itself comes out wrong: then no port is opened."""
        ...

    async def dial(self, host: str, port: int, accept: Accept) -> Connection:
        """Raises ConnectionError (nobody there, UDP blocked, timed out) or IdentityError (not the fleet's router)."""
        ...
