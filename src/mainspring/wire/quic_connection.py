"""A QUIC connection of the fleet by qh3, without sockets or clock: windows, streams, and the contexts of `mutual_tls`.

Written against qh3 2.1: what is overridden are its seams (`_create_tls`, `_create_core`), nothing of it is patched.
"""

import logging
import ssl
from collections.abc import Callable
from typing import Any

from qh3._hazmat import Buffer, QuicConnectionCore
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection, QuicConnectionState
from qh3.quic.packet import pull_quic_transport_parameters, push_quic_transport_parameters
from qh3.quic.tls_bridge import QuicTlsBridge

from mainspring.wire.keyring import Keyring
from mainspring.wire.mutual_tls import SIGNATURE, FleetContext, ListenerContext
from mainspring.wire.tls_channel import ALPN
from mainspring.wire.transport import WINDOW_BYTES, Identity

logging.getLogger("quic").setLevel(logging.ERROR)  # qh3 warns of every close; what matters is said by us

IDLE_S = 330.0
"""Above the longest idle timeout of a link (300 s): the link decides."""
STREAMS = 2048
"""Each side may open so many at a time: twice what a link allows, for those whose end is still on the way."""
CID_BYTES = 8
_ACK_DELAY_EXPONENT, _MOST_CIDS, _ACK_DELAY_S = 3, 8, 0.025

Address = tuple[Any, ...]


def configuration_of(keyring: Keyring, *, server_name: str | None, anonymous: bool = False) -> QuicConfiguration:
    """`server_name` given: the dialer's side. ValueError, ssl.SSLError for files that make no sense."""
    configuration = QuicConfiguration(
        is_client=server_name is not None,
        alpn_protocols=[ALPN],
        connection_id_length=CID_BYTES,
        idle_timeout=IDLE_S,
        max_data=WINDOW_BYTES,
        max_stream_data=WINDOW_BYTES,
        server_name=server_name,
        signature_algorithms=[SIGNATURE],
        active_connection_id_limit=_MOST_CIDS,
    )
    configuration.load_verify_locations(cadata=keyring.credentials.ca)
    if not anonymous:
        configuration.load_cert_chain(keyring.credentials.certificate, keyring.credentials.key)
    return configuration


class FleetBridge(QuicTlsBridge):
    """qh3's, with our context in place of its own and room for more streams."""

    def __init__(self, configuration: QuicConfiguration, context: Callable[..., FleetContext], **options: Any) -> None:
        super().__init__(configuration, **options)
        theirs, client = self.tls, configuration.is_client
        self.tls = context(
            is_client=client,
            alpn_protocols=configuration.alpn_protocols,
            cadata=configuration.cadata,
            server_name=configuration.server_name,
            verify_mode=ssl.CERT_REQUIRED if client else ssl.CERT_NONE,
            signature_algorithms=[SIGNATURE],
        )
        self.tls.certificate = theirs.certificate
        self.tls.certificate_chain = theirs.certificate_chain
        self.tls.certificate_private_key = theirs.certificate_private_key
        self.tls.handshake_extensions = theirs.handshake_extensions
        self.tls.alpn_cb = theirs.alpn_cb
        self.tls.update_traffic_key_cb = theirs.update_traffic_key_cb

    def serialize_transport_parameters(self) -> bytes:
        parameters = pull_quic_transport_parameters(Buffer(data=super().serialize_transport_parameters()))
        parameters.initial_max_streams_bidi = STREAMS
        parameters.initial_max_streams_uni = 0
        buffer = Buffer(capacity=4096)
        push_quic_transport_parameters(buffer, parameters)
        return buffer.data


