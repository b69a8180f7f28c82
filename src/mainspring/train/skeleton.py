"""The scorer's folder without weights: tokenizer, chat template, how it is asked.

The template is ChatML boiled down to one control token a turn, so that a branch is its definition and three tokens.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mainspring.hub import EMBEDDED, model_folder

TEMPLATE = (
    "{% if tools %}<|tools|>{% for tool in tools %}{{ tool.function.name }}"
    "{% if tool.function.description %}: {{ tool.function.description }}{% endif %}"
    "{% if tool.function.parameters %} {{ tool.function.parameters | tojson }}{% endif %}\n"
    "{% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.reasoning_content %}<|think|>{{ message.reasoning_content }}<|end|>{% endif %}"
    "{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "<|call|>{{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}"
    "<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# With their space: the bare words are several tokens.
SCORING: dict[str, Any] = {
    "version": 1,
    "questions": {
        "behavior": "<|behavior|>{{ definition }}",
        "yes_no": "<|question|>{{ question }}{% if yes %}\nYes: {{ yes }}{% endif %}"
        "{% if no %}\nNo: {{ no }}{% endif %}",
    },
    "answers": {"behavior": [" yes", " no", " unknown"], "yes_no": ["Yes", "No"]},
}
VIEW_TOKENS = 4096  # trained on up to about 1,500; attention layers and memory go further, marks are not claimed there


def tokenizer_text(sources: Path) -> str:
    """tokenizer.json of a model from scratch: the sources' own, where they bring one; else that of this package's
    models, which share it."""
    own = sources / "tokenizer.json"
    return (own if own.is_file() else model_folder(EMBEDDED) / "tokenizer.json").read_text("utf-8")


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to fill, which then takes its place: a cut leaves the old one or none."""
    aside = folder.with_name(folder.name + ".new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    yield aside
    shutil.rmtree(folder, ignore_errors=True)
    aside.replace(folder)


def write_skeleton(folder: Path, tokenizer: str, scoring: dict[str, Any] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "pad_token": "<|pad|>"}) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    write_scoring(folder, scoring or SCORING)


def write_scoring(folder: Path, scoring: dict[str, Any]) -> None:
    (folder / "scoring.json").write_text(json.dumps(scoring, indent=2) + "\n", "utf-8")
