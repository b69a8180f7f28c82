"""Just enough of GGUF (version 3, little-endian) to take a token table and a tokenizer out of a file.

Source: the format's specification in the ggml repository. Q8_0 is blocks of 32 values: one fp16 scale, 32 int8.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
Q8_0, Q8_BLOCK = 8, 32


@dataclass(frozen=True)
class Gguf:
    """`fields` are the file's key-value pairs; `tensors` map a name to (sizes innermost first, type, offset)."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]

    def q8_rows(self, name: str, rows: int) -> npt.NDArray[np.float32]:
        """The first `rows` rows of a Q8_0 matrix, as fp32."""
        (width, total), kind, offset = self.tensors[name]
        if kind != Q8_0 or rows > total:
            raise ValueError(f"{name} is of type {kind} with {total} rows, wanted: Q8_0 with at least {rows}")
        block = np.dtype([("scale", "<f2"), ("values", "i1", (Q8_BLOCK,))])
        data = np.memmap(self.path, block, "r", offset, (rows, width // Q8_BLOCK))
        wide = data["values"].astype(np.float32) * data["scale"].astype(np.float32)[..., None]
        return wide.reshape(rows, width)


def read_gguf(path: Path) -> Gguf:
    reader = _Reader(path.read_bytes())
    if reader.take(4) != MAGIC:
        raise ValueError(f"{path} is no GGUF file")
    reader.scalar("I")
    tensors, pairs = reader.scalar("Q"), reader.scalar("Q")
    fields = {reader.text(): reader.value(reader.scalar("I")) for _ in range(pairs)}
    infos = {}
    for _ in range(tensors):
        name = reader.text()
        sizes = tuple(reader.scalar("Q") for _ in range(reader.scalar("I")))
        infos[name] = (sizes, reader.scalar("I"), reader.scalar("Q"))
    alignment = int(fields.get("general.alignment", 32))
    start = -(-reader.at // alignment) * alignment
    return Gguf(path, fields, {name: (sizes, kind, start + at) for name, (sizes, kind, at) in infos.items()})


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            return [self.value(inner) for _ in range(count)]
        return self.scalar(_SCALARS[kind])
