"""Behaviors from options and files, and how bad ones are named."""

import json
from pathlib import Path

import pytest

from mainspring.cli._behaviors import gather
from mainspring.errors import InputError

ITEMS = ["the first one", {"id": "two", "definition": "the second one"}]
WANTED = [("the first one", "the first one"), ("two", "the second one")]


def pairs(definitions: list[str], *files: Path) -> list[tuple[str, str]]:
    return [(b.id, b.definition) for b in gather(definitions, [str(file) for file in files])]


@pytest.mark.parametrize("name", ["b.json", "b.policy", "b"])
def test_json_list(tmp_path: Path, name: str) -> None:
    (path := tmp_path / name).write_text(json.dumps(ITEMS, indent=1))
    assert pairs([], path) == WANTED


@pytest.mark.parametrize("name", ["b.jsonl", "b.ndjson", "b.NDJSON"])
def test_jsonl(tmp_path: Path, name: str) -> None:
    (path := tmp_path / name).write_text("\n\n".join(map(json.dumps, ITEMS)) + "\n")
    assert pairs([], path) == WANTED


def test_jsonl_by_content(tmp_path: Path) -> None:
    (path := tmp_path / "b").write_text("\n".join(json.dumps({"id": i, "definition": "abc " + i}) for i in "xyz"))
    assert pairs([], path) == [("x", "abc x"), ("y", "abc y"), ("z", "abc z")]


def test_scoring_request_and_single_object(tmp_path: Path) -> None:
    (request := tmp_path / "r.json").write_text(json.dumps({"model": "m", "behaviors": ITEMS}))
    (single := tmp_path / "s.json").write_text(json.dumps({"id": "three", "definition": "the third one"}))
    assert pairs([], request, single) == [*WANTED, ("three", "the third one")]


@pytest.mark.parametrize("name", ["b.txt", "b"])
def test_text_with_comments(tmp_path: Path, name: str) -> None:
    (path := tmp_path / name).write_bytes(
        "\ufeff# of ours\r\n\r\n  the first one \r\nthe second, é\u2028one\n".encode()
    )
    assert [i for i, _ in pairs([], path)] == ["the first one", "the second, é\u2028one"]


def test_text_file_may_begin_with_a_bracket(tmp_path: Path) -> None:
    (path := tmp_path / "b.txt").write_text("[policy 1] no advice\n{x} in text\n")
    assert len(pairs([], path)) == 2


def test_options_come_first(tmp_path: Path) -> None:
    (path := tmp_path / "b.json").write_text(json.dumps(ITEMS))
    assert [i for i, _ in pairs(["from an option"], path)] == ["from an option", "the first one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.json", "[]", "b.json: the file holds no behavior"),
        ("b.txt", "# nothing\n\n", "b.txt: the file holds no behavior"),
        ("b.json", '["ok then", "x"]', "b.json[1].definition: 1 characters, at least 3"),
        ("b.json", '["ok then", 7]', "b.json[1]: an object with `id`"),
        ("b.json", '[{"id": "a", "definition": "abc", "colour": 1}]', "b.json[0]: unknown fields ['colour']"),
        ("b.json", '[{"id": "a"}]', "b.json[0].definition: a string is needed"),
        ("b.json", '["same one", "same one"]', "b.json[1]: the id is that of {0}/b.json[0] already"),
        ("b.json", '[\n "abc",\n  abc]', "b.json: line 3, column 3"),
        ("b.json", "[" * 100_000, "b.json: nested too deeply"),
        ("b.jsonl", '"abc"\n\n{"id": }', "b.jsonl: line 3, column 8"),
        ("b.jsonl", '"abc"\n"x"', "b.jsonl line 2.definition: 1 characters"),
        ("b.txt", "abc\n# x\nab\n", "b.txt line 3.definition: 2 characters"),
        ("b.txt", b"abc\n\xff\xfe", "b.txt: not UTF-8 at byte 4"),
        ("b", '{"id": "a", "definition": "abc"', "b: line 1, column"),
        ("b.txt", b"x" * (20 * 2**20 + 1), "b.txt: longer than 20971520 bytes"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (path := tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        gather([], [str(path)])
    assert message.format(tmp_path) in str(caught.value)


def test_other_faults(tmp_path: Path) -> None:
    for definitions, files, message in [
        ([], [], "at least one behavior is needed: -b TEXT or --behaviors FILE"),
        (["fine", "x"], [], "-b number 2.definition: 1 characters"),
        (["fine", "fine"], [], "-b number 2: the id is that of -b number 1 already"),
        ([], [str(tmp_path / "none.json")], "none.json: can't be read: No such file"),
        ([], [str(tmp_path)], "can't be read: Is a directory"),
    ]:
        with pytest.raises(InputError) as caught:
            gather(definitions, files)
        assert message in str(caught.value)