class FleetConnection(QuicConnection):
    """One QUIC connection of the fleet, without sockets or clock (but Unix time for certificates)."""

    def __init__(
        self, keyring: Keyring, wall_s: Callable[[], float], *, server_name: str | None = None,
        original_destination: bytes | None = None, retry_source: bytes | None = None, anonymous: bool = False,
    ) -> None:  # fmt: skip
        """`server_name` given: the dialer's side. `anonymous`: without a certificate, for tests and the self-check."""
        self._keyring, self._wall_s, self._wanted_name = keyring, wall_s, server_name
        super().__init__(
            configuration=configuration_of(keyring, server_name=server_name, anonymous=anonymous),
            original_destination_connection_id=original_destination,
            retry_source_connection_id=retry_source,
        )

    @property
    def identity(self) -> Identity | None:
        """The peer, once the handshake is complete."""
        context = self.tls
        return context.identity if self._handshake_complete and isinstance(context, FleetContext) else None

    @property
    def fault(self) -> Exception | None:
        """Why we refused the peer, if we did."""
        context = self.tls
        return context.fault if isinstance(context, FleetContext) else None

    def _create_tls(self, remote_source_cid: bytes | None) -> QuicTlsBridge:
        def context(**options: Any) -> FleetContext:
            kind = FleetContext if self._is_client else ListenerContext
            return kind(self._keyring, self._wall_s, self._wanted_name, **options)

        self._tls = FleetBridge(
            self._configuration,
            context,
            version=self._version,
            local_initial_source_connection_id=self.host_cid,
            remote_initial_source_connection_id=remote_source_cid,
            original_destination_connection_id=self._original_destination_connection_id,
            retry_source_connection_id=self._retry_source_connection_id,
        )
        return self._tls

    def _create_core(self, remote_addr: Address, initial_dcid: bytes, now: float) -> None:
        """The library's own, but for `STREAMS`, which it has as a literal, and without early data."""
        configuration, client, version = self._configuration, self._is_client, self._version
        assert version is not None  # noqa: S101 - set before, on either side
        window, stream_window = configuration.max_data, configuration.max_stream_data
        self._core = QuicConnectionCore(
            client, version, ("0.0.0.0", 0), remote_addr, self.host_cid, initial_dcid,  # noqa: S104 - no socket
            client or self._retry_source_connection_id is not None, _MOST_CIDS, configuration.max_datagram_size,
            configuration.probe_datagram_size, configuration.idle_timeout, _ACK_DELAY_EXPONENT, None, None,
            window, 0, stream_window, 0, 0, 0, stream_window, STREAMS, 0, 0, 0,
            configuration.initial_rtt, _ACK_DELAY_S, now,
        )  # fmt: skip
        self._applied_transport_parameters = None
        self._pre_handshake_state_replayed = False

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """As the library's, which parses every datagram again for a log that nobody keeps.

        Under heavy loss qh3 2.1.0 may raise "reserved stream is missing" here. A frame is lost for good then, though
        the next call goes on as if nothing were: whoever catches it has to end the connection.
        """
        datagrams: list[tuple[bytes, Address]] = []
        if self._core is not None:
            while (transmit := self._call_core(self._core.poll_transmit, now)) is not None:
                datagrams.append((transmit[0], transmit[1]))
        return datagrams

    def may_open(self, stream: int) -> bool:
        """False while the peer has not yet allowed a stream of ours that far."""
        return self._core is not None and stream >> 2 < self._core.stream_limits[0]

    @property
    def remote_address(self) -> str | None:
        """Of the path in use: validated, unlike the source of the last datagram."""
        if self._core is None:
            return None
        place = self._core.active_path[2]
        return f"{place[0]}:{place[1]}"

    @property
    def idle(self) -> bool:
        """Everything written was acknowledged."""
        return self._core is None or (self._core.bytes_in_flight == 0 and not self._core.get_send_buffer_size())

    @property
    def ending(self) -> tuple[int, int | None, str] | None:
        """Code, frame type (None: the application's close) and reason, as soon as either side has closed. The library's
        own event comes after the draining period."""
        event = self._close_event
        return None if event is None else (event.error_code, event.frame_type, event.reason_phrase)

    @property
    def may_update_keys(self) -> bool:
        return self._handshake_confirmed and self._state is QuicConnectionState.CONNECTED
