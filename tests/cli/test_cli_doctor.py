"""`mainspring doctor` on a machine as it is, and on made-up ones."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.backend.cuda import explain
from mainspring.cli import main
from support.models import write_tiny_weights

HERE = explain.Description("Some GPU", ("device: Some GPU, 80 GiB free", "kernels: triton 9.9"), None)
NONE = explain.Description("cuda", ("device: none, torch was built without CUDA",), "no CUDA device: built without")


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_without_a_device_the_cpu_is_best_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "describe", lambda: NONE)
    output = shown()
    assert "torch was built without CUDA" in output
    assert output.endswith("best: cpu\n")


def test_a_device_is_best_unless_the_model_has_no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(explain, "describe", lambda: HERE)
    assert shown().endswith("best: cuda\n")
    write_tiny_weights(tmp_path / "small")
    output = shown("--model", str(tmp_path / "small"))
    assert "head_dim 16 has no CUDA kernel" in output
    assert output.endswith("best: cpu\n")
    write_tiny_weights(tmp_path / "fits", head_dim=64, linear_key_head_dim=64, linear_value_head_dim=64)
    assert shown("--model", str(tmp_path / "fits")).endswith("best: cuda\n")


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--model", str(tmp_path)])
    assert result.exit_code == 3
    assert "no config.json" in result.output
