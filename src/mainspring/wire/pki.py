"""The fleet's certificate authority: make, issue, revoke; and who a certificate says its holder is.

ECDSA P-256; a CA with path length 0 for ten years; leaves for 90 days with one URI `spiffe://FLEET/ROLE/NAME`, of a
client in a realm `spiffe://FLEET/client/NAME/REALM`; server use for routers, client use for nodes and clients. The
subject alternative name is not critical and there are key identifiers, as `cryptography`'s verifier wants it. The
revocation list is a CRL signed by the CA.

In memory and without a clock: `pki_files` keeps an authority in a folder, `trust` verifies. Whoever holds the CA's key
can join as anybody: it belongs on the machine that issues, not on routers or nodes.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import get_args

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mainspring.errors import InputError
from mainspring.wire.errors import IdentityError
from mainspring.wire.records import Role
from mainspring.wire.transport import Identity

CA_DAYS = 3650
LEAF_DAYS = 90
LONGEST_LEAF_DAYS = 825
SKEW = timedelta(hours=1)
"""Certificates begin so long before they are made: clocks of a fleet differ."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Every router may be dialled there: who can open a port on the machine itself is not kept out by names."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_URI = re.compile(rf"spiffe://({_NAME.pattern})/([a-z]+)/({_NAME.pattern})(?:/({_NAME.pattern}))?")
_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class PkiError(InputError):
    """A name, folder, certificate or revocation list that can't be used."""

    code = "pki"


@dataclass(frozen=True)
class Issued:
    """PEM of one holder. `key` is a secret."""

    certificate: bytes
    key: bytes
    ca: bytes


class Authority:
    """A CA with its key. `now_s` are Unix seconds."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key
        self.fleet = str(certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value)

    @classmethod
    def create(cls, fleet: str, now_s: float, days: int = CA_DAYS) -> "Authority":
        check_name("fleet", fleet)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, fleet),
                x509.NameAttribute(NameOID.COMMON_NAME, f"Mainspring CA of {fleet}"),
            ]
        )
        builder = _dated(subject, subject, key.public_key(), _utc(now_s), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> "Authority":
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
            key = load_pem_private_key(key_pem, None)
        except (ValueError, TypeError) as error:
            raise PkiError("the CA's certificate or key is not sound PEM") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise PkiError("the CA's key does not belong to its certificate")
        return cls(certificate, key)

    @property
    def ends_s(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()

    @property
    def ca_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    def issue(
        self, role: Role, name: str, now_s: float, *, hosts: Sequence[str] = (), days: float = LEAF_DAYS,
        realm: str = "",
    ) -> Issued:  # fmt: skip
        """A certificate and its new key. `hosts`, routers only: the names and addresses they are dialled by. `realm`,
        clients only: whom it shares named views with. PkiError
        for a role or name that can't be, and for a lifetime that outlasts the CA."""
        if role not in get_args(Role):
            raise PkiError(f"no role {role!r}; there are {', '.join(get_args(Role))}")
        check_name("name", name)
        if hosts and role != "router":
            raise PkiError("only routers are dialled: a node or client has no hosts")
        if realm and role != "client":
            raise PkiError("only clients have a realm")
        if realm:
            check_name("realm", realm)
        if not days <= LONGEST_LEAF_DAYS:
            raise PkiError(f"at most {LONGEST_LEAF_DAYS} days")
        now = _utc(now_s)
        if now + timedelta(days=days) > self.certificate.not_valid_after_utc:
            raise PkiError(f"the CA itself ends on {self.certificate.not_valid_after_utc:%Y-%m-%d}")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _dated(subject, self.certificate.subject, key.public_key(), now, days)
        uri = f"spiffe://{self.fleet}/{role}/{name}" + (f"/{realm}" if realm else "")
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
        if role == "router":
            names += [_host(host) for host in dict.fromkeys((name, *hosts, *LOOPBACK))]
        use = _SERVER if role == "router" else _CLIENT
        builder = (
            builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return Issued(certificate, _key_pem(key), self.ca_pem)

    def revocation_list(self, serials: Collection[int], now_s: float) -> bytes:
        """PEM. It does not go stale: readers take the newest file they are given, so its end is the CA's."""
        now = _utc(now_s)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now)
            .next_update(max(self.certificate.not_valid_after_utc, now + SKEW))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.CRLNumber(int(now_s * 1000)), critical=False)
        )
        for serial in sorted(serials):
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def identity_of(certificate: x509.Certificate) -> Identity:
    """Who the holder is. IdentityError unless there is exactly one URI of a fleet's form. Verifies nothing."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        uris = []
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None or match[3] not in get_args(Role) or (match[6] and match[3] != "client"):
        raise IdentityError("the certificate names no role and name of a fleet")
    role: Role = match[3]  # type: ignore[assignment]  # one of Role's values, as just checked
    ends = certificate.not_valid_after_utc.timestamp()
    return Identity(match[1], role, match[4], f"{certificate.serial_number:x}", ends, match[6] or "")


def read_revocation_list(pem: bytes, ca: x509.Certificate) -> frozenset[str]:
    """Serials in hexadecimal, as `Identity` has them. PkiError unless the CA signed it."""
    try:
        revoked = x509.load_pem_x509_crl(pem)
        key = ca.public_key()
        sound = isinstance(key, ec.EllipticCurvePublicKey) and revoked.is_signature_valid(key)
    except (ValueError, TypeError) as error:
        raise PkiError("not a revocation list") from error
    if not sound or revoked.issuer != ca.subject:
        raise PkiError("the revocation list is not signed by this CA")
    return frozenset(f"{entry.serial_number:x}" for entry in revoked)


def check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise PkiError(f"{what} {name!r}: up to 63 of a-z, 0-9, dot, dash and underscore, no dash or dot at the ends")


def _utc(now_s: float) -> datetime:
    return datetime.fromtimestamp(now_s, UTC)


def _dated(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", host):
            raise ValueError(host)
        return x509.DNSName(host)
    except ValueError as error:
        raise PkiError(f"{host!r} is neither a host name nor an address") from error


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
