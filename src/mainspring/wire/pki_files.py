"""An authority in a folder: what `mainspring pki` works on.

    ca.pem  ca.key  revoked.pem           the CA, its key, the revocation list
    issued/SERIAL.pem                     every certificate ever issued (no keys)
    ROLE-NAME/cert.pem key.pem ca.pem     what goes to its holder; a router's has revoked.pem too

All of it is readable by its owner alone. Files are replaced whole, so that a running router that reads the revocation
list never meets half of one. `now_s` is Unix time.
"""

import os
import tempfile
from pathlib import Path

from cryptography import x509

from mainspring.wire.errors import IdentityError
from mainspring.wire.pki import LEAF_DAYS, Authority, Issued, PkiError, check_name, identity_of, read_revocation_list
from mainspring.wire.records import Role
from mainspring.wire.transport import Identity
from mainspring.wire.trust import LIST_BYTES, PEM_BYTES, read_file

REVOKED = "revoked.pem"


def write_private(path: Path, data: bytes) -> None:
    """Mode 0600 from the first byte, and whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class PkiFolder:
    """Opens what `create` made. PkiError for everything that can't be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "ca.pem").exists():
            raise PkiError(f"{path} holds no certificate authority; make one with `mainspring pki init`")
        self.authority = Authority.load(read_file(path / "ca.pem", PEM_BYTES), read_file(path / "ca.key", PEM_BYTES))

    @classmethod
    def create(cls, path: Path, fleet: str, now_s: float) -> "PkiFolder":
        """Never over another CA: every certificate of the fleet would be worthless."""
        if (path / "ca.pem").exists() or (path / "ca.key").exists():
            raise PkiError(f"{path} holds a certificate authority already")
        authority = Authority.create(fleet, now_s)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (path / "issued").mkdir(exist_ok=True, mode=0o700)
        write_private(path / "ca.key", authority.key_pem)
        write_private(path / REVOKED, authority.revocation_list((), now_s))
        write_private(path / "ca.pem", authority.ca_pem)
        return cls(path)

    @property
    def revoked_path(self) -> Path:
        return self.path / REVOKED

    def holder(self, role: Role, name: str) -> Path:
        """The folder with its files; what `trust.Credentials.read` reads."""
        check_name("name", name)
        return self.path / f"{role}-{name}"

    def issue(
        self, role: Role, name: str, now_s: float, *, hosts: tuple[str, ...] = (), days: float = LEAF_DAYS,
        realm: str | None = None,
    ) -> Path:  # fmt: skip
        """A new certificate and key in the holder's folder, over the old ones, which stay valid until they end.
        `realm` None: that of the holder's certificate before, if there was one."""
        if realm is None:
            realm = self._realm(self.holder(role, name) / "cert.pem") if role == "client" else ""
        issued = self.authority.issue(role, name, now_s, hosts=hosts, days=days, realm=realm)
        folder = self.holder(role, name)
        folder.mkdir(exist_ok=True, mode=0o700)
        self._keep(issued)
        write_private(folder / "ca.pem", issued.ca)
        write_private(folder / "key.pem", issued.key)
        write_private(folder / "cert.pem", issued.certificate)
        if role == "router":
            write_private(folder / REVOKED, read_file(self.revoked_path, LIST_BYTES))
        return folder

    def revoke(self, role: Role, name: str, now_s: float) -> list[Identity]:
        """Every certificate of that holder that has not ended. PkiError where there is none to revoke."""
        check_name("name", name)
        before = self.revoked()
        mine = [
            each for each in self.issued()
            if (each.role, each.name) == (role, name) and each.not_after_s > now_s and each.serial not in before
        ]  # fmt: skip
        if not mine:
            raise PkiError(f"there is no certificate of {role} {name} to revoke")
        serials = {int(serial, 16) for serial in before} | {int(each.serial, 16) for each in mine}
        data = self.authority.revocation_list(serials, now_s)
        write_private(self.revoked_path, data)
        for router in self.path.glob("router-*"):
            write_private(router / REVOKED, data)
        return mine

    def revoked(self) -> frozenset[str]:
        return read_revocation_list(read_file(self.revoked_path, LIST_BYTES), self.authority.certificate)

    def issued(self) -> list[Identity]:
        """Everything ever issued, by role, name and end."""
        found = []
        for path in (self.path / "issued").glob("*.pem"):
            try:
                found.append(identity_of(x509.load_pem_x509_certificate(read_file(path, PEM_BYTES))))
            except (ValueError, IdentityError) as error:
                raise PkiError(f"{path} is no certificate of this fleet") from error
        return sorted(found, key=lambda each: (each.role, each.name, each.not_after_s))

    @staticmethod
    def _realm(path: Path) -> str:
        if not path.exists():
            return ""
        try:
            return identity_of(x509.load_pem_x509_certificate(read_file(path, PEM_BYTES))).realm
        except (ValueError, IdentityError) as error:
            raise PkiError(f"{path} is no certificate of this fleet: say the realm, if only that it is none") from error

    def _keep(self, issued: Issued) -> None:
        """Before anybody has it: what is not on record can't be revoked."""
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        write_private(self.path / "issued" / f"{certificate.serial_number:x}.pem", issued.certificate)
