"""What a bundle brings along as familiarity may be anybody's bytes."""

import io
import zipfile

import numpy as np
import pytest

from mainspring.errors import ModelError
from mainspring.text.familiarity import FILE, FILE_BYTES, UNPACKED_BYTES, Familiarity


def saved(**change: np.ndarray) -> bytes:
    arrays = {
        "weight": np.ones(4, np.float16), "tokens": np.array([0, 3], np.uint32), "owners": np.zeros(2, np.uint16),
        "values": np.ones(2, np.float16),
    } | change  # fmt: skip
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def test_what_was_saved_is_read(tmp_path) -> None:
    made = Familiarity.of([{1: 2, 2: 1}, {2: 3}], 5)
    made.save(tmp_path)
    read = Familiarity.read((tmp_path / FILE).read_bytes())
    assert read([1, 2]) == pytest.approx(made([1, 2]), abs=1e-3)
    assert Familiarity.load(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no archive", saved()[:-30], saved(tokens=np.array([0, 4], np.uint32)),
        saved(owners=np.zeros(3, np.uint16)), saved(owners=np.array([0, 1 << 20])), saved(weight=np.ones((2, 2))),
        saved(values=np.array([np.nan, 1.0], np.float16)), b"\0" * (FILE_BYTES + 1),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match=FILE):
        Familiarity.read(data)


def test_a_small_file_that_unpacks_to_a_large_one_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weight.npy", bytes(UNPACKED_BYTES + 1))
    monkeypatch.setattr(np, "load", lambda *_args, **_named: pytest.fail("it was unpacked"))
    with pytest.raises(ModelError, match="at most"):
        Familiarity.read(out.getvalue())
