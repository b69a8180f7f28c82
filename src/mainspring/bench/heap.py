"""What the C library's allocator says of its heap. What is free within it is still resident: holes between blocks that
are in use."""

import ctypes
from collections.abc import Callable

from msgspec import Struct

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Heap(Struct, frozen=True):
    """MiB, all threads' arenas: blocks `in_use`, `free` ones between them, large blocks `mapped` by themselves."""

    in_use: float
    free: float
    mapped: float


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def heap() -> Heap | None:
    """Of this process; None where the library does not tell (glibc 2.33 and later do)."""
    mallinfo2: Callable[[], _Mallinfo2] | None = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return None
    mallinfo2.restype = _Mallinfo2  # type: ignore[attr-defined]  # a function of ctypes
    info = mallinfo2()
    return Heap(info.uordblks / 2**20, info.fordblks / 2**20, info.hblkhd / 2**20)
