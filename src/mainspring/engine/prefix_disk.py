"""Prefix checkpoints on disk, within a quota: what memory has no room for, and what a node keeps over a restart.

One safetensors file a checkpoint, written aside and renamed, by a thread of its own. Its name is a keyed hash of the
checkpoint's key, the key a secret of the folder: names tell nobody which texts were read here. A keyed hash of the
arrays lies in it: a file that was cut, changed or made by other weights, another build or other hardware is a miss and
is removed. What was used longest ago goes first. The folder belongs to one process at a time, and to its owner alone:
states of conversations are in these files, though no token is.
"""

import fcntl
import io
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from mainspring.engine.tensor_file import Arrays, head_of, write
from mainspring.errors import InputError

log = logging.getLogger(__name__)
WAITING_BYTES = 256 << 20
"""Of checkpoints that may wait to be written, on their device or here; more is not kept."""
MOST_FILES = 65_536
NAME = re.compile(r"[0-9a-f]{32}\.safetensors")
SECRET = "key"  # noqa: S105 - a file's name


class Leaving(Protocol):
    """A checkpoint on its way out of a device, of `nbytes` in all."""

    nbytes: int

    def begin(self) -> bool:
        """In the device's thread: what it is now is what `arrays` will give, whatever the device does next. False where
        it has no memory for that."""
        ...

    def arrays(self) -> Arrays:
        """After `begin`, in another thread: all of it on the host, waited for."""
        ...


