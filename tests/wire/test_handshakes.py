"""Who gets in, on each transport, in memory: the self-check's own handshake with certificates wrong in one way each."""

import ssl

import pytest
from qh3 import tls

from mainspring.wire import selfcheck
from mainspring.wire.errors import LimitError, SelfCheckError, WireError
from mainspring.wire.keyring import Keyring
from mainspring.wire.mutual_tls import FleetContext, ListenerContext
from mainspring.wire.pki import PkiError
from mainspring.wire.selfcheck import check_quic, check_tcp, shake_quic, shake_tcp
from mainspring.wire.tls_channel import HANDSHAKE_BYTES, TlsChannel, context_of
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.fleet_pki import HOST, NODE, NOW_S, ROUTER, ring, showing
from support.quic_pairs import buffers, listener_context, pump, quic_pair

SHAKES = {"tcp": shake_tcp, "quic": shake_quic}
STOLEN = pki.posing_key(pki.THIEF.key, NODE.key)


@pytest.fixture(params=SHAKES)
def shake(request: pytest.FixtureRequest) -> selfcheck.Handshake:
    return SHAKES[request.param]  # type: ignore[no-any-return]


def test_a_good_certificate_is_taken(shake: selfcheck.Handshake) -> None:
    router, node = shake(ring(NODE), ring(ROUTER), True, host=HOST)
    assert router is not None
    assert node is not None
    assert (router.fleet, router.role, router.name) == ("fleet", "router", "hill")
    assert (node.fleet, node.role, node.name) == ("fleet", "node", "ant")
    assert node.not_after_s > NOW_S


def test_a_client_is_taken_too(shake: selfcheck.Handshake) -> None:
    _, client = shake(ring(pki.OURS.issue("client", "gate", NOW_S)), ring(ROUTER), True, host=HOST)
    assert client is not None
    assert (client.role, client.name) == ("client", "gate")


@pytest.mark.parametrize("host", ["hill", HOST, "127.0.0.1", "::1", "localhost"])
def test_names_and_addresses_a_router_is_dialled_by(shake: selfcheck.Handshake, host: str) -> None:
    router, node = shake(ring(NODE), ring(ROUTER), True, host=host)
    assert router is not None
    assert node is not None


def test_no_certificate_is_refused(shake: selfcheck.Handshake) -> None:
    _, node = shake(ring(NODE), ring(ROUTER), False, host=HOST)
    assert node is None


@pytest.mark.parametrize(
    "shown",
    [
        showing(pki.ROGUE), showing(pki.EXPIRED), showing(pki.EARLY), showing(pki.WRONG_USE), showing(pki.WRONG_FLEET),
    ],
    ids=["another CA", "expired", "not valid yet", "wrong use", "another fleet"],
)  # fmt: skip
def test_a_certificate_that_is_wrong_in_one_way_is_refused(shake: selfcheck.Handshake, shown: Keyring) -> None:
    router, node = shake(shown, ring(ROUTER), True, host=HOST)
    assert node is None
    assert router is not None  # TLS 1.3: the dialer believes itself connected


def test_a_stolen_certificate_without_its_key_is_refused() -> None:
    router, node = shake_quic(showing(NODE, pki.THIEF.key), ring(ROUTER), host=HOST)
    assert (router is not None, node) == (True, None)
    router, node = shake_tcp(showing(NODE, STOLEN), ring(ROUTER), host=HOST)
    assert (router is not None, node) == (True, None)


@pytest.mark.parametrize("shown", [showing(pki.ED25519), showing(pki.P384)], ids=["Ed25519", "P-384"])
def test_a_key_that_is_not_of_p256_is_refused(shake: selfcheck.Handshake, shown: Keyring) -> None:
    _, node = shake(shown, ring(ROUTER), True, host=HOST)
    assert node is None


