"""Rows of one's own: read, refused with file and line, trained on over a base, measured."""

import json
from pathlib import Path

import pytest
import torch

from mainspring.errors import InputError
from mainspring.model.loading import load_hybrid
from mainspring.scorer import Scorer
from mainspring.text.probability import Calibration
from mainspring.train.config import Config, Training, read_config
from mainspring.train.evaluate import report, score_rows, table
from mainspring.train.labelled import read_rows
from mainspring.train.pipeline import train_scorer
from support.models import write_tiny_weights
from support.tiny_tokenizer import write_tiny_tokenizer

ANSWERS = {"present": "Hello there, dear user.", "absent": "No.", "not_observable": None}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    entries = [
        {
            "task_id": f"t{i}",
            "behavior_definition": "the assistant greets the user",
            "label": label,
            "input": json.dumps([{"role": "user", "content": f"Hi number {i}"}]),
            "output": output and {"role": "assistant", "content": output},
        }
        for i in range(24)
        for label, output in ANSWERS.items()
    ]
    path.write_text("\n".join(map(json.dumps, entries)))
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_tiny_tokenizer(tmp_path / "base", vocab_size=400)
    write_tiny_weights(tmp_path / "base", vocab_size=512)
    return tmp_path / "base"


def test_rows_are_read_and_faults_are_named(rows: Path, tmp_path: Path) -> None:
    found = list(read_rows([rows]))
    assert [row.label for row in found[:3]] == [0, 1, 2]
    assert not found[2].span.output
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"label": "maybe", "behavior_definition": "x", "input": "a", "output": "b"}\n')
    with pytest.raises(InputError, match=r"bad\.jsonl, line 1: label is one of"):
        list(read_rows([bad]))


@pytest.mark.parametrize("tune", ["all", "head", "lora"])
def test_training_on_top_of_a_base_changes_what_it_may(tune: str, rows: Path, base: Path, tmp_path: Path) -> None:
    training = Training(epochs=4, tokens=2048, warmup=2, rate=5e-3, rank=2, quantise=False, dropout=0.0)
    config = Config(tmp_path / "out", data=(rows,), base=base, tune=tune, training=training)  # type: ignore[arg-type]
    folder = train_scorer(config, device="cpu", say=lambda _: None)
    assert folder is not None
    before, after = load_hybrid(base), load_hybrid(folder)
    name = "blocks.0.mlp.down_proj.weight"
    same = torch.equal(before.get_parameter(name), after.get_parameter(name))
    assert same == (tune == "head")
    assert not torch.equal(before.head.weight, after.head.weight)


def test_marks_of_a_scorer(rows: Path, base: Path) -> None:
    scored = score_rows(Scorer.from_pretrained(base, threads=1), read_rows([rows]))
    found = report(scored, Calibration(), rounds=5)
    assert found["all"]["rows"] == 72
    assert found["all"]["behaviors"] == 1
    assert "| all | 72 |" in table(found)


def test_config_names_the_key_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('out = "x"\n[training]\nepoch = 3\n')
    with pytest.raises(InputError, match=r"training\.epoch: unknown key"):
        read_config(path)
    path.write_text('out = "x"\ntune = "lora"\n')
    with pytest.raises(InputError, match="name one"):
        read_config(path)