class PrefixDisk:
    """`identity` names whatever the arrays' bits depend on beside the tokens: weights, numerics, hardware, build.
    InputError where the folder can't be used."""

    def __init__(self, folder: Path, quota_bytes: int, identity: str) -> None:
        self.folder, self.quota_bytes = folder, quota_bytes
        self.used_bytes = self.hits = self.misses = self.written = self.evictions = self.broken = self.skipped = 0
        self._files: OrderedDict[str, int] = OrderedDict()  # name -> bytes, by last use
        self._waiting: set[str] = set()
        self._waiting_bytes = 0
        self._failing = False
        self._mutex = Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(folder / "lock")
        except BlockingIOError:
            raise InputError(f"{folder} is in use by another node", param="prefix_disk") from None
        except OSError as error:
            raise InputError(f"{folder} can't be used: {error.strerror}", param="prefix_disk") from None
        try:
            self._key = blake2b(identity.encode(), key=_secret(folder / SECRET), digest_size=32).digest()
            self._scan()
        except OSError as error:
            os.close(self._lock)
            raise InputError(f"{folder} can't be used: {error.strerror}", param="prefix_disk") from None
        self._thread = ThreadPoolExecutor(1, "prefix-disk")

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, key: bytes) -> bool:
        return self._name(key) in self._files

    def bytes_of(self, key: bytes) -> int:
        """Of its file, 0 where it is not here."""
        return self._files.get(self._name(key), 0)

    def put(self, key: bytes, leaving: Leaving) -> bool:
        """Begun, and written soon; False where it is here already, too large, too much waits, or it can't begin."""
        name, size = self._name(key), leaving.nbytes
        with self._mutex:
            if name in self._files or name in self._waiting:
                return False
            if size > self.quota_bytes or self._waiting_bytes + size > WAITING_BYTES:
                self.skipped += 1
                return False
            self._waiting.add(name)
            self._waiting_bytes += size
        begun = False
        try:
            begun = leaving.begin()
        finally:
            if not begun:
                self._waited(name, size)
        if not begun:
            self.skipped += 1
            return False
        self._thread.submit(self._write, name, leaving, size)
        return True

    def get(self, key: bytes) -> dict[str, NDArray[np.generic]] | None:
        """None where it is not here. A broken file is removed."""
        name = self._name(key)
        with self._mutex:
            if name not in self._files:
                self.misses += 1
                return None
        path = self.folder / name
        try:
            with safe_open(path, framework="np") as file:
                arrays = {each: file.get_tensor(each) for each in file.keys()}  # noqa: SIM118 - it is no mapping
                sound = secrets.compare_digest((file.metadata() or {}).get("mac", ""), self._mac(name, arrays))
            if sound:
                os.utime(path)
        except (OSError, SafetensorError, ValueError, TypeError, KeyError):
            sound = False
        with self._mutex:
            if sound:
                self.hits += 1
                if name in self._files:
                    self._files.move_to_end(name)
                return arrays
            self.misses += 1
        self._break(name)
        return None

    def remove(self, key: bytes) -> None:
        """What can't be used, sound as its file is."""
        self._break(self._name(key))

    def close(self) -> None:
        """What waits is written; the folder is free then."""
        self._thread.shutdown(wait=True)
        os.close(self._lock)

    # ------------------------------------------------------ within

    def _name(self, key: bytes) -> str:
        return blake2b(key, key=self._key, digest_size=16).hexdigest() + ".safetensors"

    def _mac(self, name: str, arrays: Arrays) -> str:
        made = blake2b(name.encode(), key=self._key, digest_size=32)
        for each in sorted(arrays):
            array = arrays[each]
            made.update(f"{each}\0{array.dtype.str}\0{array.shape}\0".encode())
            made.update(array.reshape(-1).view(np.uint8).data)
        return made.hexdigest()

    def _waited(self, name: str, size: int) -> None:
        with self._mutex:
            self._waiting.discard(name)
            self._waiting_bytes -= size

    def _write(self, name: str, leaving: Leaving, size: int) -> None:
        """In the thread. A disk that takes nothing costs later prompts a scan, so it is only said, once."""
        path, aside = self.folder / name, self.folder / f"{name}.tmp"
        try:
            arrays = leaving.arrays()
            metadata = {"mac": self._mac(name, arrays)}
            taken = len(head_of(arrays, metadata)) + sum(each.nbytes for each in arrays.values())
            with self._mutex:
                self._make_room(taken)
            with _aside(aside, path) as file:
                write(file, arrays, metadata)
            with self._mutex:
                self._files[name] = taken
                self.used_bytes += taken
                self.written += 1
                self._make_room(0)
            self._failing = False
        except Exception as error:
            if not self._failing:
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                log.warning("checkpoints can't be kept in %s: %s", self.folder, why)
            self._failing = True
            _unlink(aside)
        finally:
            self._waited(name, size)

    def _make_room(self, more: int) -> None:
        while self._files and (self.used_bytes + more > self.quota_bytes or len(self._files) > MOST_FILES):
            name, size = self._files.popitem(last=False)
            self.used_bytes -= size
            self.evictions += 1
            _unlink(self.folder / name)

    def _break(self, name: str) -> None:
        with self._mutex:
            size = self._files.pop(name, None)
            if size is not None:
                self.used_bytes -= size
                self.broken += 1
        _unlink(self.folder / name)

    def _scan(self) -> None:
        """What earlier lives left, and the remains of one that was cut short. Files of other names are let be."""
        found: list[tuple[int, str, int]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    found.append((stat.st_mtime_ns, entry.name, stat.st_size))
                elif NAME.fullmatch(entry.name.removesuffix(".tmp")):
                    _unlink(self.folder / entry.name)
        for _, name, size in sorted(found):
            self._files[name] = size
            self.used_bytes += size
        self._make_room(0)


def _locked(path: Path) -> int:
    """BlockingIOError where somebody has it."""
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def _secret(path: Path) -> bytes:
    """32 bytes, made the first time; what was kept under another one is never found again, and goes by age."""
    try:
        held = path.read_bytes()
        if len(held) == 32:
            return held
    except FileNotFoundError:
        pass
    made = secrets.token_bytes(32)
    with _aside(path.with_suffix(".tmp"), path) as file:
        file.write(made)
    return made


@contextmanager
def _aside(aside: Path, path: Path) -> Iterator[io.FileIO]:
    """Unbuffered, for its owner's eyes; in its place whole or not at all."""
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0) as file:
        yield file
    aside.replace(path)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s can't be removed: %s", path, error.strerror)
