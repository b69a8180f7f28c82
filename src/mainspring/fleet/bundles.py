"""Bundles by hash: in memory and on disk, none that was not checked; handed on in pieces.

Size and SHA-256 as offered, then that the bytes unpack to the bundle whose hash they go by: so no peer can put one
bundle under another's name. At most 64 MiB each and a cap in all, the least used go first. `load` and `admit` block on
disk, hash and unpacking and belong off the loop; the rest is quick and belongs on it.
"""

import hashlib
import logging
import os
import re
from collections import OrderedDict
from pathlib import Path

from msgspec import Struct

from mainspring.fleet.bundle_check import Check, Unpacking
from mainspring.fleet.errors import BundleError
from mainspring.wire import messages as m

MAX_BYTES = 64 << 20
PIECE_BYTES = 256 << 10
DEFAULT_CAP_BYTES = 512 << 20
STALE_S = 3600.0
"""A file half written so long ago has lost its writer."""
_PLAIN = re.compile(r"[a-z0-9_.-]{1,128}")
"""No capitals: some file systems take two names that differ in them for one."""
log = logging.getLogger("mainspring.fleet")


class Packed(Struct, frozen=True):
    """A checked bundle: its bytes, and their SHA-256 for those it is handed on to."""

    data: bytes
    sha256: str


class BundleCache:
    """In memory up to `cap_bytes`; in `folder` too where there is one, so that a restart fetches nothing again."""

    def __init__(
        self, folder: Path | None = None, cap_bytes: int = DEFAULT_CAP_BYTES, check: Check | None = None
    ) -> None:
        """`check` None: by unpacking, in processes that `stop` ends."""
        self.folder = folder
        self.cap_bytes = cap_bytes
        self._unpacking = Unpacking()
        self._check: Check = self._unpacking if check is None else check
        self._packed: OrderedDict[str, Packed] = OrderedDict()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                log.warning("bundles are kept in memory only: %s: %s", folder, error.strerror or error)
                self.folder = None

    @property
    def held_bytes(self) -> int:
        return sum(len(packed.data) for packed in self._packed.values())

    # -------------------------------------------------------------- quick

    def peek(self, bundle: str) -> Packed | None:
        """What is in memory."""
        packed = self._packed.get(bundle)
        if packed is not None:
            self._packed.move_to_end(bundle)
        return packed

    def keep(self, bundle: str, packed: Packed) -> None:
        """What `load` or `admit` gave."""
        self._packed[bundle] = packed
        self._packed.move_to_end(bundle)
        while len(self._packed) > 1 and self.held_bytes > self.cap_bytes:
            self._packed.popitem(last=False)

    def forget(self, bundle: str) -> None:
        """It turned out to be wrong: the next who asks fetches it again."""
        self._packed.pop(bundle, None)
        path = self._path(bundle)
        if path is not None:
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Nobody waits for what is being checked: it ends with OSError, and nothing is checked any more."""
        self._unpacking.stop()

    # -------------------------------------------------------------- blocking

    def load(self, bundle: str) -> Packed | None:
        """From disk; a damaged file counts as none and is taken away."""
        path = self._path(bundle)
        if path is None:
            return None
        try:
            if path.stat().st_size > MAX_BYTES + 32:
                raise OSError("too large for a bundle")
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("bundle file %s can't be read: %s", path, error)
            return None
        digest, data = content[:32], content[32:]
        if hashlib.sha256(data).digest() == digest:
            return Packed(data, digest.hex())
        log.warning("bundle file %s is damaged and was removed", path)
        path.unlink(missing_ok=True)
        return None

    def admit(self, bundle: str, data: bytes, *, size: int, sha256: str) -> Packed:
        """Judge bytes that came, and write them to disk. Raises BundleError unless they are those that were promised
        and are that bundle; what else a check raises is no fault of theirs."""
        if len(data) > MAX_BYTES:
            raise BundleError(f"a bundle of {len(data):,} bytes, at most {MAX_BYTES:,} are taken")
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            raise BundleError("the bytes are not those that were offered: size or SHA-256 differ")
        self._check(bundle, data)
        self._write(bundle, data, bytes.fromhex(sha256))
        return Packed(data, sha256)

    # -------------------------------------------------------------- within

    def _path(self, bundle: str) -> Path | None:
        """Names come from peers: only plain ones become files."""
        return self.folder / f"{bundle}.bundle" if self.folder is not None and _PLAIN.fullmatch(bundle) else None

    def _write(self, bundle: str, data: bytes, digest: bytes) -> None:
        """Whole or not at all; without the disk the cache lasts as long as the process, which the log says."""
        path = self._path(bundle)
        if path is None:
            return
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            part.write_bytes(digest + data)
            part.replace(path)
            self._trim(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            log.warning("bundle %s is not kept on disk: %s", m.one_line(bundle), error)

    def _trim(self, newest: Path) -> None:
        """At most the cap, and nothing that a process which was killed left half written."""
        written_s = newest.stat().st_mtime
        for path in newest.parent.glob("*.part"):
            if path.stat().st_mtime < written_s - STALE_S:
                path.unlink(missing_ok=True)
        files = sorted(newest.parent.glob("*.bundle"), key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for path in files:
            total += path.stat().st_size
            if total > self.cap_bytes and path != newest:
                path.unlink(missing_ok=True)


class Fetching:
    """Pieces of one bundle as they come. `expected` None: whatever the last message says, up to the cap."""

    __slots__ = ("_bytes", "_pieces", "bundle", "expected", "sha256")
    shards = frozenset[tuple[str, int]]()

    def __init__(self, bundle: str, expected: int | None = None, sha256: str | None = None) -> None:
        self.bundle = bundle
        self.expected = expected
        self.sha256 = sha256
        self._pieces: list[bytes] = []
        self._bytes = 0

    def take(self, piece: m.BundleData) -> None:
        """Raises BundleError as soon as more came than was offered, or than a bundle may have."""
        limit = MAX_BYTES if self.expected is None else self.expected
        self._bytes += len(piece.data)
        if self._bytes > limit:
            raise BundleError(f"more than {limit:,} bytes of a bundle came")
        self._pieces.append(piece.data)

    def finish(self, end: m.BundleEnd) -> bytes:
        """The bytes; `BundleCache.admit` judges them. Raises BundleError where nobody has it, or the last message says
        another thing than the offer."""
        if not end.found:
            raise BundleError(end.message or "nobody there has this bundle")
        if self.sha256 not in (None, end.sha256) or self._bytes != end.size:
            raise BundleError("the bytes are not those that were offered: size or SHA-256 differ")
        return b"".join(self._pieces)


class Sending:
    """A bundle on its way out, a piece at a time, so that control and work go in between."""

    __slots__ = ("_at", "packed", "stream")

    def __init__(self, stream: int, packed: Packed) -> None:
        self.stream = stream
        self.packed = packed
        self._at = 0

    def next(self) -> m.BundleData | m.BundleEnd:
        piece = self.packed.data[self._at : self._at + PIECE_BYTES]
        self._at += len(piece)
        if piece:
            return m.BundleData(data=piece)
        return m.BundleEnd(found=True, size=len(self.packed.data), sha256=self.packed.sha256)
