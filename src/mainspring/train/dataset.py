"""Conversations and behaviors -> token arrays, through the very bundle that serves.

Views and definitions are kept once, rows point at both. A training row names a behavior, whose wording is drawn anew
each time; a held-out row has one fixed definition. Arrays go to `data.npz`, the held-out rows also to JSON lines with
the columns of the public behavior benchmark.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mainspring.errors import TooLargeError
from mainspring.text.bundle import Bundle
from mainspring.text.question import Behavior as Question
from mainspring.text.span import Message, Text, ToolCall, ToolResult
from mainspring.train import splits
from mainspring.train.arrays import Ragged, Rows, TrainingData
from mainspring.train.content import kinds
from mainspring.train.content.attitude_examples import attitude_examples
from mainspring.train.content.examples import Example, Row, rng_for, rule_examples, shortened
from mainspring.train.content.insertions import insertion_examples
from mainspring.train.content.persona_examples import persona_examples, text_id_of
from mainspring.train.content.phrasing import Behavior, definitions
from mainspring.train.content.structural import (
    constructed_examples,
    pools_of,
    structural_examples,
    with_tools,
)
from mainspring.train.content.traits import trait_examples
from mainspring.train.sources import conversations, made_up_traits, statements
from mainspring.train.splits import CALIBRATION, SPLITS, TEST, TRAIN

LABELS = ("present", "absent", "not_observable")
PARAMETER_WORDINGS = 4  # of a behavior that few conversations ask about, out of about 150


def examples(folder: Path, *, share: float = 1.0) -> Iterator[Example]:
    """Every maker in turn; `share` keeps that part of the texts (smoke runs)."""

    def kept(text_id: str) -> bool:
        return share >= 1 or rng_for("share", text_id).random() < share

    talk = [c for c in with_tools(conversations(folder)) if kept(c.text_id)]
    # Held-out rows are kept as they come, up to a limit: in the sources' order they would be those of one source.
    talk.sort(key=lambda c: rng_for("order", c.text_id).random())
    pools = pools_of(talk)
    yield from rule_examples(talk)
    trained = (c for c in talk if splits.text_split(c.text_id) == TRAIN)
    yield from rule_examples(cut for c in trained if (cut := shortened(c)))
    yield from insertion_examples(talk, _rounds, _held_kinds)
    yield from structural_examples(talk, pools)
    yield from (e for e in constructed_examples(pools) if kept(e.text_id))
    short = [c for c in talk if sum(len(m.text) for m in (*c.span.input, *c.span.output)) < 900]
    yield from persona_examples((s for s in statements(folder) if kept(text_id_of(s))), short)
    yield from attitude_examples(short, kept)
    yield from trait_examples(made_up_traits(folder), short, kept)


def _rounds(text_id: str) -> int:
    """Held-out texts are edited more often: their rows are few and split among many kinds."""
    return 4 if splits.text_split(text_id) == TRAIN else 8


def _held_kinds(text_id: str) -> tuple[kinds.Kind, ...]:
    keys = {CALIBRATION: kinds.CALIBRATION_KINDS, TEST: kinds.TEST_KINDS}.get(splits.text_split(text_id), ())
    return tuple(kinds.BY_KEY[key] for key in keys)


@lru_cache(4096)
def wordings(behavior: Behavior, *, test: bool) -> list[str]:
    found = definitions(behavior, test=test)
    if ":" in behavior.key and not behavior.whole:
        return rng_for("wording", behavior.key).sample(found, min(PARAMETER_WORDINGS, len(found)))
    return found


@dataclass
class Builder:
    """Collects rows; tokens of views are made at once, those of definitions at the end."""

    bundle: Bundle
    held_out: Callable[[dict[str, Any]], None]
    views: list[Any] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)  # definition -> id
    behaviors: dict[str, tuple[int, list[int]]] = field(default_factory=dict)  # key -> (number, training wordings)
    groups: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, float, int, int, int]] = field(default_factory=list)
    kept: Counter[tuple[int, str, str, int]] = field(default_factory=Counter)
    left_out: int = 0

    def add(self, example: Example, *, limit: int) -> None:
        split = splits.example_split(example)
        if split is None:
            return
        rows = [pair for row in example.rows if (pair := self._placed(row, split))]
        if not rows:
            return
        try:
            tokens = self.bundle.view(example.span, on_overflow="cut", limit_tokens=limit).tokens
        except TooLargeError:  # its calls and tools alone are beyond the limit
            self.left_out += 1
            return
        self.views.append(tokens.astype(np.uint16))
        for row, group in rows:
            self._row(example, row, group, split)

    def _placed(self, row: Row, split: int) -> tuple[Row, str] | None:
        """The row with its group, None where the split can't have it or has enough of its kind."""
        if not splits.row_split(row, split):
            return None
        group = splits.report_group(row, split)
        if split != TRAIN:
            key = (split, group, splits.marked_as(row), row.label)
            self.kept[key] += 1
            if self.kept[key] > splits.CAP.get(group, splits.DEFAULT_CAP):
                return None
        return row, group

    def _row(self, example: Example, row: Row, group: str, split: int) -> None:
        number, _ = self._behavior(row.behavior)
        chosen = -1
        if split != TRAIN:
            rng = rng_for("definition", example.text_id, row.behavior.key, row.label, len(self.rows))
            text, group = self._held_out_text(row.behavior, group, rng.random(), rng)
            chosen = self.texts.setdefault(text, len(self.texts))
            self.held_out(record(example, row, text, group, SPLITS[split], len(self.rows)))
        group_number = self.groups.setdefault(group, len(self.groups))
        self.rows.append((len(self.views) - 1, number, row.label, row.confidence, split, group_number, chosen))

    def _held_out_text(self, behavior: Behavior, group: str, chance: float, rng: Any) -> tuple[str, str]:
        if group == "rules":
            test = chance < 0.6
            return rng.choice(wordings(behavior, test=test)), "rules_unseen_wording" if test else "rules_seen_wording"
        return rng.choice(wordings(behavior, test=chance < 0.3)), group

    def _behavior(self, behavior: Behavior) -> tuple[int, list[int]]:
        found = self.behaviors.get(behavior.key)
        if found is None:
            ids = [self.texts.setdefault(text, len(self.texts)) for text in wordings(behavior, test=False)]
            found = self.behaviors[behavior.key] = (len(self.behaviors), ids)
        return found

    def finish(self) -> TrainingData:
        branches = self.bundle.branches([Question(str(i), text) for text, i in self.texts.items()])
        label_ids = branches[0].label_ids.astype(np.int64)
        columns = list(zip(*self.rows, strict=True))
        kinds = (np.int32, np.int32, np.int8, np.float16, np.int8, np.int8, np.int32)
        rows = Rows(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
        return TrainingData(
            views=Ragged.of(self.views, np.uint16),
            definitions=Ragged.of([branch.tokens for branch in branches], np.uint16),
            wordings=Ragged.of([ids for _, ids in self.behaviors.values()], np.int32),
            rows=rows,
            label_ids=label_ids,
            behaviors=np.array(list(self.behaviors)),
            groups=np.array(list(self.groups)),
            texts=np.array(list(self.texts)),
        )


def prepare(
    bundle: Bundle, found: Iterable[Example], folder: Path, *, limit: int, progress: Callable[[str], None]
) -> TrainingData:
    """Write `data.npz`, `calibration.jsonl` and `test.jsonl` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "calibration.jsonl").open("w") as calibration, (folder / "test.jsonl").open("w") as test:

        def held_out(entry: dict[str, Any]) -> None:
            (test if entry["metadata"]["split"] == SPLITS[TEST] else calibration).write(json.dumps(entry) + "\n")

        builder = Builder(bundle, held_out)
        for number, example in enumerate(found):
            builder.add(example, limit=limit)
            if number % 20_000 == 0:
                progress(f"prepared {number:,} examples, {len(builder.views):,} views, {len(builder.rows):,} rows")
    if builder.left_out:
        progress(f"left out {builder.left_out:,} examples that can't be cut to {limit:,} tokens")
    data = builder.finish()
    data.save(folder / "data.npz")
    return data


def record(example: Example, row: Row, text: str, group: str, split: str, number: int) -> dict[str, Any]:
    """A row in the columns of the public behavior benchmark."""
    span = example.span
    return {
        "cell_id": f"{split}-{number}",
        "task_id": example.text_id,
        "source": example.source,
        "def_id": splits.marked_as(row),
        "behavior_definition": text,
        "behavior_type": group,
        "label": LABELS[row.label],
        "input": [_message(m) for m in span.input],
        "output": _message(span.output[0]) if span.output else None,
        "metadata": {"split": split, "tools": [_tool(tool) for tool in span.tools]},
    }


def _message(message: Message) -> dict[str, Any]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if results:
        content = results[0].content
        return {"role": "tool", "content": content if isinstance(content, str) else json.dumps(content)}
    calls = [
        {"type": "function", "function": {"name": part.name, "arguments": json.dumps(part.arguments)}}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    return {"role": message.role, "content": text} | ({"tool_calls": calls} if calls else {})


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}
