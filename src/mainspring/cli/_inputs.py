"""FILE arguments to spans: files, folders, `-` for stdin, in bounded memory whatever the size of a stream of lines.

Every argument is looked up before anything is read, so that a typing error ends a command before a model is loaded.
What goes wrong later is an Item with an error, and the other spans go on.
"""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click

from mainspring.cli._visible import visible
from mainspring.errors import InputError
from mainspring.text.formats import check_name
from mainspring.text.formats.documents import Item, read_stream

SUFFIXES = (".json", ".jsonl", ".ndjson", ".txt")
STDIN = "<stdin>"


@dataclass(frozen=True)
class Source:
    """`path` None is stdin; `size` None is unknown until it ends."""

    name: str
    path: Path | None
    size: int | None


class Inputs:
    """Spans of all sources in order, once. `total_bytes` None: unknown; `read_bytes` so far."""

    def __init__(self, files: Sequence[str], format: str | None = None) -> None:  # noqa: A002
        """UsageError: no such file, a folder without spans. UnknownFormatError."""
        check_name(format)
        if files.count("-") > 1:
            raise click.UsageError("stdin (-) can be read once")
        self.sources = [source for file in files for source in _find(file)]
        self.format = format
        self.read_bytes = 0
        sizes = [source.size for source in self.sources]
        self.total_bytes = None if None in sizes else sum(size or 0 for size in sizes)

    def __iter__(self) -> Iterator[Item]:
        before = 0
        for source in self.sources:
            yield from self._items(source, before)
            before += source.size or 0
            self.read_bytes = before

    def _items(self, source: Source, before: int) -> Iterator[Item]:
        index = 0
        try:
            if source.path is None:
                yield from read_stream(sys.stdin.buffer, format=self.format, name=source.name)
                return
            with source.path.open("rb") as file:
                for item in read_stream(file, format=self.format, name=source.name):
                    self.read_bytes = before + _position(file, source)
                    yield item
                    index = item.index + 1
        except OSError as error:
            yield Item(source.name, index, error=InputError(f"can't be read: {error.strerror or type(error).__name__}"))


def _position(file: IO[bytes], source: Source) -> int:
    return file.tell() if source.size is not None else 0


def _find(file: str) -> list[Source]:
    if file == "-":
        return [Source(STDIN, None, None)]
    path = Path(file)
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file name"
        raise click.UsageError(f"{_shown(file)}: {reason}") from None
    if not stat.S_ISDIR(status.st_mode):
        return [_source(path)]
    found = [_source(inner) for inner in _walk(path)]
    if not found:
        kinds = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise click.UsageError(f"{_shown(file)}: the folder holds no spans ({kinds}; hidden files are skipped)")
    return found


def _walk(folder: Path) -> list[Path]:
    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(root, name) for name in files if not name.startswith(".") and name.lower().endswith(SUFFIXES)]
    return sorted(path for path in found if not _is_endless(path))


def _is_endless(path: Path) -> bool:
    """A pipe, socket or device among a folder's files: nobody named it, and reading it may wait for ever."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link to nowhere, say: reading it tells
        return False


def _source(path: Path) -> Source:
    """Of what is no regular file (a pipe, a file that just went) the size is unknown."""
    try:
        status = path.stat()
    except OSError:
        return Source(str(path), path, None)
    return Source(str(path), path, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _shown(file: str) -> str:
    return visible(file, encoding=sys.stderr.encoding)
