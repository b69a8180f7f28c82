"""Files that safetensors reads: written from where the arrays are, in pieces as small as a disk takes them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from mainspring.engine.tensor_file import bytes_of, head_of, write

ARRAYS: dict[str, Any] = {
    "rows": np.arange(30, dtype=np.float32).reshape(2, 3, 5),
    "halves": np.arange(-3, 4, dtype=np.int16),
    "none": np.zeros((0, 4), np.float32),
    "counts": np.array([1 << 40, -1]),
}


class Stingy(io.FileIO):
    """Takes seven bytes at a time."""

    def write(self, data: Any) -> int:
        return super().write(memoryview(data)[:7])


@pytest.mark.parametrize("kind", [io.FileIO, Stingy])
def test_the_library_reads_them(kind: type[io.FileIO], tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with kind(path, "wb") as file:
        write(file, ARRAYS, {"mac": "abc"})
    found = load_file(path)
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    with safe_open(path, framework="np") as read:
        assert read.metadata() == {"mac": "abc"}
    assert path.stat().st_size == len(head_of(ARRAYS, {"mac": "abc"})) + sum(each.nbytes for each in ARRAYS.values())


def test_nothing_is_copied() -> None:
    for part, array in zip(bytes_of(ARRAYS), ARRAYS.values(), strict=True):
        assert not part.nbytes or np.shares_memory(np.asarray(part), array)


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x holds <f2; known: <f4"):
        head_of({"x": np.zeros(3, np.float16)}, {})
