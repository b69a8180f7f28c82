"""Folders pass through; a hub is asked for data alone, and its errors leak nothing."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.errors import ModelError
from mainspring.hub import HubError, model_folder

CALL = dict[str, Any]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[CALL]:
    """What the client is asked for, instead of a network."""
    import huggingface_hub

    made: list[CALL] = []

    def download(name: str, **options: Any) -> str:
        made.append({"name": name, **options})
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return made


def test_a_folder_passes_through(tmp_path: Path, calls: list[CALL], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_folder(tmp_path) == tmp_path
    assert model_folder(str(tmp_path)) == tmp_path
    assert model_folder("owner/name") == Path("owner/name")  # what lies here wins over a hub
    assert model_folder("~/owner") == tmp_path / "owner"
    assert calls == []


@pytest.mark.parametrize(
    "name",
    ["", "name", "a/b/c", "/no/such/folder", "./a/b", "../a", "owner/", "/name", "owner/na me", "-x/y", "a/b?c",
     "a\0b/c", "https://hub.example/a/b", "owner/name@rev", "~nobody-at-all/x", "n" * 5000, "é/b\n"],
)  # fmt: skip
def test_bad_names_never_reach_the_hub(name: str, calls: list[CALL]) -> None:
    with pytest.raises(HubError, match="is no folder here and no hub id"):
        model_folder(name)
    assert calls == []


def test_a_file_is_no_model(tmp_path: Path, calls: list[CALL], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HubError):
        model_folder("owner/name")
    assert calls == []


def test_revision_and_token_are_passed_on(calls: list[CALL], tmp_path: Path) -> None:
    assert model_folder("owner/na-me_1.5", revision="abc123", token="hf_x") == tmp_path  # noqa: S106
    assert (calls[0]["name"], calls[0]["revision"], calls[0]["token"]) == ("owner/na-me_1.5", "abc123", "hf_x")
    model_folder("owner/name")
    assert (calls[1]["revision"], calls[1]["token"]) == (None, None)


@pytest.mark.parametrize("weights", [True, False])
def test_only_data_is_fetched(calls: list[CALL], weights: bool) -> None:
    from huggingface_hub.utils import filter_repo_objects

    model_folder("owner/name", weights=weights)
    data = ["config.json", "tokenizer.json", "chat_template.jinja", "scoring.json", "LICENSE", "README.md",
            "model.safetensors.index.json"]  # fmt: skip
    tensors = ["model.safetensors", "model-00001-of-00002.safetensors"]
    other = ["pytorch_model.bin", "model.pt", "x.pth", "x.pkl", "x.ckpt", "modeling.py", "run.sh", "x.so", "x.gguf",
             "x.h5", "training_args.bin", "sub/modeling.py", "x.safetensors.py"]  # fmt: skip
    kept = set(filter_repo_objects([*data, *tensors, *other], allow_patterns=calls[0]["allow_patterns"]))
    assert kept == {*data, *(tensors if weights else [])}


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"pip install 'mainspring\[hub\]'"):
        model_folder("owner/name")


class StrangeError(Exception):
    """As a client's HTTP or transfer library has them: related to nothing we know."""


@pytest.mark.parametrize("kind", [OSError, ConnectionError, FileNotFoundError, ValueError, RuntimeError, StrangeError])
def test_errors_leak_neither_tokens_nor_addresses(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def fail(*arguments: object, **options: object) -> str:
        raise kind("401 for https://cdn.example/x?signature=s3cr3t with Bearer hf_private")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(HubError) as caught:
        model_folder("owner/name", revision="v1", token="hf_private")  # noqa: S106
    message = str(caught.value)
    assert isinstance(caught.value, ModelError)
    assert caught.value.code == "model_not_found"
    assert caught.value.__suppress_context__
    assert f"'owner/name' at revision v1 can't be fetched ({kind.__name__})" in message
    assert not any(word in message for word in ("hf_", "s3cr3t", "http", "Bearer"))


def test_interrupts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def interrupt(*arguments: object, **options: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(huggingface_hub, "snapshot_download", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model_folder("owner/name")
