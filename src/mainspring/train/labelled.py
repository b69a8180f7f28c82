"""Labelled rows as JSON lines, with the columns of the public behavior benchmark:

    cell_id, task_id, source, def_id, behavior_definition, behavior_type, label, input, output, metadata

`input` is a list of messages or text, `output` a message, text or null (both may be JSON in a string), `label` one of
present, absent, not_observable; only behavior_definition, label, input and output are needed. `metadata.tools` are tool
definitions, `metadata.split` a split of the caller's own.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mainspring.errors import InputError
from mainspring.text.bundle import Bundle
from mainspring.text.formats import read_span
from mainspring.text.question import Behavior
from mainspring.text.span import Message, Span, Text
from mainspring.train.arrays import Ragged, Rows, TrainingData
from mainspring.train.splits import SPLITS, text_split

LABELS = ("present", "absent", "not_observable")


@dataclass(frozen=True)
class Labelled:
    span: Span
    definition: str
    label: int
    def_id: str
    task_id: str
    group: str
    split: str | None


def read_rows(paths: Iterable[Path]) -> Iterator[Labelled]:
    """InputError names file, line and column at fault."""
    for path in paths:
        with path.open(encoding="utf-8") as handle:
            for number, line in enumerate(handle, 1):
                if line.strip():
                    try:
                        yield _labelled(json.loads(line))
                    except (ValueError, KeyError, TypeError, InputError) as error:
                        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                        raise InputError(f"{path}, line {number}: {what}", param="data") from None


def _labelled(entry: dict[str, Any]) -> Labelled:
    if entry["label"] not in LABELS:
        raise InputError(f"label is one of {', '.join(LABELS)}, not {entry['label']!r:.40}")
    metadata = _decoded(entry.get("metadata")) or {}
    definition = entry["behavior_definition"]
    return Labelled(
        _span(_decoded(entry["input"]), _decoded(entry["output"]), metadata.get("tools") or []),
        definition,
        LABELS.index(entry["label"]),
        str(entry.get("def_id") or definition),
        str(entry.get("task_id") or entry.get("cell_id") or hash(definition)),
        str(entry.get("behavior_type") or "all"),
        metadata.get("split"),
    )


def _decoded(value: Any) -> Any:
    """JSON in a string is opened where it is an object or a list."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _span(before: Any, output: Any, tools: list[Any]) -> Span:
    if not output:  # the readers want an output; a call without one is what not_observable is about
        read = read_span({"input": before, "output": "-", "tools": tools}).span
        return Span(read.input, (), read.tools)
    if isinstance(output, dict) and not output.get("content") and not output.get("tool_calls"):
        return Span(read_span({"input": before, "output": "-", "tools": tools}).span.input, (_empty(),))
    return read_span({"input": before, "output": output, "tools": tools}).span


def _empty() -> Message:
    return Message("assistant", (Text(""),))


def prepare_labelled(
    bundle: Bundle, paths: Iterable[Path], folder: Path, *, limit: int, say: Callable[[str], None]
) -> TrainingData:
    """Arrays of the caller's rows. Rows without a split of their own fall into one by their task."""
    views: dict[bytes, int] = {}
    kept: list[Any] = []
    texts: dict[str, int] = {}
    groups: dict[str, int] = {}
    rows = []
    for row in read_rows(paths):
        tokens = bundle.view(row.span, on_overflow="cut", limit_tokens=limit).tokens.astype(np.uint32)
        view = views.setdefault(tokens.tobytes(), len(views))
        if view == len(kept):
            kept.append(tokens)
        text = texts.setdefault(row.definition, len(texts))
        split = SPLITS.index(row.split) if row.split in SPLITS else text_split(row.task_id)
        group = groups.setdefault(row.group, len(groups))
        rows.append((view, text, row.label, 1.0, split, group, text))
    if not rows:
        raise InputError("no labelled rows", param="data")
    say(f"{len(rows):,} rows over {len(kept):,} spans and {len(texts):,} definitions")
    branches = bundle.branches([Behavior(str(i), text) for text, i in texts.items()])
    kinds = (np.int32, np.int32, np.int8, np.float16, np.int8, np.int8, np.int32)
    data = TrainingData(
        views=Ragged.of(kept, np.uint32),
        definitions=Ragged.of([branch.tokens for branch in branches], np.uint32),
        wordings=Ragged.of([[i] for i in range(len(texts))], np.int32),
        rows=Rows(*(np.array(c, kind) for c, kind in zip(zip(*rows, strict=True), kinds, strict=True))),
        label_ids=branches[0].label_ids.astype(np.int64),
        behaviors=np.array(list(texts)),
        groups=np.array(list(groups)),
        texts=np.array(list(texts)),
    )
    data.save(folder / "data.npz")
    return data