def test_a_revoked_certificate_is_refused(shake: selfcheck.Handshake, tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "revoked.pem"  # type: ignore[operator]
    serial = int(ring(NODE).trust.own.serial, 16)
    path.write_bytes(pki.OURS.revocation_list([serial], NOW_S))
    router = Keyring(ring(ROUTER).credentials, path)
    _, node = shake(ring(NODE), router, True, host=HOST)
    assert node is None
    _, other = shake(ring(pki.THIEF), router, True, host=HOST)
    assert other is not None


@pytest.mark.parametrize(
    ("shown", "host"),
    [
        (showing(pki.ROGUE_ROUTER, as_router=True), HOST),
        (showing(pki.EXPIRED_ROUTER, as_router=True), HOST),
        (showing(NODE, as_router=True), HOST),
        (ring(ROUTER), "elsewhere.test"),
        (ring(ROUTER), "10.9.8.7"),
    ],
    ids=["another CA", "expired", "a node", "another name", "another address"],
)
def test_the_dialer_turns_away_from_a_router_that_is_not_ours(
    shake: selfcheck.Handshake, shown: Keyring, host: str
) -> None:
    assert shake(ring(NODE), shown, True, host=host) == (None, None)


# ------------------------------------------------------------------ the self-check


def test_the_self_check_passes() -> None:
    check_tcp()
    check_quic()


def test_a_server_that_lets_anybody_in_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What qh3's own context does."""

    class Trusting(ListenerContext):
        def _take_message(self, message: bytes, output: object) -> None:
            if message[0] == tls.HandshakeType.CERTIFICATE and len(message) < 12:
                self.identity = ring(NODE).trust.own
                self._schedule.update_hash(message)
            else:
                super()._take_message(message, output)  # type: ignore[arg-type]

    monkeypatch.setattr("mainspring.wire.quic_connection.ListenerContext", Trusting)
    with pytest.raises(SelfCheckError, match="no certificate came out wrong"):
        check_quic()


def test_a_dialer_that_takes_any_router_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(keyring: Keyring, *, dialer: bool, shown: bool = True) -> ssl.SSLContext:
        context = context_of(keyring, dialer=dialer, shown=shown)
        if dialer:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    monkeypatch.setattr(selfcheck, "context_of", careless)
    monkeypatch.setattr("mainspring.wire.trust.Trust._verify_chain", lambda *_arguments, **_options: None)
    with pytest.raises(SelfCheckError, match="another CA came out wrong"):
        check_tcp()


def test_a_library_that_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ListenerContext, "_server_handle_hello", FleetContext._server_handle_hello)
    with pytest.raises(SelfCheckError):
        check_quic()


# ------------------------------------------------------------------ limits before anybody is known


def test_quic_takes_64_kib_of_handshake_and_no_more() -> None:
    context = listener_context()  # its ClientHello counts
    message = bytes([tls.HandshakeType.CERTIFICATE]) + (HANDSHAKE_BYTES - 4).to_bytes(3, "big")
    context.handle_message(message + bytes(60_000), buffers(), epoch=tls.Epoch.HANDSHAKE)
    with pytest.raises(tls.Alert, match="64 KiB"):
        context.handle_message(bytes(5000), buffers(), epoch=tls.Epoch.HANDSHAKE)
    assert len(context._receive_buffer) <= HANDSHAKE_BYTES


def test_quic_refuses_a_longer_message_from_its_header() -> None:
    context = listener_context()
    message = bytes([tls.HandshakeType.CERTIFICATE]) + HANDSHAKE_BYTES.to_bytes(3, "big")
    with pytest.raises(tls.Alert, match="too long"):
        context.handle_message(message, buffers(), epoch=tls.Epoch.HANDSHAKE)


def test_tcp_refuses_a_handshake_message_of_16_mib() -> None:
    channel = TlsChannel(context_of(ring(ROUTER), dialer=False), ring(ROUTER), server_name=None)
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
    with pytest.raises(WireError):
        channel.receive(record, NOW_S)
    assert channel.peer is None


