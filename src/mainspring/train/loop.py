"""The scorer's training: which rows make a step, its losses, and looks by AUC. The rest is `updates`.

Rows and wordings come from `Batches`, dropout from a generator seeded a step.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.train.arrays import TrainingData
from mainspring.train.batches import Batches, BatchPlan, Step, base_numbers, held_out
from mainspring.train.config import Training
from mainspring.train.looks import rows_to_look_at
from mainspring.train.metrics import macro_auc
from mainspring.train.network import Batch, label_logits, next_token_loss
from mainspring.train.parameters import Trainable
from mainspring.train.splits import CALIBRATION
from mainspring.train.updates import Loop


class Run(Loop[BatchPlan]):
    reported = ("loss", "language")  # of labels, of the views' next tokens

    def __init__(self, trained: Trainable, data: TrainingData, training: Training, folder: Path, device: str) -> None:
        super().__init__(trained, training, folder, device)
        self.trained, self.data, self.training = trained, data, training
        self.batches = Batches(
            data,
            seed=training.seed,
            tokens=training.tokens,
            branches=training.branches,
            smoothing=training.smoothing,
            hide=training.hide,
        )
        self.label_ids = torch.from_numpy(data.label_ids).to(self.device)

    def plans(self, epoch: int) -> list[BatchPlan]:
        return self.batches.epoch(epoch)

    def made(self, plan: BatchPlan, number: int) -> Sequence[np.ndarray]:
        return self.batches.step(plan, number)

    def shares(self, progress: float) -> list[Tensor]:
        first, last = self.training.language, self.training.language_last
        return [torch.tensor(first + (last - first) * progress)]

    def slow(self, name: str) -> float:
        """Embeddings, free rows above all, move more slowly."""
        return 0.1 if name == "rows" else 0.5 if name == "projection" else 1.0

    def counted(self, tensors: Sequence[Tensor]) -> int:
        return tensors[0].numel() + tensors[2].numel()

    def losses(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(losses of the labels and of the views' next tokens [2], their weighted sum)."""
        t = self.training
        *arrays, targets, weight, share = tensors
        batch = Batch(*arrays)
        with self.mixed():
            embedding = self.trained.embedding()
            logits, views = label_logits(self.trained.model, embedding, batch, self.label_ids, dropout=t.dropout)
            language = logits.new_zeros(())
            if t.language or t.language_last:
                language = next_token_loss(views, embedding, self.trained.spread, batch, t.language_rows)
        losses = -(targets * F.log_softmax(logits, -1)).sum(-1)
        labels = (losses * weight).sum() / weight.sum().clamp(min=1)
        return torch.stack([labels, language]), labels + share * language

    def _on(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def _logits(self, step: Step) -> Tensor:
        batch = Batch(*(self._on(a) for a in step[:4]))
        with self.mixed():
            return label_logits(self.trained.model, self.trained.embedding(), batch, self.label_ids)[0]

    def scores(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row numbers, label logits) of held-out rows under the averaged weights."""
        found = self.under_average(
            lambda: [
                (part, self._logits(step)[:, 0].float().cpu().numpy())
                for part, step in held_out(self.data, rows, tokens=2 * self.training.tokens)
            ]
        )
        return np.concatenate([r for r, _ in found]), np.concatenate([x for _, x in found])

    def look(self, split: int = CALIBRATION, *, least: int = 8) -> dict[str, tuple[float, int]]:
        """Macro AUC by group, and over how many behaviors."""
        chosen = rows_to_look_at(self.data, split)
        if not len(chosen):
            return {}
        rows, logits = self.scores(chosen)
        p = torch.from_numpy(logits).double().softmax(-1).numpy()
        labels, groups = self.data.rows.label[rows].astype(np.int64), self.data.rows.group[rows]
        behaviors = base_numbers(self.data)[self.data.rows.behavior[rows]]
        found = {}
        for number, name in enumerate(self.data.groups):
            mine = groups == number
            value, count = macro_auc(p[mine], labels[mine], behaviors[mine], least=least)
            if count:
                found[str(name)] = value, count
        return found
