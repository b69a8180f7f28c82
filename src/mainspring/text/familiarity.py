"""How near a definition is to what was trained on, from its tokens alone.

A training behavior is the bag of tokens of all its wordings; tokens weigh by how few behaviors have them. Familiarity
is the largest cosine between a definition's bag and a behavior's, from 0 to 1. It says nothing about the answer: a
definition far from training is answered as well as the model can, and flagged.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mainspring.errors import ModelError

FILE, BAG_TOKENS = "familiarity.npz", 120
FILE_BYTES, UNPACKED_BYTES = 4 << 20, 16 << 20
OWNERS = 1 << 16
"""Training behaviors, as many as the file's type can number."""
VALUE_STEPS = 512
"""Of the file's values, from 0 to 1: a familiarity moves by about a thousandth."""
MOST_WEIGHT = 65_504.0
"""What the file's type holds: squares of it still sum within float32."""


@dataclass(frozen=True)
class Familiarity:
    """Weight of each token, and a row of weighted, normalised counts for each behavior (tokens x behaviors, sparse)."""

    weight: npt.NDArray[np.float32]  # [vocab]
    tokens: npt.NDArray[np.int32]  # of all behaviors, one after another
    owners: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]

    @classmethod
    def of(cls, bags: Sequence[Mapping[int, int]], vocab: int) -> "Familiarity":
        """Of bags of tokens, one a behavior: how many wordings hold each."""
        held = np.zeros(vocab, np.float32)
        for bag in bags:
            held[list(bag)] += 1
        weight = np.log((1 + len(bags)) / (1 + held)).astype(np.float32)
        tokens: list[int] = []
        owners: list[int] = []
        values: list[float] = []
        for owner, bag in enumerate(bags):
            kept = dict(sorted(sorted(bag.items(), key=lambda pair: -pair[1])[:BAG_TOKENS]))
            row = np.array([np.sqrt(count) * weight[token] for token, count in kept.items()], np.float32)
            tokens += list(kept)
            owners += [owner] * len(kept)
            values += (row / max(float(np.linalg.norm(row)), 1e-6)).tolist()
        return cls(weight, np.array(tokens, np.int32), np.array(owners, np.int32), np.array(values, np.float32))

    def __call__(self, tokens: npt.ArrayLike) -> float:
        """Of a branch's tokens."""
        found = np.unique(np.asarray(tokens, np.int64))
        unseen = float(np.log(1.0 + (self.owners.max(initial=0) + 1)))
        known = found[found < len(self.weight)]
        weights = self.weight[known]
        norm = float(np.sqrt((weights**2).sum() + (len(found) - len(known)) * unseen**2))
        query = np.zeros(len(self.weight), np.float32)
        query[known] = weights
        scores = np.bincount(self.owners, self.values * query[self.tokens])
        return min(1.0, float(scores.max(initial=0.0) / norm)) if norm else 0.0

    def save(self, folder: Path) -> None:
        """Tokens in order and values in steps take a third less room."""
        narrow: dict[str, Any] = {
            "weight": self.weight.astype(np.float16),
            "tokens": self.tokens.astype(np.uint16 if len(self.weight) <= 1 << 16 else np.uint32),
            "owners": self.owners.astype(np.uint16),
            "values": (np.round(self.values * VALUE_STEPS) / VALUE_STEPS).astype(np.float16),
        }
        np.savez_compressed(folder / FILE, allow_pickle=False, **narrow)

    @classmethod
    def load(cls, folder: Path) -> "Familiarity | None":
        """None where the folder has none. ModelError."""
        path = folder / FILE
        return cls.read(path.read_bytes()) if path.is_file() else None

    @classmethod
    def read(cls, data: bytes) -> "Familiarity":
        """From a file's bytes, which may be anybody's: sizes are looked at before it is unpacked. ModelError."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                size = sum(each.file_size for each in archive.infolist())
            if len(data) > FILE_BYTES or size > UNPACKED_BYTES:
                raise ModelError(f"{FILE}: {len(data):,} bytes, unpacked {size:,}; at most {FILE_BYTES:,} and "
                                 f"{UNPACKED_BYTES:,} are read")  # fmt: skip
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                arrays = [found[name] for name in ("weight", "tokens", "owners", "values")]
            if any(each.dtype.kind not in "fiu" for each in arrays):
                raise ModelError(f"{FILE}: its arrays are no numbers")
        except ModelError:
            raise
        except Exception as error:  # zipfile, zlib and numpy's reader of headers raise a dozen kinds for broken bytes
            raise ModelError(f"{FILE} can't be read: {type(error).__name__}") from None
        with np.errstate(all="ignore"):  # what does not fit is out of range
            weight, values = arrays[0].astype(np.float32), arrays[3].astype(np.float32)
            tokens, owners = arrays[1].astype(np.int32), arrays[2].astype(np.int32)
        made = cls(weight, tokens, owners, values)
        made._check()
        return made

    def _check(self) -> None:
        """ModelError for what can't be looked up in."""
        arrays = (self.weight, self.tokens, self.owners, self.values)
        sound = all(each.ndim == 1 for each in arrays) and len(self.tokens) == len(self.owners) == len(self.values)
        if not sound:
            raise ModelError(f"{FILE}: its arrays do not fit each other")
        if not (np.abs(self.weight) <= MOST_WEIGHT).all() or not (np.abs(self.values) <= 1.0).all():  # NaN is not
            raise ModelError(f"{FILE}: weights or values out of range")
        if len(self.tokens) and not (
            0 <= self.tokens.min() <= self.tokens.max() < len(self.weight)
            and 0 <= self.owners.min() <= self.owners.max() < OWNERS
        ):
            raise ModelError(f"{FILE}: tokens or behaviors out of range")
