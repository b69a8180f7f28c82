"""Measured constants on disk, keyed by weights, device and build: a node that starts again joins at once.

One small JSON file a key, written whole or not at all; a damaged or foreign one is ignored and said so. At most `KEPT`
files: the oldest go.
"""

import hashlib
import logging
import os
from pathlib import Path

import msgspec

from mainspring.core.cost import Cost, Sample

log = logging.getLogger(__name__)
KEPT = 64
LARGEST_BYTES = 256 << 10


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a whole probe found. `key` is what it was found for, so that a copied file can't pass for another's."""

    key: str
    cost: Cost
    anchors: tuple[Sample, ...]
    version: int = 1


def constants_key(*, model: str, device: str, numerics: str, build: str) -> str:
    """`model` is the model key; `device` names hardware, threads and throttle; `build` ours and the library's."""
    content = "\0".join((model, device, numerics, build))
    return hashlib.sha256(content.encode()).hexdigest()


def load(folder: Path, key: str) -> Constants | None:
    path = _path(folder, key)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES:,} bytes")
        found = msgspec.json.decode(path.read_bytes(), type=Constants)
        found.cost.check()
        if found.key != key or found.version != 1:
            raise ValueError("made for something else")
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever is wrong with a cache, the node measures again
        log.warning("cost constants in %s are ignored: %s", path, error)
        return None
    return found


def save(folder: Path, constants: Constants) -> None:
    """A disk that takes nothing costs the next start a probe, so it is only logged."""
    path = _path(folder, constants.key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(msgspec.json.encode(constants))
        temporary.replace(path)
        files = sorted(folder.glob("cost-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[KEPT:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cost constants can't be kept in %s: %s", folder, error.strerror)


def _path(folder: Path, key: str) -> Path:
    return folder / f"cost-{key[:32]}.json"
