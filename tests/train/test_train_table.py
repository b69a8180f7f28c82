"""What a scorer's embeddings start from: a table cut from a published file, or the embedded scorer's own."""

import zipfile
from pathlib import Path

import pytest
import torch

from mainspring.errors import InputError
from mainspring.hub import EMBEDDED, model_folder
from mainspring.model.loading import load_hybrid
from mainspring.train import smollm2
from mainspring.train.gguf import read_gguf
from mainspring.train.smollm2 import CONTROL, TABLE, load_table
from support.gguf import CONTROL as GGUF_CONTROL
from support.gguf import write_tiny_gguf

SIZE, WIDTH = 21_900, 64


@pytest.fixture(autouse=True)
def _smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "VOCAB_SIZE", SIZE)
    monkeypatch.setattr(smollm2, "TABLE_WIDTH", WIDTH)
    monkeypatch.setattr(smollm2, "SOURCE_CONTROL", len(GGUF_CONTROL))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "model.gguf"
    write_tiny_gguf(path, size=SIZE + 50, width=WIDTH, layers=1)
    return path


def test_rows_lie_to_each_other_as_those_of_the_file(gguf: Path, tmp_path: Path) -> None:
    table = load_table(gguf, tmp_path)
    assert table.shape == (SIZE, WIDTH)
    assert table.std() == pytest.approx(1, rel=0.01)
    ordinary = SIZE - len(CONTROL)
    first = len(GGUF_CONTROL)
    rows = torch.from_numpy(read_gguf(gguf).rows("token_embd.weight", first + ordinary)[first:])
    some = torch.arange(0, ordinary, 997)
    ours, theirs = torch.cdist(table[some], table[some]), torch.cdist(rows[some], rows[some])
    apart = theirs > 0
    ratio = ours[apart] / theirs[apart]
    assert ratio.std() / ratio.mean() < 0.01  # all columns are kept at this width: a rotation, rounded
    for row in table[ordinary:]:  # a control token starts as a copy of its word
        assert (table[:ordinary] == row).all(1).any()


def test_a_wheel_or_parts_do_as_well_and_only_once(gguf: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "package/model.gguf")
    table = load_table(wheel, tmp_path)
    assert torch.equal(table, load_table(gguf, tmp_path / "other"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "some.whl", TABLE]
    wheel.unlink()
    assert torch.equal(load_table(wheel, tmp_path), table)


def test_without_a_file_the_embedded_scorers_rows_are_taken(tmp_path: Path) -> None:
    table = load_table(None, tmp_path)
    embed = load_hybrid(model_folder(EMBEDDED)).embed.weight
    assert table.std() == pytest.approx(1, rel=1e-4)
    assert torch.allclose(table * embed.std(), embed, atol=1e-6)
    assert not list(tmp_path.iterdir())


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no GGUF file") as found:
        load_table(tmp_path / "nothing", tmp_path)
    assert found.value.param == "table"
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(InputError, match="holds 0 GGUF files"):
        load_table(tmp_path / "empty.whl", tmp_path)
    assert not (tmp_path / TABLE).exists()
