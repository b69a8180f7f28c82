"""The authority, its folder, revocation, and what a holder's files must be."""

import logging
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from mainspring.wire.errors import CertificateError, IdentityError
from mainspring.wire.keyring import Keyring
from mainspring.wire.pki import LEAF_DAYS, Authority, PkiError, identity_of, read_revocation_list
from mainspring.wire.pki_files import PkiFolder, write_private
from mainspring.wire.records import Role
from mainspring.wire.trust import Credentials, Trust
from support import fleet_pki as pki
from support.fleet_pki import DAY_S, NOW_S


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def der(pem: bytes) -> bytes:
    return load(pem).public_bytes(Encoding.DER)


def test_what_a_ca_is() -> None:
    ca = Authority.create("fleet", NOW_S).certificate
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert usage.crl_sign
    assert not usage.digital_signature


@pytest.mark.parametrize(
    ("role", "use"),
    [
        ("node", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("router", ExtendedKeyUsageOID.SERVER_AUTH),
    ],
)
def test_what_a_leaf_is(role: str, use: x509.ObjectIdentifier) -> None:
    leaf = load(pki.OURS.issue(role, "ant", NOW_S).certificate)  # type: ignore[arg-type]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert not names.critical
    assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == [f"spiffe://fleet/{role}/ant"]
    assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [use]
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    assert leaf.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert leaf.not_valid_after_utc.timestamp() == pytest.approx(NOW_S + LEAF_DAYS * DAY_S, abs=2.0)
    identity = identity_of(leaf)
    assert (identity.role, identity.name, identity.fleet) == (role, "ant", "fleet")
    assert int(identity.serial, 16) == leaf.serial_number


@pytest.mark.parametrize("name", ["", "Ant", "a/b", "a b", "-a", "a-", "é", "a" * 64, "a\n", "."])
def test_names_that_can_not_be(name: str) -> None:
    with pytest.raises(PkiError):
        pki.OURS.issue("node", name, NOW_S)
    with pytest.raises(PkiError):
        Authority.create(name, NOW_S)


def test_what_is_not_issued() -> None:
    with pytest.raises(PkiError, match="no role"):
        pki.OURS.issue("king", "ant", NOW_S)  # type: ignore[arg-type]
    with pytest.raises(PkiError, match="no hosts"):
        pki.OURS.issue("node", "ant", NOW_S, hosts=["a.test"])
    with pytest.raises(PkiError, match="825"):
        pki.OURS.issue("node", "ant", NOW_S, days=900)
    with pytest.raises(PkiError, match="825"):
        pki.OURS.issue("node", "ant", NOW_S, days=float("nan"))
    with pytest.raises(PkiError, match="ends on"):
        Authority.create("fleet", NOW_S, days=10).issue("node", "ant", NOW_S)
    for host in ("a b", "http://x", "*.test", ""):
        with pytest.raises(PkiError, match="neither"):
            pki.OURS.issue("router", "hill", NOW_S, hosts=[host])


def test_an_identity_needs_exactly_one_uri_of_a_fleet() -> None:
    with pytest.raises(IdentityError):
        identity_of(pki.OURS.certificate)


@pytest.mark.parametrize(
    ("issued", "alert"),
    [(pki.ROGUE, 48), (pki.EXPIRED, 45), (pki.EARLY, 45), (pki.P384, 43), (pki.ED25519, 43)],
    ids=["another CA", "expired", "early", "P-384", "Ed25519"],
)
def test_who_is_refused_and_with_which_alert(issued: pki.Issued, alert: int) -> None:
    trust = Trust(Credentials.of(pki.ROUTER))
    with pytest.raises(CertificateError) as refused:
        trust.verify([der(issued.certificate)], NOW_S)
    assert refused.value.alert == alert


def test_the_ca_itself_is_nobody() -> None:
    trust = Trust(Credentials.of(pki.ROUTER))
    with pytest.raises(CertificateError):
        trust.verify([der(pki.OURS.ca_pem)], NOW_S)


def test_a_leaf_can_issue_nothing() -> None:
    """Path length 0, and no intermediate is taken."""
    trust = Trust(Credentials.of(pki.ROUTER))
    key = load_pem_private_key(pki.NODE.key, None)
    below = Authority(pki.OURS.certificate, key).issue("node", "ant", NOW_S)  # type: ignore[arg-type]
    with pytest.raises(CertificateError):
        trust.verify([der(below.certificate), der(pki.NODE.certificate)], NOW_S)


def test_a_complaint_comes_with_the_end_and_with_revocation(tmp_path: Path) -> None:
    path = tmp_path / "revoked.pem"
    path.write_bytes(pki.OURS.revocation_list((), NOW_S))
    trust = Trust(Credentials.of(pki.ROUTER), path)
    peer = trust.verify([der(pki.NODE.certificate)], NOW_S)
    assert trust.complaint(peer, NOW_S) is None
    assert trust.complaint(peer, peer.not_after_s) == "the certificate has expired"
    _replace(path, pki.OURS.revocation_list([int(peer.serial, 16)], NOW_S))
    assert trust.complaint(peer, NOW_S) == "the certificate was revoked"


def _replace(path: Path, data: bytes) -> None:
    write_private(path, data)
    later = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize("bad", [b"", b"rubbish", pki.THEIRS.revocation_list([1], NOW_S)])
def test_a_bad_revocation_list_leaves_the_last_good_one_in_force(
    tmp_path: Path, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked.pem"
    peer = Trust(Credentials.of(pki.NODE)).own
    path.write_bytes(pki.OURS.revocation_list([int(peer.serial, 16)], NOW_S))
    trust = Trust(Credentials.of(pki.ROUTER), path)
    with caplog.at_level(logging.ERROR):
        _replace(path, bad)
        assert trust.complaint(peer, NOW_S) == "the certificate was revoked"
        assert trust.complaint(peer, NOW_S) == "the certificate was revoked"
        path.unlink()
        assert trust.complaint(peer, NOW_S) == "the certificate was revoked"
    assert caplog.text.count("stays in force") == 2
    with pytest.raises(PkiError):
        Trust(Credentials.of(pki.ROUTER), path)


def test_a_folder_is_private_and_made_once(tmp_path: Path) -> None:
    folder = PkiFolder.create(tmp_path / "pki", "fleet", NOW_S)
    holder = folder.issue("router", "hill", NOW_S, hosts=("a.test",))
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) == 8
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.path, holder)} == {0o700}
    with pytest.raises(PkiError, match="already"):
        PkiFolder.create(tmp_path / "pki", "fleet", NOW_S)
    with pytest.raises(PkiError, match="pki init"):
        PkiFolder(tmp_path / "elsewhere")


