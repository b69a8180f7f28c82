"""What a bundle brings along as familiarity may be anybody's bytes."""

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mainspring.errors import ModelError
from mainspring.hub import model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.familiarity import FILE, FILE_BYTES, UNPACKED_BYTES, Familiarity


def saved(**change: np.ndarray) -> bytes:
    arrays = {
        "weight": np.ones(4, np.float16), "tokens": np.array([0, 3], np.uint32), "owners": np.zeros(2, np.uint16),
        "values": np.ones(2, np.float16),
    } | change  # fmt: skip
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def archive(weight: bytes, *, broken: bool = False) -> bytes:
    """`saved` with other bytes for its weights; `broken`: within what is packed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved())) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("weight.npy", weight)
        for name in ("tokens.npy", "owners.npy", "values.npy"):
            made.writestr(name, source.read(name))
    data = bytearray(out.getvalue())
    if broken:
        data[40:44] = b"\xff\xff\xff\xff"
    return bytes(data)


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_what_was_saved_is_read(tmp_path) -> None:
    made = Familiarity.of([{1: 2, 2: 1}, {2: 3}], 5)
    made.save(tmp_path)
    read = Familiarity.read((tmp_path / FILE).read_bytes())
    assert read([1, 2]) == pytest.approx(made([1, 2]), abs=1e-3)
    assert Familiarity.load(tmp_path / "elsewhere") is None


@pytest.mark.parametrize("vocab", [20_000, 70_000])
def test_what_is_saved_is_as_good_in_less_room(tmp_path, vocab: int) -> None:
    """Tokens of a behavior in order, in the narrowest type that holds them all; values in steps."""
    rng = np.random.default_rng(0)
    bags = [
        {
            int(token): int(count)
            for token, count in zip(rng.integers(0, vocab, 90), rng.integers(1, 30, 90), strict=True)
        }
        for _ in range(200)
    ]
    made = Familiarity.of(bags, vocab)
    made.save(tmp_path)
    read = Familiarity.read((tmp_path / FILE).read_bytes())
    assert (read.tokens == made.tokens).all()
    for bag, asked in zip(bags, rng.choice(made.tokens, (200, 12)), strict=True):
        tokens = [*asked, *list(bag)[:9]]
        assert read(tokens) == pytest.approx(made(tokens), abs=3e-3)
    inner = np.diff(made.owners) == 0
    assert (np.diff(made.tokens)[inner] > 0).all()
    plain = io.BytesIO()
    arrays = {"weight": made.weight.astype(np.float16), "tokens": made.tokens, "owners": made.owners.astype(np.uint16)}
    np.savez_compressed(plain, allow_pickle=False, **arrays, values=made.values.astype(np.float16))
    assert (tmp_path / FILE).stat().st_size < 0.92 * len(plain.getvalue())


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no archive", saved()[:-30], saved(tokens=np.array([0, 4], np.uint32)),
        saved(owners=np.zeros(3, np.uint16)), saved(owners=np.array([0, 1 << 20])), saved(weight=np.ones((2, 2))),
        saved(values=np.array([np.nan, 1.0], np.float16)), b"\0" * (FILE_BYTES + 1),
        archive(header("(1000000000000000,)")), archive(header("((((")), archive(b"no array"),
        archive(header("(4,)"), broken=True), saved(weight=np.ones(4, complex)), saved(weight=np.zeros(4, "V8")),
        saved(weight=np.zeros(4, [("a", "f4")])), saved(weight=np.array(["a"] * 4)), saved(weight=np.full(4, 1e300)),
        saved(weight=np.full(4, 1e30)), saved(values=np.array([2.0, 1.0])), saved(tokens=np.array([np.nan, 1.0])),
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


def test_a_folder_with_a_broken_one_is_refused_where_it_is_opened(tmp_path: Path) -> None:
    """Else a node would serve it and every gateway would refuse its bundle."""
    folder = shutil.copytree(
        model_folder("embedded"), tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")
    )
    (folder / FILE).write_bytes(b"no archive")
    with pytest.raises(ModelError, match=FILE):
        Bundle.load(folder)
