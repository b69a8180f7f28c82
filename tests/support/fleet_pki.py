"""Certificates of a fleet for tests: who is good, and who is wrong in exactly one way."""

import base64
import textwrap
import time
from collections.abc import Callable
from copy import copy
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from mainspring.wire.keyring import Keyring
from mainspring.wire.pki import Authority, Issued
from mainspring.wire.trust import Credentials

NOW_S = time.time()
DAY_S = 86_400.0
HOST = "router.test"

OURS = Authority.create("fleet", NOW_S - 1000 * DAY_S)
THEIRS = Authority.create("fleet", NOW_S - 1000 * DAY_S)
OTHER_FLEET = Authority(OURS.certificate, OURS._key)
OTHER_FLEET.fleet = "elsewhere"

ROUTER = OURS.issue("router", "hill", NOW_S, hosts=[HOST])
NODE = OURS.issue("node", "ant", NOW_S)


def ring(issued: Issued) -> Keyring:
    return Keyring(Credentials.of(issued))


def showing(issued: Issued, key: bytes = b"", *, as_router: bool = False) -> Keyring:
    """Shows this certificate (with another `key`, where given) and trusts as a good node, or router, does."""
    shown = copy(ring(ROUTER if as_router else NODE))
    shown.credentials = Credentials(issued.certificate, key or issued.key, OURS.ca_pem)
    return shown


def with_key(make_key: Callable[[], Any]) -> Issued:
    """A node's certificate signed by our CA, but for a key of another kind."""
    key = make_key()
    model = x509.load_pem_x509_certificate(NODE.certificate)
    builder = (
        x509.CertificateBuilder()
        .subject_name(model.subject)
        .issuer_name(model.issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(model.not_valid_before_utc)
        .not_valid_after(model.not_valid_after_utc)
    )
    for extension in model.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(builder.sign(OURS._key, hashes.SHA256()).public_bytes(Encoding.PEM), pem, OURS.ca_pem)


def posing_key(thief: bytes, victim: bytes) -> bytes:
    """The thief's private key with the victim's public point in it: OpenSSL compares the points when it is loaded and
    would refuse a plain mismatch before any handshake."""
    der = {}
    for name, pem in (("thief", thief), ("victim", victim)):
        key = load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        der[name] = key
    points = {name: key.public_key().public_numbers() for name, key in der.items()}
    raw = {name: p.x.to_bytes(32, "big") + p.y.to_bytes(32, "big") for name, p in points.items()}
    pkcs8 = der["thief"].private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    assert raw["thief"] in pkcs8
    changed = pkcs8.replace(raw["thief"], raw["victim"])
    body = "\n".join(textwrap.wrap(base64.b64encode(changed).decode(), 64))
    return f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n".encode()


THIEF = OURS.issue("node", "thief", NOW_S)
ROGUE = THEIRS.issue("node", "ant", NOW_S)
EXPIRED = OURS.issue("node", "ant", NOW_S - 100 * DAY_S)
EARLY = OURS.issue("node", "ant", NOW_S + 2 * DAY_S)
WRONG_USE = OURS.issue("router", "ant", NOW_S)
ED25519 = with_key(ed25519.Ed25519PrivateKey.generate)
P384 = with_key(lambda: ec.generate_private_key(ec.SECP384R1()))
WRONG_FLEET = OTHER_FLEET.issue("node", "ant", NOW_S)
ROGUE_ROUTER = THEIRS.issue("router", "hill", NOW_S, hosts=[HOST])
EXPIRED_ROUTER = OURS.issue("router", "hill", NOW_S - 100 * DAY_S, hosts=[HOST])
