"""Just enough of GGUF (version 3, little-endian) to take weights and a tokenizer out of a file.

Source: the format's specification in the ggml repository. Blocks of 32 values: Q8_0 one fp16 scale and 32 int8; Q4_1
an fp16 scale and minimum and 32 nibbles, the low ones first.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"GGUF"
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
