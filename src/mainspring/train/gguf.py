"""Just enough of GGUF (version 3, little-endian) to take weights and a tokenizer out of a file.

Source: the format's specification in the ggml repository. Blocks of 32 values: Q8_0 one fp16 scale and 32 int8; Q4_1
an fp16 scale and minimum and 32 nibbles, the low ones first.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC, VERSIONS = b"GGUF", (2, 3)  # the second differs in nothing that is read here
MOST_ENTRIES, MOST_NESTED = 4_000_000, 8  # of all fields and arrays together: each becomes an object
MOST_SIZES = 8
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
BLOCK = 32
_Q8 = np.dtype([("scale", "<f2"), ("values", "i1", (BLOCK,))])
_Q4 = np.dtype([("scale", "<f2"), ("least", "<f2"), ("nibbles", "u1", (BLOCK // 2,))])


@dataclass(frozen=True)
class Gguf:
    """`fields` are the file's key-value pairs; `tensors` map a name to (sizes innermost first, type, offset)."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]

    def field(self, name: str, kind: type) -> Any:
        """A field of that type. ValueError names one that is missing or of another."""
        value = self.fields.get(name)
        if not isinstance(value, kind):
            raise ValueError(
                f"{self.path.name}: the field {name} is {'missing' if value is None else 'no ' + kind.__name__}"
            )
        return value

    def strings(self, name: str) -> list[str]:
        """A field that is a list of strings."""
        found: list[str] = self.field(name, list)
        if not all(isinstance(each, str) for each in found):
            raise ValueError(f"{self.path.name}: the field {name} holds something else than strings")
        return found

    def pairs(self) -> list[tuple[str, str]]:
        """Merges of the byte-level BPE in their order. ValueError names one whose parts or whole are no tokens."""
        known = set(self.strings("tokenizer.ggml.tokens"))
        found = []
        for pair in self.strings("tokenizer.ggml.merges"):
            left, _, right = pair.partition(" ")
            if not {left, right, left + right} <= known:
                raise ValueError(f"{self.path.name}: the merge {pair!r} is not of tokens and to a token")
            found.append((left, right))
        return found

    def rows(self, name: str, count: int | None = None) -> npt.NDArray[np.float32]:
        """A vector [n] or the first `count` rows of a matrix [rows, columns] (None: all) in fp32. ValueError names a
        type that is not read, or rows that are not there."""
        if name not in self.tensors:
            raise ValueError(f"{self.path.name} holds no tensor {name!r}")
        sizes, kind, offset = self.tensors[name]
        width, total = sizes[0], math.prod(sizes[1:])
        wanted = total if count is None else count
        if wanted > total:
            raise ValueError(f"{name} has {total} rows, {wanted} are wanted")
        if kind in (F32, F16):
            found = np.memmap(self.path, "<f4" if kind == F32 else "<f2", "r", offset, (wanted, width))
            return found.astype(np.float32).reshape(*((wanted,) if len(sizes) > 1 else ()), width)
        if kind not in (Q8_0, Q4_1) or width % BLOCK:
            raise ValueError(
                f"{name} is of type {kind}, {width} wide; read are F32, F16, Q8_0 and Q4_1 in whole blocks"
            )
        data = np.memmap(self.path, _Q8 if kind == Q8_0 else _Q4, "r", offset, (wanted, width // BLOCK))
        if kind == Q8_0:
            wide = data["values"].astype(np.float32)
        else:
            nibbles = data["nibbles"]
            wide = np.concatenate([nibbles & 15, nibbles >> 4], -1).astype(np.float32)
        wide *= data["scale"].astype(np.float32)[..., None]
        if kind == Q4_1:
            wide += data["least"].astype(np.float32)[..., None]
        return wide.reshape(wanted, width)


def read_gguf(path: Path) -> Gguf:
    """ValueError where the file is none, is cut, or holds what no model's file does."""
    with path.open("rb") as handle:
        if handle.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path.name} is no GGUF file")
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read(path, _Reader(data, len(MAGIC)))
            except (struct.error, UnicodeDecodeError):
                raise ValueError(f"{path.name} is a GGUF file that is cut or damaged") from None


def _read(path: Path, reader: "_Reader") -> Gguf:
    if (version := reader.scalar("I")) not in VERSIONS:
        raise ValueError(f"{path.name} is GGUF of version {version}; read are {' and '.join(map(str, VERSIONS))}")
    tensors, pairs = reader.scalar("Q"), reader.scalar("Q")
    fields = {reader.text(): reader.value(reader.scalar("I")) for _ in range(pairs)}
    infos = {}
    for _ in range(tensors):
        name = reader.text()
        if not 1 <= (count := reader.scalar("I")) <= MOST_SIZES:
            raise ValueError(f"{path.name}: a tensor of {count} dimensions; 1 to {MOST_SIZES} are read")
        sizes = tuple(reader.scalar("Q") for _ in range(count))
        infos[name] = (sizes, reader.scalar("I"), reader.scalar("Q"))
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise ValueError(f"{path.name}: general.alignment is not between 1 and {1 << 20:,}")
    start = -(-reader.at // alignment) * alignment
    return Gguf(path, fields, {name: (sizes, kind, start + at) for name, (sizes, kind, at) in infos.items()})


class _Reader:
    """What is announced is never made room for: a count is believed as far as the file goes."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.data, self.at, self.left = data, at, MOST_ENTRIES

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise struct.error
        self.at += count
        return self.data[self.at - count : self.at]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8")

    def value(self, kind: int, nested: int = 0) -> Any:
        self.left -= 1
        if self.left < 0 or nested > MOST_NESTED:
            raise ValueError(f"GGUF fields of more than {MOST_ENTRIES:,} values or {MOST_NESTED} arrays in each other")
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            return [self.value(inner, nested + 1) for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"GGUF fields of type {kind} are not read")
        return self.scalar(_SCALARS[kind])
