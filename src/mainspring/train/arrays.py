"""Training data as flat arrays: what the loop reads, without text or tokenizer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Ragged(NamedTuple):
    """Rows of different lengths: row i is values[starts[i] : starts[i + 1]]."""

    values: Array
    starts: Array

    @classmethod
    def of(cls, rows: Sequence[Iterable[int]], kind: Any) -> "Ragged":
        arrays = [np.asarray(row, kind) for row in rows]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in arrays])]).astype(np.int64)
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, kind), starts)

    @property
    def lengths(self) -> Array:
        return np.diff(self.starts)

    def __getitem__(self, index: Any) -> Any:
        return self.values[self.starts[index] : self.starts[index + 1]]

    def padded(self, index: Array, width: int, pad: int) -> Array:
        """Rows `index` [n] as one int64 array [n, width]."""
        at = self.starts[index][:, None] + np.arange(width)
        inside = np.arange(width) < self.lengths[index][:, None]
        return np.where(inside, self.values[np.minimum(at, len(self.values) - 1)], pad).astype(np.int64)


class Rows(NamedTuple):
    """One label each; `definition` is -1 in training rows, whose wording is drawn from their behavior's."""

    view: Array
    behavior: Array
    label: Array
    confidence: Array
    split: Array
    group: Array
    definition: Array


@dataclass(frozen=True)
class TrainingData:
    views: Ragged
    definitions: Ragged
    wordings: Ragged  # a behavior's training definitions
    rows: Rows
    label_ids: Array  # [3] present, absent, not observable
    behaviors: Array  # names
    groups: Array
    texts: Array  # definitions as written

    def save(self, path: Path) -> None:
        flat: dict[str, Array] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                flat |= {f"{field.name}.{name}": part for name, part in value._asdict().items()}  # type: ignore[attr-defined]
            else:
                flat[field.name] = value
        np.savez_compressed(path, allow_pickle=False, **flat)

    @classmethod
    def load(cls, path: Path) -> "TrainingData":
        with np.load(path) as found:
            flat = dict(found)
        parts: dict[str, Any] = {}
        for field in fields(cls):
            kind: Any = {"views": Ragged, "definitions": Ragged, "wordings": Ragged, "rows": Rows}.get(field.name)
            parts[field.name] = (
                kind(*(flat[f"{field.name}.{name}"] for name in kind._fields)) if kind else flat[field.name]
            )
        return cls(**parts)
