"""Bundles by hash: fetched once from any node that offers one, kept in memory and on disk, handed on in pieces.

Size and SHA-256 as offered are checked before a bundle is kept; what the bytes mean, and that they have the bundle's
own hash, is checked by whoever unpacks them. At most 64 MiB each and a cap in all, the least used go first.
"""

import hashlib
import logging
import os
import re
from collections import OrderedDict
from pathlib import Path

from mainspring.fleet.errors import BundleError
from mainspring.wire import messages as m

MAX_BYTES = 64 << 20
PIECE_BYTES = 256 << 10
DEFAULT_CAP_BYTES = 512 << 20
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,128}")
log = logging.getLogger("mainspring.fleet")


class BundleCache:
    """In memory up to `cap_bytes`; in `folder` too where there is one, so that a restart fetches nothing again."""

    def __init__(self, folder: Path | None = None, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self.folder = folder
        self.cap_bytes = cap_bytes
        self._data: OrderedDict[str, bytes] = OrderedDict()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                log.warning("bundles are kept in memory only: %s: %s", folder, error.strerror or error)
                self.folder = None

    def __contains__(self, bundle: str) -> bool:
        return self.get(bundle) is not None

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._data.values()))

    def get(self, bundle: str) -> bytes | None:
        """The packed bytes; a damaged file counts as none and is taken away."""
        data = self._data.get(bundle)
        if data is not None:
            self._data.move_to_end(bundle)
            return data
        data = self._read(bundle)
        if data is not None:
            self._remember(bundle, data)
        return data

    def put(self, bundle: str, data: bytes, *, size: int, sha256: str) -> None:
        """Raises BundleError unless the bytes are those that were promised."""
        if len(data) > MAX_BYTES:
            raise BundleError(f"a bundle of {len(data):,} bytes, at most {MAX_BYTES:,} are taken")
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            raise BundleError("the bytes are not those that were offered: size or SHA-256 differ")
        self._remember(bundle, data)
        self._write(bundle, data)

    def _remember(self, bundle: str, data: bytes) -> None:
        self._data[bundle] = data
        self._data.move_to_end(bundle)
        while len(self._data) > 1 and self.held_bytes > self.cap_bytes:
            self._data.popitem(last=False)

    def _path(self, bundle: str) -> Path | None:
        """Names come from peers: only plain ones become files."""
        return self.folder / f"{bundle}.bundle" if self.folder is not None and _PLAIN.fullmatch(bundle) else None

    def _read(self, bundle: str) -> bytes | None:
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
            return data
        log.warning("bundle file %s is damaged and was removed", path)
        path.unlink(missing_ok=True)
        return None

    def _write(self, bundle: str, data: bytes) -> None:
        """Whole or not at all; without the disk the cache lasts as long as the process, which the log says."""
        path = self._path(bundle)
        if path is None:
            return
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            part.write_bytes(hashlib.sha256(data).digest() + data)
            part.replace(path)
            self._trim(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            log.warning("bundle %s is not kept on disk: %s", bundle, error)

    def _trim(self, newest: Path) -> None:
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

    def finish(self, end: m.BundleEnd) -> tuple[bytes, str]:
        """The bytes and their SHA-256, checked. Raises BundleError."""
        if not end.found:
            raise BundleError("nobody there has this bundle")
        data = b"".join(self._pieces)
        digest = hashlib.sha256(data).hexdigest()
        if len(data) != end.size or digest != end.sha256 or self.sha256 not in (None, digest):
            raise BundleError("the bytes are not those that were offered: size or SHA-256 differ")
        return data, digest


class Sending:
    """A bundle on its way out, a piece at a time, so that control and work go in between."""

    __slots__ = ("_at", "data", "stream")

    def __init__(self, stream: int, data: bytes) -> None:
        self.stream = stream
        self.data = data
        self._at = 0

    def next(self) -> m.BundleData | m.BundleEnd:
        piece = self.data[self._at : self._at + PIECE_BYTES]
        self._at += len(piece)
        if piece:
            return m.BundleData(data=piece)
        return m.BundleEnd(found=True, size=len(self.data), sha256=hashlib.sha256(self.data).hexdigest())
