"""Models that can't be loaded: exit code 3, one line that says what is wrong, nothing on stdout."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from safetensors.torch import load_file, save_file

from support.folders import tiny_vocab_size, write_tiny_model

Run = Callable[..., Result]


def loads(run: Run, chat: Path, model: Path | str, *options: str) -> Result:
    return run("score", chat, "-b", "the answer is short", "--model", model, *options)


def refused(result: Result, message: str) -> None:
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model")


def test_no_such_folder(run: Run, chat: Path) -> None:
    refused(loads(run, chat, "./nowhere"), "'./nowhere' is no folder here and no hub id")
    refused(loads(run, chat, "evil\x1b[31m"), r"evil\x1b[31m")


def test_empty_folder(run: Run, chat: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(loads(run, chat, tmp_path / "empty"), "tokenizer.json can't be read")


def test_pickles_only(run: Run, chat: Path, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    refused(loads(run, chat, folder), "a pickle can run code")


def test_nan_weights(run: Run, chat: Path, folder: Path) -> None:
    tensors = load_file(path := folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    save_file(tensors, path)
    refused(loads(run, chat, folder), "'model.layers.1.mlp.up_proj.weight' holds NaN")


def test_truncated_weights(run: Run, chat: Path, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(loads(run, chat, folder), "model.safetensors is no readable safetensors file")


def test_tokenizer_of_another_model(run: Run, chat: Path, tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "other", vocab_size=300)
    refused(loads(run, chat, folder), f"the tokenizer has ids up to {tiny_vocab_size() - 1}, the weights know 300")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "runs out of fuel"),
        ("{% for message in messages %}", "fails"),
        ("{{ raise_exception('never') }}", "refuses: never"),
        ("no messages at all", "shows the last user turn 0 times"),
    ],
)
def test_bad_templates(run: Run, chat: Path, folder: Path, template: str, message: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    refused(loads(run, chat, folder), message)


def test_a_template_that_fails_on_one_span_only(run: Run, folder: Path, tmp_path: Path) -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    template = (folder / "chat_template.jinja").read_text()
    condition = "{% if 'loop' in messages[0].content %}"
    (folder / "chat_template.jinja").write_text(f"{condition}{loop}{{% endif %}}{template}")
    (path := tmp_path / "two.jsonl").write_text(
        "\n".join(json.dumps({"input": text, "output": "x"}) for text in ("loop", "fine"))
    )
    result = loads(run, path, folder, "--json")
    assert result.exit_code == 1
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["error"]["code"] == "bad_template"
    assert "results" in second


def test_no_network_for_a_hub_id(run: Run, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*arguments: object, **options: object) -> str:
        raise ConnectionError("https://secret.example/?token=abc")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    result = loads(run, chat, "owner/name", "--revision", "abc123")
    refused(result, "'owner/name' at revision abc123 can't be fetched (ConnectionError)")
    assert "secret" not in result.stderr
