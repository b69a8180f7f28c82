"""The writer that comes with the package: small, standard, repeatable, and ends its replies itself."""

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from safetensors import safe_open

from mainspring import Generator
from mainspring.engine.sampling import Sampling
from mainspring.hub import WRITER, model_folder

FOLDER = Path(str(files("mainspring") / "data" / "writer"))
ROOT = Path(__file__).parent.parent
PROMPTS = ("What do bees do in winter?", "Name three colors.", "Write a short story about a lighthouse.")


@pytest.fixture(scope="module")
def writer() -> Generator:
    return Generator.embedded(threads=1)


def test_it_is_a_standard_folder_of_at_most_16_mb() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "generation_config.json", "README.md"} <= names
    assert "scoring.json" not in names  # it was not taught to judge
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 16_000_000
    config = json.loads((FOLDER / "config.json").read_text())
    kinds = config["layer_types"]
    assert kinds == [*["linear_attention"] * 3, "full_attention"] * (len(kinds) // 4)
    with safe_open(FOLDER / "model.safetensors", "np") as tensors:
        assert any(name.startswith("mtp.") for name in tensors.keys())  # noqa: SIM118 - no mapping


def test_what_is_tracked_stays_under_40_mib() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    names = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    sizes = [(ROOT / name).stat().st_size for name in names.stdout.split("\0") if name and (ROOT / name).is_file()]
    assert 0 < sum(sizes) < 40 * 2**20


def test_its_name_is_a_model_like_any_other() -> None:
    assert model_folder(WRITER) == FOLDER


def test_replies_are_repeatable_and_end(writer: Generator) -> None:
    found = [writer.generate(prompt, max_tokens=256) for prompt in PROMPTS]
    again = [writer.generate(prompt, max_tokens=256) for prompt in PROMPTS]
    assert [each.text for each in found] == [each.text for each in again]
    assert sum(each.finish == "stop" for each in found) >= 2
    assert all(len(each.text.split()) >= 3 for each in found)


def test_text_is_words_and_seeds_differ(writer: Generator) -> None:
    texts = {
        writer.generate(PROMPTS[2], max_tokens=60, sampling=Sampling(temperature=0.8, seed=seed)).text
        for seed in (1, 2, 3)
    }
    assert len(texts) == 3
    letters = sum(c.isalpha() or c in " .,'\n" for text in texts for c in text)
    assert letters > 0.9 * sum(map(len, texts))


def test_drafts_stand_and_change_nothing(writer: Generator) -> None:
    plain = writer.generate(PROMPTS[0], max_tokens=80, drafter="none")
    drafted = writer.generate(PROMPTS[0], max_tokens=80, drafter="mtp")
    assert drafted.text == plain.text
