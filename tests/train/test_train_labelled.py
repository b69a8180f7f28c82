"""Rows of one's own: read, refused with file and line, trained on over a base, measured."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.errors import InputError
from mainspring.model.loading import load_hybrid
from mainspring.scorer import Scorer
from mainspring.text.probability import Calibration
from mainspring.train.config import Config, Shape, Training, read_config
from mainspring.train.evaluate import report, score_rows, table
from mainspring.train.labelled import read_rows
from mainspring.train.pipeline import train_scorer
from support.models import write_tiny_weights
from support.tiny_tokenizer import write_tiny_tokenizer

SOURCES = Path(__file__).parents[2] / "data" / "sources"
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
    training = Training(epochs=1, tokens=2048, warmup=2, rate=5e-3, rank=2, quantise=False, dropout=0.0)
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


def test_training_from_scratch_on_rows_of_ones_own(rows: Path, tmp_path: Path) -> None:
    shape = Shape(
        32, 32, 2, attention_every=2, num_attention_heads=2, num_key_value_heads=1, linear_heads=2, head_dim=16
    )
    training = Training(epochs=2, tokens=1024, warmup=2, rate=3e-3, language=0.5, muon=True)
    config = Config(tmp_path / "scratch", SOURCES, data=(rows,), shape=shape, training=training)
    folder = train_scorer(config, device="cpu", say=lambda _: None)
    assert folder is not None
    (result,) = Scorer.from_pretrained(folder, threads=1).score("user: Hi\n", ["the assistant greets the user"])
    assert result.familiarity is not None


def test_commands_train_in_parts_and_measure(rows: Path, base: Path, tmp_path: Path) -> None:
    """`train scorer --minutes` leaves with 75 until it is done; `evaluate --fit` stores what it finds."""
    config = tmp_path / "mine.toml"
    config.write_text(
        f'out = "{tmp_path / "mine"}"\ndata = ["{rows}"]\nbase = "{base}"\n'
        "[training]\nepochs = 1\ntokens = 512\nquantise = false\n"
    )
    call = CliRunner().invoke
    first = call(main, ["train", "scorer", str(config), "--device", "cpu", "--minutes", "0"])
    assert first.exit_code == 75, first.output
    assert "goes on from there" in first.output
    second = call(main, ["train", "scorer", str(config), "--device", "cpu"])
    assert second.exit_code == 0, second.output
    folder, report_at, plot = tmp_path / "mine" / "model", tmp_path / "marks.json", tmp_path / "plot.png"
    scoring = json.loads((folder / "scoring.json").read_text())
    scoring["calibration"]["behavior"]["temperature"] = 7.0
    (folder / "scoring.json").write_text(json.dumps(scoring))
    arguments = ["evaluate", str(rows), "--model", str(folder), "--fit", "--rounds", "5"]
    found = call(main, [*arguments, "--report", str(report_at), "--plot", str(plot)])
    assert found.exit_code == 0, found.output
    assert "| all | 72 |" in found.output
    assert json.loads(report_at.read_text())["all"]["rows"] == 72
    after = json.loads((folder / "scoring.json").read_text())["calibration"]["behavior"]["temperature"]
    assert after < 5
    assert plot.is_file() or "matplotlib is missing" in found.output
    assert call(main, ["evaluate", str(rows), "--model", "embedded", "--fit"]).exit_code == 2
