"""This side's certificate, key and trust, read again when `mainspring pki issue` renewed them.

Made from a holder's folder, or from `Credentials` that never change. Transports ask `refresh()` before they dial and at
every look at their open connections, so that a renewal needs no restart.
"""

import logging
from pathlib import Path

from mainspring.wire.pki import PkiError
from mainspring.wire.pki_files import REVOKED
from mainspring.wire.trust import Credentials, Trust

log = logging.getLogger(__name__)


class Keyring:
    """`revoked`: the revocation list's file; a folder's own `revoked.pem` unless given. PkiError for unusable files."""

    def __init__(self, source: Path | Credentials, revoked: Path | None = None) -> None:
        self._folder = source if isinstance(source, Path) else None
        if revoked is None and self._folder is not None and (self._folder / REVOKED).exists():
            revoked = self._folder / REVOKED
        self._revoked = revoked
        self._stamp = self._look()
        self.credentials = source if isinstance(source, Credentials) else Credentials.read(source)
        self.trust = Trust(self.credentials, revoked)

    def refresh(self) -> bool:
        """True where there are new credentials. What can't be used is said in the log once; the old ones stay."""
        stamp = self._look()
        if self._folder is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            credentials = Credentials.read(self._folder)
            trust = Trust(credentials, self._revoked)
        except PkiError as error:
            log.error("the renewed certificate can't be used, the old one stays: %s", error)
            return False
        self.credentials, self.trust = credentials, trust
        log.info("took up the renewed certificate in %s", self._folder)
        return True

    def _look(self) -> tuple[int, ...]:
        if self._folder is None:
            return ()
        try:
            return tuple((self._folder / name).stat().st_mtime_ns for name in ("cert.pem", "key.pem", "ca.pem"))
        except OSError:
            return (0,)
