"""Bundles: loaded from folders of several kinds, identified by content, shipped as bytes."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.errors import BehaviorError, ModelError, TemplateError, TokenizerError, TooLargeError
from mainspring.text import bundle as module
from mainspring.text.bundle import Bundle
from mainspring.text.question import Behavior, Choice, Kind, YesNo
from mainspring.text.span import Message, Reasoning, Span, Text, ToolCall, ToolDefinition
from support.chat_templates import QWEN_STYLE
from support.tiny_tokenizer import CHATML, write_tiny_tokenizer

SPAN = Span((Message("user", (Text("Hi"),)),), (Message("assistant", (Reasoning("hm"), Text("Hello"))),))


def test_hash_is_of_the_content_alone(tmp_path: Path) -> None:
    first = Bundle.load(write_tiny_tokenizer(tmp_path / "a"))
    folder = write_tiny_tokenizer(tmp_path / "b")
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"] = dict(reversed(document["model"]["vocab"].items()))
    (folder / "tokenizer.json").write_text(json.dumps(dict(reversed(document.items())), indent=1))
    (folder / "scoring.json").write_text('{"version": 1, "limits": {"definition_chars": 20000}}')
    assert Bundle.load(folder).hash == first.hash
    assert len(first.hash) == 64
    assert repr(first) == f"Bundle({first.hash[:12]})"


@pytest.mark.parametrize(
    "change",
    [
        {"chat_template": CHATML + " "},
        {"vocab_size": 300},
        {"scoring": {"calibration": {"behavior": {"temperature": 2.0}}}},
        {"scoring": {"answers": {"behavior": ["B", "A", "C"]}}},
    ],
)
def test_hash_changes_with_the_content(tmp_path: Path, change: dict[str, Any]) -> None:
    plain = Bundle.load(write_tiny_tokenizer(tmp_path / "a"))
    assert Bundle.load(write_tiny_tokenizer(tmp_path / "b", **change)).hash != plain.hash


def test_packed_and_unpacked_it_is_the_same(tmp_path: Path) -> None:
    scoring = {"calibration": {"behavior": {"temperature": 1.7, "bias": [0.5, 0, -0.5]}}}
    bundle = Bundle.load(write_tiny_tokenizer(tmp_path, scoring=scoring))
    data = bundle.pack()
    assert str(tmp_path).encode() not in zlib.decompress(data)
    copy = Bundle.unpack(data)
    assert copy.hash == bundle.hash
    assert copy.eos_ids == bundle.eos_ids
    assert copy.view(SPAN).tokens.tolist() == bundle.view(SPAN).tokens.tolist()
    behavior = Behavior("b", "The user is polite.")
    assert copy.branch(behavior).tokens.tolist() == bundle.branch(behavior).tokens.tolist()
    assert copy.probabilities([1.0, 2.0, 3.0]).tolist() == bundle.probabilities([1.0, 2.0, 3.0]).tolist()


def test_bytes_that_are_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Bundle.load(write_tiny_tokenizer(tmp_path)).pack()
    for broken in (b"", b"nonsense", data[:-20], zlib.compress(msgspec.msgpack.encode({"a": 1}))):
        with pytest.raises(ModelError, match="no bundle"):
            Bundle.unpack(broken)
    monkeypatch.setattr(module, "PACK_BYTES", len(data) + 100)
    with pytest.raises(TooLargeError, match="unpacked"):
        Bundle.unpack(zlib.compress(b"\0" * 1_000_000))
    monkeypatch.setattr(module, "PACK_BYTES", len(data) - 1)
    with pytest.raises(TooLargeError):
        Bundle.unpack(data)


def test_folders_are_read(tmp_path: Path) -> None:
    folder = write_tiny_tokenizer(tmp_path)
    bundle = Bundle.load(folder)
    assert bundle.notes == ()
    assert [bundle.tokenizer.decode([token]) for token in bundle.eos_ids] == ["<|im_end|>", "<|endoftext|>"]
    assert bundle.limit_tokens == 131_072
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text('{"text_config": {"eos_token_id": 7, "max_position_embeddings": 4096}}')
    bundle = Bundle.load(folder)
    assert bundle.eos_ids == (7, bundle.tokenizer.control["<|im_end|>"])
    assert bundle.limit_tokens == 4096


@pytest.mark.parametrize("form", ["text", "named"])
def test_template_in_tokenizer_config(tmp_path: Path, form: str) -> None:
    folder = write_tiny_tokenizer(tmp_path, chat_template=None)
    template: Any = CHATML
    if form == "named":
        template = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>"}))
    assert Bundle.load(folder).view(SPAN).text.startswith("<|im_start|>user\nHi<|im_end|>")


def test_folder_without_template_gets_a_plain_one(tmp_path: Path) -> None:
    bundle = Bundle.load(write_tiny_tokenizer(tmp_path, chat_template=None))
    assert "no chat template" in bundle.notes[0]
    span = Span(SPAN.input, (Message("assistant", (Reasoning("hm"), Text("Hello"), ToolCall("f", {"a": "b"}))),))
    view = bundle.view(msgspec.structs.replace(span, tools=(ToolDefinition("f", "does f"),)))
    expected = (
        '### tools\n{"name": "f", "description": "does f"}\n\n### user\nHi\n\n### assistant\n(hm)\nHello\ncall f '
    )
    assert view.text == expected + '{"a": "b"}\n\n### user\n'
    assert view.notes == ()
    assert bundle.tokenizer.decode(bundle.branch(Behavior("b", "nice")).tokens).endswith("\n\n### assistant\n")


DEEP = '{"added_tokens":' + "[" * 200_000 + "]" * 200_000 + "}"


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("scoring.json", '{"version": 2}', TemplateError, r"scoring\.json: .*version"),
        ("scoring.json", '{"questoins": {}}', TemplateError, "questoins"),
        ("scoring.json", '{"limits": {"view": 1}}', TemplateError, r"view.*limits"),
        ("scoring.json", '{"limits": {"view_tokens": 0}}', TemplateError, "limits must be positive"),
        ("scoring.json", '{"calibration": {"behavior": {"temperature": 0}}}', TemplateError, "temperature"),
        ("scoring.json", '{"calibration": {"yes_no": {"bias": [1, 2, 3]}}}', TemplateError, "bias must be 2"),
        ("scoring.json", '{"answers": {"behavior": ["A", "B", "not observable"]}}', TokenizerError, "not one token"),
        ("scoring.json", '{"answers": {"yes_no": ["A", "A"]}}', TokenizerError, "same token"),
        ("scoring.json", '{"questions": {"choice": "{% if"}}', TemplateError, "question choice"),
        ("chat_template.jinja", "{% if %}", TemplateError, r"chat_template\.jinja line 1"),
        ("tokenizer_config.json", "[]", ModelError, r"tokenizer_config\.json"),
        ("config.json", "{", ModelError, r"config\.json"),
        ("tokenizer.json", "{", TokenizerError, r"tokenizer\.json"),
        ("tokenizer.json", DEEP, TokenizerError, r"tokenizer\.json is nested too deeply"),
        ("tokenizer_config.json", DEEP, ModelError, r"tokenizer_config\.json is nested too deeply"),
        ("scoring.json", DEEP, TemplateError, r"scoring\.json"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_files_at_fault_are_named(tmp_path: Path, name: str, content: str, error: Any, message: str) -> None:
    folder = write_tiny_tokenizer(tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(error, match=message):
        Bundle.load(folder)


def test_branches_read_the_answers_that_the_question_names(tmp_path: Path) -> None:
    bundle = Bundle.load(write_tiny_tokenizer(tmp_path, chat_template=QWEN_STYLE))
    decode = bundle.tokenizer.decode
    branch = bundle.branch(Behavior("b", "The user is polite."))
    text = decode(branch.tokens)
    assert "The user is polite." in text
    assert "A if the behavior is present, B if it is absent, C if" in text
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert [decode([token]) for token in branch.label_ids] == ["A", "B", "C"]
    branch = bundle.branch(YesNo("q", "Is it?", yes="it is", no=None))
    text = decode(branch.tokens)
    yes, no = (decode([token]) for token in branch.label_ids)
    assert f"Is it?\n{yes}: it is\n" in text
    assert f"{yes} or {no}." in text
    branch = bundle.branch(Choice("c", "Which one?", ("red", "green", "blue")))
    assert "A: red\nB: green\nC: blue\n" in decode(branch.tokens)
    assert [decode([token]) for token in branch.label_ids] == ["A", "B", "C"]
    with pytest.raises(BehaviorError, match="signs for"):
        bundle.branch(Choice("c", "Which one?", tuple(map(str, range(255)))))


def test_answers_after_a_word_begin_with_a_space_where_there_are_such_tokens(tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}assistant:"
    bundle = Bundle.load(write_tiny_tokenizer(tmp_path, chat_template=source))
    assert [bundle.tokenizer.decode([token]) for token in bundle.answers["yes_no"].ids] == [" Yes", " No"]
    assert [bundle.tokenizer.decode([token]) for token in bundle.answers["behavior"].ids] == ["A", "B", "C"]


def test_many_behaviors_at_once_are_as_one_by_one(tmp_path: Path) -> None:
    bundle = Bundle.load(write_tiny_tokenizer(tmp_path))
    behaviors = [Behavior(str(number), f"Behavior number {number}") for number in range(2000)]
    branches = bundle.branches(behaviors)
    assert len(branches) == 2000
    for index in (0, 999, 1999):
        assert branches[index].tokens.tolist() == bundle.branch(behaviors[index]).tokens.tolist()


def test_each_kind_of_question_has_its_own_calibration(tmp_path: Path) -> None:
    temperatures: dict[Kind, float] = {"behavior": 1.0, "yes_no": 2.0, "choice": 4.0}
    scoring = {"calibration": {kind: {"temperature": t} for kind, t in temperatures.items()}}
    bundle = Bundle.load(write_tiny_tokenizer(tmp_path, scoring=scoring))
    for kind, temperature in temperatures.items():
        first, second = bundle.probabilities([3.0, 1.0], kind)
        assert math.log(first / second) == pytest.approx(2 / temperature)
