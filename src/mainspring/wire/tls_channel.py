"""TLS 1.3 without sockets, by the standard library's `ssl` over memory: what `tcp` and the self-check run.

Both sides verify: `CERT_REQUIRED`, the fleet's CA alone, then `Trust.verify` on the very certificate. No tickets, no
renegotiation, ALPN `mainspring/1` or nothing, at most 64 KiB before the handshake is done. OpenSSL has checked that the
peer has the key; as the certificate is of P-256, its signature was ECDSA-P256-SHA256, the only one TLS 1.3 has for it.
"""

import contextlib
import ssl
import tempfile
from pathlib import Path

from mainspring.wire.errors import CertificateError, Close, IdentityError, LimitError, WireError
from mainspring.wire.keyring import Keyring
from mainspring.wire.pki import PkiError
from mainspring.wire.pki_files import write_private
from mainspring.wire.transport import Identity

ALPN = "mainspring/1"
HANDSHAKE_BYTES = 64 << 10
READ_BYTES = 64 << 10


class HandshakeError(WireError):
    """No TLS 1.3 handshake, or one without our protocol."""

    code = "handshake"


class RefusedError(IdentityError):
    """The peer would not have our certificate."""

    code = "refused"
    close = Close.CERTIFICATE


def context_of(keyring: Keyring, *, dialer: bool, shown: bool = True) -> ssl.SSLContext:
    """PkiError for a key that is not the certificate's. Not `shown`: without a certificate, for the self-check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dialer else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = dialer
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([ALPN])
    if not dialer:
        context.num_tickets = 0
    credentials = keyring.credentials
    try:
        context.load_verify_locations(cadata=credentials.ca.decode("ascii"))
        if not shown:
            return context
        # OpenSSL's binding reads them from files only; the folder is ours alone and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            write_private(path, credentials.certificate + credentials.key)
            context.load_cert_chain(path)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise PkiError(f"the certificate and its key can't be used: {error}") from error
    return context


class TlsChannel:
    """One connection. `peer` is set once the handshake is done and the certificate was accepted."""

    def __init__(self, context: ssl.SSLContext, keyring: Keyring, *, server_name: str | None) -> None:
        """`server_name` given: the dialer's side."""
        self.peer: Identity | None = None
        self.shaken = False
        """TLS is done, though the peer may not be one of ours: it can be told so."""
        self.ended = False
        self._trust = keyring.trust
        self._server_name = server_name
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        dialer = server_name is not None
        self._tls = context.wrap_bio(self._in, self._out, server_side=not dialer, server_hostname=server_name)
        self._before = 0

    def receive(self, data: bytes, now_s: float) -> list[bytes]:
        """Plain pieces. IdentityError, HandshakeError, LimitError; what `outgoing` then holds is the alert. `now_s`:
        Unix time."""
        if self.peer is None:
            self._before += len(data)
            if self._before > HANDSHAKE_BYTES:
                raise LimitError(f"more than {HANDSHAKE_BYTES:,} bytes before the handshake was done")
        self._in.write(data)
        if self.peer is None and not self._shake(now_s):
            return []
        pieces = []
        try:
            while piece := self._tls.read(READ_BYTES):
                pieces.append(piece)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise _fault(error) from error
        return pieces

    def start(self, now_s: float) -> None:
        """Dialer: the first flight."""
        self._shake(now_s)

    def write(self, data: bytes) -> None:
        """After the handshake only. To a peer that is not verified nothing but a close may go."""
        if not self.shaken:
            raise ValueError("nothing is sent before the handshake is done")
        self._tls.write(data)

    def finish(self) -> None:
        """Our close_notify."""
        with contextlib.suppress(ssl.SSLError):  # the peer's has not come: nobody waits for it
            self._tls.unwrap()

    def outgoing(self) -> bytes:
        return self._out.read()

    def _shake(self, now_s: float) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _fault(error) from error
        if self._tls.version() != "TLSv1.3" or self._tls.selected_alpn_protocol() != ALPN:
            raise HandshakeError(f"the peer does not speak {ALPN}")
        self.shaken = True
        certificate = self._tls.getpeercert(binary_form=True)
        self.peer = self._trust.verify([certificate] if certificate else [], now_s, server_name=self._server_name)
        return True


def _fault(error: ssl.SSLError) -> WireError:
    """Whose certificate it was, told by OpenSSL's reason."""
    reason = error.reason or "no reason given"
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(f"the certificate was not accepted: {error.verify_message}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return CertificateError("a certificate is required", alert=116)
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "DECRYPT_ERROR")):
        return RefusedError(f"the peer refused our certificate: {reason.lower()}")
    return HandshakeError(f"TLS: {reason.lower()}")
