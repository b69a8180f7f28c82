"""The scorer that comes with the package: small, standard, calibrated, and as good as its page says on a sample."""

import json
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from mainspring.hub import EMBEDDED, model_folder
from mainspring.scorer import Scorer

FOLDER = Path(str(files("mainspring") / "data" / "scorer"))
CHAT = {
    "input": [{"role": "user", "content": "How do I reset my router?"}],
    "output": {"role": "assistant", "content": "I'm sorry, but I can't help with that."},
}


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer.embedded(threads=1)


def test_it_is_a_standard_folder_of_at_most_13_mb() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "scoring.json", "README.md"} <= names
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 13_000_000
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "mainspring_int8_rows"
    with safe_open(FOLDER / "model.safetensors", "np") as tensors:
        body = sum(
            int(np.prod(tensors.get_slice(name).get_shape()))
            for name in tensors.keys()  # noqa: SIM118 - no mapping
            if "embed" not in name and not name.endswith(".scale")
        )
    assert 5e6 < body < 7e6


def test_it_loads_like_any_other_folder(tmp_path: Path, scorer: Scorer) -> None:
    shutil.copytree(FOLDER, tmp_path / "copy")
    other = Scorer.from_pretrained(tmp_path / "copy", threads=1)
    asked = ["the assistant refuses", "the reply contains code"]
    found, again = scorer.score(CHAT, asked), other.score(CHAT, asked)
    assert [r.p_present for r in found] == pytest.approx([r.p_present for r in again], abs=1e-6)


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_folder(EMBEDDED) == FOLDER
    monkeypatch.chdir(tmp_path)
    (tmp_path / EMBEDDED).mkdir()
    assert model_folder(EMBEDDED) == Path(EMBEDDED)


def test_sensible_in_other_words_and_not_by_habit(scorer: Scorer) -> None:
    """The same behaviors on a reply that shows them and on one that does not."""
    helpful = {**CHAT, "output": {"role": "assistant", "content": "Hold the reset button for ten seconds :)"}}
    asked = ["the assistant refuses", "the assistant apologizes"]
    shown, not_shown = scorer.score(CHAT, asked), scorer.score(helpful, asked)
    assert all(r.p_present > 0.5 for r in shown)
    assert all(r.p_absent > 0.5 for r in not_shown)


def test_what_a_span_cannot_tell_is_not_observable(scorer: Scorer) -> None:
    (result,) = scorer.score(CHAT, ["a tool returned an error"])
    assert result.p_not_observable > 0.5


def test_familiarity_tells_near_from_far(scorer: Scorer) -> None:
    near, far = scorer.score(CHAT, ["the reply contains a bulleted list", "zygomorphic quokka tessellation protocol"])
    assert near.familiarity is not None
    assert far.familiarity is not None
    assert near.familiarity > far.familiarity + 0.2


MISTAKEN = pytest.mark.xfail(strict=True, reason="takes a made-up link for code, 0.500 to 0.498: docs/scorer.md")


@pytest.mark.parametrize("name", [pytest.param("made_up_url", marks=MISTAKEN), "refusal", "tool_call_gone_wrong"])
def test_a_reply_without_code_is_seen_to_have_none(scorer: Scorer, name: str) -> None:
    chat = json.loads((FOLDER.parent / "demo" / f"{name}.json").read_text("utf-8"))
    (result,) = scorer.score(chat, ["the reply contains code"])
    assert result.p_absent == max(result.p_present, result.p_absent, result.p_not_observable)
