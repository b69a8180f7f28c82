"""Whose certificate is taken, on either transport and by either side.

`Trust.verify` judges a chain once, `Trust.complaint` an open connection again and again. The chain is verified by
`cryptography`'s verifier against the fleet's CA alone, with no intermediate; beyond that the key is P-256, there is
exactly the extended use of the side it stands on, the URI is of our fleet and of a role that may stand there, and the
serial is not on the revocation list. TLS itself proves that the peer has the key.

The revocation list is a file that is read again when it changed. One that can't be read later is said in the log and
the last good one stays in force; one that can't be read at the start is an error.
"""

import logging
import os
import stat
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from msgspec import Struct

from mainspring.wire.errors import CertificateError, IdentityError
from mainspring.wire.pki import Issued, PkiError, identity_of, read_revocation_list
from mainspring.wire.records import one_line
from mainspring.wire.transport import Identity

log = logging.getLogger(__name__)

CHECK_S = 20.0
"""Open connections are judged again so often: revoked or expired, they end within a minute."""
PEM_BYTES = 64 << 10
LIST_BYTES = 8 << 20

BAD_CERTIFICATE, UNSUPPORTED, REVOKED, EXPIRED, UNKNOWN_CA, REQUIRED = 42, 43, 44, 45, 48, 116
"""TLS alerts."""


class Credentials(Struct, frozen=True):
    """PEM of this side's certificate and key, and of the fleet's CA. Never printed: it holds the key."""

    certificate: bytes
    key: bytes
    ca: bytes

    def __repr__(self) -> str:
        return "Credentials(...)"

    @classmethod
    def of(cls, issued: Issued) -> "Credentials":
        return cls(issued.certificate, issued.key, issued.ca)

    @classmethod
    def read(cls, folder: Path) -> "Credentials":
        """`cert.pem`, `key.pem` and `ca.pem` of one folder, as `mainspring pki issue` writes them."""
        key = folder / "key.pem"
        if os.name == "posix" and key.exists() and stat.S_IMODE(key.stat().st_mode) & 0o077:
            raise PkiError(f"{key} can be read by others; chmod 600 it")
        return cls(*(read_file(folder / name, PEM_BYTES) for name in ("cert.pem", "key.pem", "ca.pem")))


class RevocationFile:
    """A CRL on disk. `serials()` looks whether the file changed."""

    def __init__(self, path: Path, ca: x509.Certificate) -> None:
        self.path = path
        self._ca = ca
        self._stamp = self._look()
        self._serials = read_revocation_list(read_file(path, LIST_BYTES), ca)

    def serials(self) -> frozenset[str]:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return self._serials
            self._stamp = stamp
            self._serials = read_revocation_list(read_file(self.path, LIST_BYTES), self._ca)
        except PkiError as error:
            log.error("%s; the last good revocation list (%d entries) stays in force", error, len(self._serials))
        else:
            log.info("read the revocation list %s again: %d entries", self.path, len(self._serials))
        return self._serials

    def _look(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_ino, found.st_size)


class Trust:
    """What one side takes for its fleet."""

    def __init__(self, credentials: Credentials, revoked: Path | None = None) -> None:
        """PkiError where a file makes no sense, or the own certificate is not of this CA or of another key."""
        try:
            self.ca = x509.load_pem_x509_certificate(credentials.ca)
            own = x509.load_pem_x509_certificate(credentials.certificate)
            own.verify_directly_issued_by(self.ca)
            if load_pem_private_key(credentials.key, None).public_key() != own.public_key():
                raise PkiError("the key does not belong to the certificate")
            self.own = identity_of(own)
        except InvalidSignature as error:
            raise PkiError("the certificate was not issued by this CA") from error
        except (ValueError, TypeError, IdentityError) as error:
            raise PkiError(f"the certificate or the CA can't be used: {error}") from error
        self._store = Store([self.ca])
        self._revoked = None if revoked is None else RevocationFile(revoked, self.ca)

    def verify(self, chain: list[bytes], now_s: float, *, server_name: str | None = None) -> Identity:
        """The holder of a DER chain, leaf first; a dialer gives the `server_name` it wanted, a listener None.

        CertificateError (with the alert to send) or IdentityError. `now_s` is Unix time.
        """
        if not chain:
            raise CertificateError("a certificate is required", alert=REQUIRED)
        try:
            leaf = x509.load_der_x509_certificate(chain[0])
            key = leaf.public_key()
            uses = list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        except x509.ExtensionNotFound:
            uses = []
        except Exception as error:  # whatever a strange certificate makes the parser raise is the peer's fault
            raise CertificateError("the certificate can't be read", alert=BAD_CERTIFICATE) from error
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise CertificateError("the certificate's key is not of P-256", alert=UNSUPPORTED)
        self._verify_chain(leaf, now_s, server_name)
        wanted = ExtendedKeyUsageOID.CLIENT_AUTH if server_name is None else ExtendedKeyUsageOID.SERVER_AUTH
        if uses != [wanted]:
            raise CertificateError("the certificate is for another use", alert=UNSUPPORTED)
        peer = identity_of(leaf)
        if peer.fleet != self.own.fleet or (peer.role == "router") != (server_name is not None):
            raise IdentityError("the certificate is for another fleet or role")
        if complaint := self.complaint(peer, now_s):
            raise CertificateError(complaint, alert=REVOKED)
        return peer

    def complaint(self, peer: Identity, now_s: float) -> str | None:
        """Why a peer that was verified can stay no longer, None if it can. `now_s` is Unix time."""
        if now_s >= peer.not_after_s:
            return "the certificate has expired"
        if self._revoked is not None and peer.serial in self._revoked.serials():
            return "the certificate was revoked"
        return None

    def _verify_chain(self, leaf: x509.Certificate, now_s: float, server_name: str | None) -> None:
        now = datetime.fromtimestamp(now_s, UTC)
        policy = PolicyBuilder().store(self._store).time(now).max_chain_depth(0)
        try:
            if server_name is None:
                policy.build_client_verifier().verify(leaf, [])
            else:
                policy.build_server_verifier(_subject(server_name)).verify(leaf, [])
        except (VerificationError, ValueError) as error:
            if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
                raise CertificateError("the certificate is not valid now", alert=EXPIRED) from error
            reason = one_line(str(error).partition(" (encountered")[0], 120)
            raise CertificateError(f"the certificate was not accepted: {reason}", alert=UNKNOWN_CA) from error


def _subject(server_name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ip_address(server_name))
    except ValueError:
        return x509.DNSName(server_name)


def read_file(path: Path, cap: int) -> bytes:
    """PkiError where it can't be read or is longer than `cap`."""
    try:
        with path.open("rb") as file:
            data = file.read(cap + 1)
    except OSError as error:
        raise PkiError(f"{path}: {error.strerror or error}") from error
    if len(data) > cap:
        raise PkiError(f"{path}: longer than {cap:,} bytes")
    return data
