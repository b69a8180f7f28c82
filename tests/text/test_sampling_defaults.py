"""What a checkpoint says of how its tokens are chosen: read, checked, packed, part of the bundle's identity."""

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.errors import ModelError
from mainspring.hub import WRITER, model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.sampling import SamplingDefaults
from support.tiny_tokenizer import write_tiny_tokenizer

OWN: dict[str, Any] = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}


def loaded(folder: Path, **generation: Any) -> Bundle:
    return Bundle.load(write_tiny_tokenizer(folder, generation=generation))


def test_fields_are_read_and_travel(tmp_path: Path) -> None:
    made = loaded(tmp_path, **OWN, do_sample=False, max_new_tokens=9, frequency_penalty=0.5)
    assert made.files.sampling.said() == OWN
    there = Bundle.unpack(made.pack())
    assert (there.files.sampling, there.hash) == (made.files.sampling, made.hash)


def test_what_says_nothing_is_no_part_of_the_hash(tmp_path: Path) -> None:
    plain = loaded(tmp_path)
    assert plain.files.sampling == SamplingDefaults()
    nothing = loaded(tmp_path, temperature=None, top_k=None, transformers_version="5.0")
    assert nothing.hash == plain.hash
    (tmp_path / "generation_config.json").unlink()
    assert Bundle.load(tmp_path).files.sampling == SamplingDefaults()
    hashes = {loaded(tmp_path, **{name: value}).hash for name, value in OWN.items()}
    assert len(hashes | {plain.hash}) == len(OWN) + 1


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("temperature", -0.1, ">= 0.0"),
        ("temperature", "warm", "`float"),
        ("top_p", 0.0, "> 0.0"),
        ("top_p", 1.5, "<= 1.0"),
        ("top_k", -2, ">= -1"),
        ("top_k", 0.5, "`int"),
        ("min_p", 2, "<= 1.0"),
        ("repetition_penalty", 0, ">= 0.01"),
    ],
)
def test_a_bad_value_names_file_field_and_limit(tmp_path: Path, name: str, value: Any, why: str) -> None:
    with pytest.raises(ModelError, match=rf"generation_config\.json: .*{why}.*{name}"):
        loaded(tmp_path, **{name: value})


def test_a_bad_value_in_a_packed_bundle_is_refused(tmp_path: Path) -> None:
    files = msgspec.msgpack.decode(zlib.decompress(loaded(tmp_path, **OWN).pack()))
    files["sampling"]["temperature"] = float("nan")
    with pytest.raises(ModelError, match="no bundle"):
        Bundle.unpack(zlib.compress(msgspec.msgpack.encode(files)))


def test_the_embedded_writer_asks_for_what_its_page_says() -> None:
    folder = model_folder(WRITER)
    sampling = json.loads((folder / "report.json").read_text())["sampling"]
    assert Bundle.load(folder).files.sampling.said() == {name: sampling[name] for name in ("temperature", "top_p")}
