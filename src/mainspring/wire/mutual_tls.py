"""The client certificate on a qh3 server: asked for, verified, and nothing read before it was.

qh3's server accepts `verify_mode` and then lets anybody in, so the handshake is completed here, by subclasses of its
TLS context; nothing of the library is patched. `quic_connection` puts them in. The context

- on the listener's side pushes a CertificateRequest before its own Certificate, takes the client's Certificate and
  CertificateVerify (ECDSA-P256-SHA256, nothing else), has `Trust.verify` judge the chain, and accepts a Finished only
  then. The keys for application data are installed by that Finished: not a byte of it can be read before;
- on the dialer's side verifies the router's certificate with `Trust.verify` on top of the library's own check;
- on either side takes at most 64 KiB of handshake, no session ticket, no early data, no compressed certificate.

`selfcheck` proves it at every start, whatever the version of qh3. Written against qh3 2.1.
"""

from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from qh3 import tls
from qh3._hazmat import Buffer
from qh3._hazmat import Certificate as NativeCertificate

from mainspring.wire.errors import CertificateError, IdentityError
from mainspring.wire.keyring import Keyring
from mainspring.wire.tls_channel import HANDSHAKE_BYTES
from mainspring.wire.transport import Identity
from mainspring.wire.trust import REQUIRED

SIGNATURE = tls.SignatureAlgorithm.ECDSA_SECP256R1_SHA256
_MOST_CERTIFICATES = 4


class PeerAlert(tls.Alert):
    """Refuses the peer; the alert goes on the wire as CRYPTO_ERROR."""

    def __init__(self, alert: int, message: str) -> None:
        super().__init__(message)
        self.description = tls.AlertDescription(alert)


class FleetContext(tls.Context):
    """Either side. `identity` is the verified peer, set before the handshake completes."""

    def __init__(self, keyring: Keyring, wall_s: Callable[[], float], wanted_name: str | None, **options: Any) -> None:
        super().__init__(**options)
        self.identity: Identity | None = None
        self.fault: Exception | None = None
        self._trust = keyring.trust
        self._wall_s = wall_s
        self._wanted_name = wanted_name
        self._handshake_bytes = 0
        self._compress_certificate_algorithms = None  # it would be inflated before anybody is known

    def handle_message(self, input_data: bytes, output_buf: dict[Any, Buffer], epoch: int = -1) -> None:
        self._handshake_bytes += len(input_data)
        if self._handshake_bytes > HANDSHAKE_BYTES:
            raise PeerAlert(tls.AlertDescription.illegal_parameter, "more than 64 KiB of handshake")
        if self.state in (tls.State.CLIENT_POST_HANDSHAKE, tls.State.SERVER_POST_HANDSHAKE) and input_data:
            raise PeerAlert(
                tls.AlertDescription.unexpected_message, "no handshake message is taken after the handshake"
            )
        try:
            self._take(input_data, output_buf, epoch)
        except tls.Alert as alert:
            self.fault = self.fault or alert
            raise
        except (CertificateError, IdentityError) as error:
            self.fault = error
            raise PeerAlert(getattr(error, "alert", tls.AlertDescription.bad_certificate), error.message) from error
        except Exception as error:  # the library's parsers raise all kinds for malformed messages: fail closed
            self.fault = error
            raise PeerAlert(tls.AlertDescription.decode_error, "a malformed handshake message") from error

    def _take(self, data: bytes, output: dict[Any, Buffer], epoch: int) -> None:
        super().handle_message(data, output, epoch)

    def _client_handle_compressed_certificate(self, input_buf: Buffer) -> None:  # noqa: ARG002 - theirs
        raise tls.AlertUnexpectedMessage("no compressed certificate was asked for")

    def _client_handle_certificate_verify(self, input_buf: Buffer) -> None:
        try:
            super()._client_handle_certificate_verify(input_buf)
        except tls.AlertBadCertificate as alert:
            raise CertificateError(f"the router's certificate was not accepted: {alert}") from alert
        assert self._peer_certificate is not None  # noqa: S101 - the state before has set it
        chain = [self._peer_certificate.public_bytes()]
        self.identity = self._trust.verify(chain, self._wall_s(), server_name=self._wanted_name)

    def _client_handle_certificate(self, input_buf: Buffer) -> None:
        super()._client_handle_certificate(input_buf)
        if len(self._peer_certificate_chain) >= _MOST_CERTIFICATES:
            raise tls.AlertBadCertificate("too long a chain")

    def _client_handle_finished(self, input_buf: Buffer, output_buf: Buffer) -> None:
        if self._certificate_request is None or self._session_resumed:
            raise CertificateError("the router asks for no certificate: it is not one of ours")
        super()._client_handle_finished(input_buf, output_buf)