def test_revoking_takes_back_every_certificate_of_a_holder(tmp_path: Path) -> None:
    folder = PkiFolder.create(tmp_path / "pki", "fleet", NOW_S)
    router = folder.issue("router", "hill", NOW_S)
    for _ in range(2):
        folder.issue("node", "ant", NOW_S)
    folder.issue("node", "bee", NOW_S)
    folder.issue("client", "ant", NOW_S)
    revoked = folder.revoke("node", "ant", NOW_S)
    assert [each.name for each in revoked] == ["ant", "ant"]
    assert folder.revoked() == {each.serial for each in revoked}
    assert read_revocation_list((router / "revoked.pem").read_bytes(), folder.authority.certificate) == folder.revoked()
    with pytest.raises(PkiError, match="no certificate"):
        folder.revoke("node", "ant", NOW_S)
    folder.issue("node", "ant", NOW_S)
    folder.revoke("node", "ant", NOW_S)
    assert len(folder.revoked()) == 3


def test_credentials_from_a_folder(tmp_path: Path) -> None:
    folder = PkiFolder.create(tmp_path / "pki", "fleet", NOW_S)
    holder = folder.issue("node", "ant", NOW_S)
    keyring = Keyring(holder)
    assert keyring.trust.own.name == "ant"
    assert "PRIVATE" not in repr(keyring.credentials)
    assert not keyring.refresh()
    (holder / "key.pem").chmod(0o644)
    with pytest.raises(PkiError, match="can be read by others"):
        Credentials.read(holder)
    (holder / "key.pem").unlink()
    with pytest.raises(PkiError, match=r"key\.pem"):
        Credentials.read(holder)


def test_a_renewal_that_can_not_be_used_leaves_the_old_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = PkiFolder.create(tmp_path / "pki", "fleet", NOW_S)
    holder = folder.issue("node", "ant", NOW_S)
    keyring = Keyring(holder)
    before = keyring.trust.own.serial
    _replace(holder / "cert.pem", b"half of it")
    with caplog.at_level(logging.ERROR):
        assert not keyring.refresh()
        assert not keyring.refresh()
    assert caplog.text.count("the old one stays") == 1
    assert keyring.trust.own.serial == before
    folder.issue("node", "ant", NOW_S)
    assert keyring.refresh()
    assert keyring.trust.own.serial != before


def test_a_certificate_of_another_ca_is_no_use(tmp_path: Path) -> None:
    with pytest.raises(PkiError, match="not issued by this CA"):
        Trust(Credentials(pki.ROGUE.certificate, pki.ROGUE.key, pki.OURS.ca_pem))
    with pytest.raises(PkiError, match="can't be used"):
        Trust(Credentials(b"x", b"y", b"z"))
    with pytest.raises(PkiError, match="does not belong"):
        Authority.load(pki.OURS.ca_pem, pki.THEIRS.key_pem)


def test_a_realm_stands_in_a_client_s_certificate_and_lasts_through_renewals(tmp_path: Path) -> None:
    folder = PkiFolder.create(tmp_path / "pki", "fleet", NOW_S)
    for realm, days, known in (("gates", 9.0, "gates"), (None, 1.0, "gates"), ("", 1.0, ""), (None, 1.0, "")):
        made = folder.issue("client", "gate-1", NOW_S, realm=realm, days=days)
        assert Trust(Credentials.read(made)).own.realm == known
    assert {each.realm for each in folder.issued()} == {"gates", ""}
    (made / "cert.pem").write_bytes(b"half of it")
    with pytest.raises(PkiError, match="say the realm"):
        folder.issue("client", "gate-1", NOW_S)
    folder.issue("client", "gate-1", NOW_S, realm="gates")


@pytest.mark.parametrize(
    ("role", "realm"), [("node", "gates"), ("router", "gates"), ("client", "a/b"), ("client", "A")]
)
def test_realms_that_can_not_be(role: Role, realm: str) -> None:
    with pytest.raises(PkiError, match="realm"):
        pki.OURS.issue(role, "ant", NOW_S, realm=realm)


def test_a_certificate_that_gives_another_role_a_realm_is_nobody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    issued = pki.OURS.issue("client", "ant", NOW_S, realm="gates")
    assert identity_of(load(issued.certificate)).realm == "gates"
    uri = x509.UniformResourceIdentifier("spiffe://fleet/node/ant/gates")
    monkeypatch.setattr(x509.SubjectAlternativeName, "get_values_for_type", lambda _self, _kind: [uri.value])
    with pytest.raises(IdentityError):
        identity_of(load(issued.certificate))
