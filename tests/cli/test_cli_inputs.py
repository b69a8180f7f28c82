"""FILE arguments: which files are read, in which order, and what is said where there are none."""

import io
import json
import os
import sys
from pathlib import Path

import click
import pytest

from mainspring.cli._inputs import STDIN, Inputs
from mainspring.errors import InputError, UnknownFormatError

SPAN = json.dumps({"input": "hi", "output": "ho"})


def names(*files: Path | str) -> list[str]:
    return [item.name for item in Inputs([str(file) for file in files])]


def test_folder_recursively_sorted_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.json", "a.TXT", "sub/deep/c.jsonl", "d.ndjson", ".h.json", ".git/x.json", "e.csv", "sub/f.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SPAN)
    wanted = ["a.TXT", "b.json", "d.ndjson", "sub/deep/c.jsonl"]
    assert names(tmp_path) == [str(tmp_path / name) for name in wanted]
    assert names(tmp_path / "e.csv", tmp_path / "sub") == [str(tmp_path / "e.csv"), str(tmp_path / wanted[-1])]


def test_folder_with_nothing(tmp_path: Path) -> None:
    (tmp_path / ".hidden.json").write_text(SPAN)
    (tmp_path / "x.csv").write_text("1")
    with pytest.raises(click.UsageError, match="the folder holds no spans"):
        Inputs([str(tmp_path)])


@pytest.mark.parametrize("name", ["none.json", "none/x", "nul\0l", "\udcff.json", "\x1b[31mx"])
def test_missing_files_are_named_before_anything_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.json").write_text(SPAN)
    with pytest.raises(click.UsageError) as caught:
        Inputs([str(tmp_path / "a.json"), str(tmp_path / name)])
    assert caught.value.message.isprintable()
    caught.value.message.encode()


def test_unknown_format_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(SPAN)
    with pytest.raises(UnknownFormatError, match="openai-chat"):
        Inputs([str(tmp_path)], "nonsense")


def test_unreadable_file_is_an_error_among_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for path in paths:
        path.write_text(SPAN)
    opened = Path.open

    def refuse(path: Path, *arguments: str) -> object:
        if path.name == "b.json":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    a, b, c = Inputs([str(tmp_path)])
    assert a.read
    assert c.read
    assert isinstance(b.error, InputError)
    assert str(b.error) == "can't be read: Permission denied"


def test_dangling_link_in_a_folder_is_an_error_among_spans(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "gone.json")
    (tmp_path / "b.json").write_text(SPAN)
    (tmp_path / "c").symlink_to(tmp_path, target_is_directory=True)
    a, b = Inputs([str(tmp_path)])
    assert "No such file" in str(a.error)
    assert b.read


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_and_devices_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    """Nobody may ever write to one that was not named."""
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(SPAN)
    (tmp_path / "c.json").symlink_to("/dev/zero")
    assert names(tmp_path) == [str(tmp_path / "b.json")]


def test_progress_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text(f"{SPAN}\n" * 5)
    (tmp_path / "b.json").write_text(SPAN)
    inputs = Inputs([str(tmp_path)])
    seen = [inputs.read_bytes for _ in inputs]
    assert inputs.total_bytes == 6 * len(SPAN) + 5
    assert seen == sorted(seen)
    assert (seen[0] > 0, inputs.read_bytes) == (True, inputs.total_bytes)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SPAN.encode())))
    unknown = Inputs([str(tmp_path / "b.json"), "-"])
    assert unknown.total_bytes is None
    assert [item.name for item in unknown] == [str(tmp_path / "b.json"), STDIN]


def test_stdin_once() -> None:
    with pytest.raises(click.UsageError, match="once"):
        Inputs(["-", "-"])


def test_lines_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:
            line = (SPAN + "\n").encode()
            buffer[: len(line)] = line
            return len(line)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless())))
    items = iter(Inputs(["-"]))
    assert [next(items).index for _ in range(100)] == list(range(100))
