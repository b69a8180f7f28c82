"""Which datagram belongs to which connection, and who may begin one: a QUIC port without its socket.

Connections are found by our connection ids, wherever their datagrams come from: that is how a peer keeps its link
through a new address. Handshakes are counted and capped (`guests`); while many are open, newcomers have to prove their
address first (`quic_retry`).
"""

import logging
import os
from collections.abc import Callable

from qh3._hazmat import pull_quic_header
from qh3.quic.packet import (
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
)

from mainspring.wire.clock import Clock
from mainspring.wire.errors import Close
from mainspring.wire.guests import Guests
from mainspring.wire.keyring import Keyring
from mainspring.wire.quic_channel import QuicChannel
from mainspring.wire.quic_connection import CID_BYTES, Address, FleetConnection
from mainspring.wire.quic_retry import Retry
from mainspring.wire.transport import Accept, Connection, Receiver
from mainspring.wire.watch import Watch

log = logging.getLogger(__name__)

RETRY_FROM = 32
SMALLEST_INITIAL = 1200
VERSIONS = [int(QuicProtocolVersion.VERSION_1)]


class QuicListener:
    """`send(datagrams, address)` is the socket; `pause` and `resume` its complaints."""

    def __init__(
        self, keyring: Keyring, clock: Clock, wall_s: Callable[[], float], accept: Accept, watch: Watch,
        send: Callable[[list[bytes], Address], None], guests: Guests | None = None, retry_from: int = RETRY_FROM,
    ) -> None:  # fmt: skip
        self.guests = guests or Guests()
        self._keyring, self._clock, self._wall_s = keyring, clock, wall_s
        self._accept, self._watch, self._send = accept, watch, send
        self._retry, self._retry_from = Retry(), retry_from
        self._routes: dict[bytes, QuicChannel] = {}
        self._hosts: dict[QuicChannel, str] = {}
        self.paused = False

    @property
    def channels(self) -> int:
        return len(self._hosts)

    def receive(self, datagrams: list[bytes], address: Address) -> None:
        """Datagrams of one address, in order; runs of one connection are handed on together."""
        run: list[bytes] = []
        owner: QuicChannel | None = None
        for data in datagrams:
            channel = self._routes.get(data[1 : 1 + CID_BYTES]) if data and not data[0] & 0x80 else self._long(
                data, address
            )  # fmt: skip
            if channel is not owner and owner is not None:
                owner.receive(run, address)
                run = []
            owner = channel
            if channel is not None:
                run.append(data)
        if owner is not None:
            owner.receive(run, address)

    def pause(self) -> None:
        self.paused = True
        for channel in self._hosts:
            channel.paused = True

    def resume(self) -> None:
        self.paused = False
        for channel in list(self._hosts):
            channel.resume()

    def abort(self) -> None:
        for channel in list(self._hosts):
            channel.abort()

    # -------------------------------------------------------------- within

    def _long(self, data: bytes, address: Address) -> QuicChannel | None:
        """Of a handshake, or rubbish."""
        try:
            header = pull_quic_header(data, 0, CID_BYTES)
        except ValueError:
            return None
        version, kind, destination, source, token = header[0], header[1], header[3], header[4], header[5]
        channel = self._routes.get(destination)
        if channel is not None or len(data) < SMALLEST_INITIAL:
            return channel
        if version is not None and version not in VERSIONS:
            if version:  # 0 is a version negotiation: never answered with another
                self._send([encode_quic_version_negotiation(destination, source, VERSIONS)], address)
            return None
        if version is None or kind != int(QuicPacketType.INITIAL) or not source:
            return None
        return self._begin(version, destination, source, token, address)

    def _begin(
        self, version: int, destination: bytes, source: bytes, token: bytes, address: Address
    ) -> QuicChannel | None:
        host, place, now_s = str(address[0]), f"{address[0]}:{address[1]}", self._clock.time()
        original, retry_source = destination, None
        if token:
            checked = self._retry.check(token, place, now_s)
            if checked is None:
                return None
            original, retry_source = checked
        elif self.guests.open_handshakes >= self._retry_from:
            retry_source = os.urandom(CID_BYTES)
            token = self._retry.token(place, destination, retry_source, now_s)
            self._send([encode_quic_retry(version, retry_source, source, destination, token)], address)
            return None
        if why := self.guests.enter(host):
            self.guests.turn_away(log, host, why)
            return None
        connection = FleetConnection(
            self._keyring, self._wall_s, original_destination=original, retry_source=retry_source
        )
        channel = QuicChannel(
            connection, self._clock, self._send, self._join, self._leave, dialer=False, routes=self._route
        )
        channel.paused = self.paused
        self._hosts[channel] = host
        self._watch.add(channel)
        self._routes[destination] = self._routes[connection.host_cid] = channel
        return channel

    def _join(self, connection: Connection) -> Receiver:
        receiver = self._accept(connection)
        assert isinstance(connection, QuicChannel)  # noqa: S101 - for the types
        self.guests.join(self._hosts[connection])
        return receiver

    def _leave(self, channel: QuicChannel) -> None:
        self.guests.leave(self._hosts.pop(channel), joined=channel.joined)
        self._watch.discard(channel)
        for cid in [cid for cid, owner in self._routes.items() if owner is channel]:
            del self._routes[cid]
        if not channel.joined and channel.lost is not None and channel.lost.close is not Close.GOODBYE:
            log.info("no handshake with %s: %s", channel.address, channel.lost.message)

    def _route(self, channel: QuicChannel, cid: bytes, add: bool) -> None:
        if add:
            self._routes.setdefault(cid, channel)
        elif self._routes.get(cid) is channel:
            del self._routes[cid]