def test_tcp_counts_bytes_that_openssl_waits_with() -> None:
    channel = TlsChannel(context_of(ring(ROUTER), dialer=False), ring(ROUTER), server_name=None)
    channel._before = HANDSHAKE_BYTES
    with pytest.raises(LimitError):
        channel.receive(b"\x16", NOW_S)


@pytest.mark.parametrize("kind", [tls.HandshakeType.FINISHED, tls.HandshakeType.CERTIFICATE_VERIFY,
                                  tls.HandshakeType.ENCRYPTED_EXTENSIONS, tls.HandshakeType.CLIENT_HELLO])  # fmt: skip
def test_nothing_comes_before_the_certificate(kind: int) -> None:
    context = listener_context()
    message = bytes([kind]) + (32).to_bytes(3, "big") + bytes(32)
    with pytest.raises(tls.Alert):
        context.handle_message(message, buffers(), epoch=tls.Epoch.HANDSHAKE)
    assert context.identity is None


def test_another_signature_algorithm_is_refused() -> None:
    context = listener_context()
    der = ring(NODE)
    buffer = tls.Buffer(capacity=4096)
    tls.push_certificate(buffer, tls.Certificate(certificates=[(_der(der), b"")]))
    context.handle_message(buffer.data, buffers(), epoch=tls.Epoch.HANDSHAKE)
    buffer = tls.Buffer(capacity=4096)
    tls.push_certificate_verify(
        buffer, tls.CertificateVerify(algorithm=tls.SignatureAlgorithm.ECDSA_SECP384R1_SHA384, signature=bytes(70))
    )
    with pytest.raises(tls.Alert, match="ECDSA-P256"):
        context.handle_message(buffer.data, buffers(), epoch=tls.Epoch.HANDSHAKE)


def _der(keyring: Keyring) -> bytes:
    return ssl.PEM_cert_to_DER_cert(keyring.credentials.certificate.decode())


def test_no_ticket_and_no_early_data() -> None:
    left, right = quic_pair()
    now_s = pump(left, right)
    assert left.identity is not None
    assert right.identity is not None
    for side in (left, right):
        assert side.tls is not None
        assert not side.tls.session_resumed
        assert not side.tls.early_data_accepted
        assert side.tls.new_session_ticket_cb is None
        assert side.tls.get_session_ticket_cb is None
    ticket = bytes([tls.HandshakeType.NEW_SESSION_TICKET]) + (4).to_bytes(3, "big") + bytes(4)
    right._core.send_crypto(int(tls.Epoch.ONE_RTT), 0, ticket)  # type: ignore[union-attr]
    pump(left, right, now_s)
    assert left.ending is not None
    assert left.ending[0] == 0x100 + tls.AlertDescription.unexpected_message


def test_application_bytes_before_the_verified_finished_are_not_read() -> None:
    """The client writes at once; its first flight with data reaches the router before its certificate was judged."""
    left, right = quic_pair()
    left.send_stream_data(0, b"early", True)
    now_s = 0.0
    for data, _ in left.datagrams_to_send(now_s):
        right.receive_datagram(data, ("192.0.2.1", 1), now_s)
    for data, _ in right.datagrams_to_send(now_s):
        left.receive_datagram(data, ("192.0.2.2", 2), now_s)
    flight = [data for data, _ in left.datagrams_to_send(now_s)]
    late = [data for data in flight if not data[0] & 0x80]
    for data in late:  # 1-RTT packets alone
        right.receive_datagram(data, ("192.0.2.1", 1), now_s)
    kinds = []
    while (event := right.next_event()) is not None:
        kinds.append(type(event).__name__)
    assert right.identity is None
    assert "StreamDataReceived" not in kinds
    for data in flight:
        right.receive_datagram(data, ("192.0.2.1", 1), now_s)
    pump(left, right, now_s + 1.0)
    assert right.identity is not None


def test_a_key_of_another_certificate_is_noticed_at_once() -> None:
    with pytest.raises(PkiError, match="does not belong"):
        Keyring(Credentials(NODE.certificate, pki.THIEF.key, NODE.ca))
