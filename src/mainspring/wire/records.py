"""What records are made of: bounded types, arrays as bytes, the two kinds of record.

Hot records are arrays (fields by position), cold ones maps (by name, defaults left out: a default never changes).
"""

from struct import unpack
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from mainspring.core.cost import LONGEST_S

KIB, MIB = 1 << 10, 1 << 20

Seconds = Annotated[float, Meta(ge=0.0, le=LONGEST_S)]
Age = Annotated[float, Meta(ge=0.0, le=1e12)]
"""Of what may last longer than a day: a process, a request nobody hurries."""
Count = Annotated[int, Meta(ge=0, le=(1 << 53))]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Key = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=2048)]
Hash = Annotated[str, Meta(max_length=128)]
U32 = bytes
F32 = bytes
HeldKeys = Annotated[tuple[tuple[Key, Count], ...], Meta(max_length=4096)]
"""(checkpoint key, tokens)."""
Role = Literal["node", "client", "router"]
Numerics = Literal["fp32", "bf16", "fp8", "q4"]
FEW_BYTES = 4 << 8
"""Of an array that Python reads as fast as numpy does; a longer one takes Python up to a hundred times as long."""


def one_line(text: str, chars: int = 300) -> str:
    """A peer's text for a log: no line breaks, control or other characters that don't show, and not long."""
    cut = text if len(text) <= chars else text[: chars - 3] + "..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def u32(data: U32) -> NDArray[np.uint32]:
    """[n], read-only, no copy."""
    return np.frombuffer(data, dtype="<u4")


def ints(data: U32) -> tuple[int, ...]:
    """The same as Python's own: for a few, with which numpy takes several times as long."""
    return unpack(f"<{len(data) // 4}I", data)


def are_few(data: U32) -> bool:
    """Whether `ints` is the way to look at them all."""
    return len(data) <= FEW_BYTES


def f32(data: F32) -> NDArray[np.float32]:
    """[n], read-only, no copy."""
    return np.frombuffer(data, dtype="<f4")


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cold record: a map, fields by name."""

    cap: ClassVar[int] = 4 * KIB
    """Longest payload in bytes."""

    def check(self) -> None:
        """MessageError for what the types let through."""


class Row(Struct, frozen=True, kw_only=True, array_like=True):
    """A hot record: an array, fields by position."""

    cap: ClassVar[int] = 4 * KIB

    def check(self) -> None:
        """MessageError for what the types let through."""