class ListenerContext(FleetContext):
    """Asks for the client's certificate. The library takes `_alps_negotiated` as: do not anticipate the client's
    Finished, more comes before it; and reads `certificate` once, between EncryptedExtensions and Certificate."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._alps_negotiated = True
        self._asking: Buffer | None = None
        self._asked = False
        self._chain: list[bytes] = []

    @property
    def certificate(self) -> NativeCertificate | None:
        buffer, self._asking = self._asking, None
        if buffer is not None:
            # Within the library's `push_message`, so these bytes are hashed together with the Certificate's.
            push_certificate_request(buffer)
            self._asked = True
        return self._certificate

    @certificate.setter
    def certificate(self, certificate: NativeCertificate | None) -> None:
        self._certificate = certificate

    def _server_handle_hello(self, input_buf: Buffer, initial: Buffer, handshake: Buffer, onertt: Buffer) -> None:
        self._asking = handshake
        super()._server_handle_hello(input_buf, initial, handshake, onertt)
        if not self._asked or self._session_resumed:
            raise tls.AlertInternalError("no certificate was asked for")

    def _take(self, data: bytes, output: dict[Any, Buffer], epoch: int) -> None:
        if self.state != tls.State.SERVER_EXPECT_FINISHED:
            super()._take(data, output, epoch)
            return
        if epoch != tls.Epoch.HANDSHAKE:
            raise tls.AlertUnexpectedMessage("a handshake message with keys of another phase")
        self._receive_buffer += data
        while self.state == tls.State.SERVER_EXPECT_FINISHED and len(self._receive_buffer) >= 4:
            size = 4 + int.from_bytes(self._receive_buffer[1:4], "big")
            if size > HANDSHAKE_BYTES:
                raise tls.AlertDecodeError("too long a handshake message")
            if len(self._receive_buffer) < size:
                return
            message, self._receive_buffer = self._receive_buffer[:size], self._receive_buffer[size:]
            self._take_message(message, output)

    @property
    def _schedule(self) -> tls.KeySchedule:
        assert self.key_schedule is not None  # noqa: S101 - made when the hello was answered
        return self.key_schedule

    def _take_message(self, message: bytes, output: dict[Any, Buffer]) -> None:
        """Certificate, CertificateVerify, Finished, in this order and each once."""
        kind, buffer = message[0], Buffer(data=message)
        if kind == tls.HandshakeType.CERTIFICATE and self._peer_certificate is None:
            self._take_certificate(buffer)
        elif kind == tls.HandshakeType.CERTIFICATE_VERIFY and self._peer_certificate is not None and not self.identity:
            self._take_certificate_verify(buffer)
        elif kind == tls.HandshakeType.FINISHED:
            if self.identity is None:
                raise CertificateError("a certificate is required", alert=REQUIRED)
            self._server_handle_finished(buffer, output[tls.Epoch.ONE_RTT])
            if self._receive_buffer:
                raise tls.AlertUnexpectedMessage("bytes after Finished")
        else:
            raise tls.AlertUnexpectedMessage("out of turn")
        if not buffer.eof():
            raise tls.AlertDecodeError("extra bytes at the end of a handshake message")
        if kind != tls.HandshakeType.FINISHED:  # which hashes itself
            self._schedule.update_hash(message)

    def _take_certificate(self, buffer: Buffer) -> None:
        certificate = tls.pull_certificate(buffer)
        if certificate.request_context:
            raise tls.AlertIllegalParameter("a request context that was not ours")
        if not certificate.certificates:
            raise CertificateError("a certificate is required", alert=REQUIRED)
        if len(certificate.certificates) > _MOST_CERTIFICATES:
            raise tls.AlertBadCertificate("too long a chain")
        self._chain = [der for der, _extensions in certificate.certificates]
        try:
            self._peer_certificate = NativeCertificate(self._chain[0])
        except Exception as error:
            raise CertificateError("the certificate can't be read") from error

    def _take_certificate_verify(self, buffer: Buffer) -> None:
        """The key first, then the chain: a stolen certificate tells its thief nothing."""
        verify = tls.pull_certificate_verify(buffer)
        if verify.algorithm != SIGNATURE:
            raise tls.AlertIllegalParameter("CertificateVerify is not ECDSA-P256-SHA256")
        try:
            key = x509.load_der_x509_certificate(self._chain[0]).public_key()
        except Exception as error:
            raise CertificateError("the certificate can't be read") from error
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise CertificateError("the certificate's key is not of P-256", alert=43)
        signed = self._schedule.certificate_verify_data(b"TLS 1.3, client CertificateVerify")
        try:
            key.verify(verify.signature, signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature as error:
            raise tls.AlertDecryptError("the peer does not hold the certificate's key") from error
        self.identity = self._trust.verify(self._chain, self._wall_s())


def push_certificate_request(buffer: Buffer) -> None:
    buffer.push_uint8(tls.HandshakeType.CERTIFICATE_REQUEST)
    with tls.push_block(buffer, 3):
        tls.push_opaque(buffer, 1, b"")
        with tls.push_block(buffer, 2):
            buffer.push_uint16(tls.ExtensionType.SIGNATURE_ALGORITHMS)
            with tls.push_block(buffer, 2), tls.push_block(buffer, 2):
                buffer.push_uint16(SIGNATURE)
