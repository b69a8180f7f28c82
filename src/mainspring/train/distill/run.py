"""Distillation's part of the training loop: batches of chats, the lessons' losses, looks by divergence."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mainspring.train.arrays import Array
from mainspring.train.distill.config import Distilling
from mainspring.train.distill.corpus import Corpus
from mainspring.train.distill.losses import Lessons, Texts
from mainspring.train.distill.student import Student
from mainspring.train.splits import CALIBRATION, TEST
from mainspring.train.updates import Loop

STATES_UNTIL = 1 / 3  # of the training


class DistillRun(Loop[Array]):
    reported = ("loss", "states", "ahead", "agreement", "text")

    def __init__(
        self, student: Student, lessons: Lessons, corpus: Corpus, training: Distilling, folder: Path, device: str
    ) -> None:
        super().__init__(student, training, folder, device)
        self.student, self.lessons, self.corpus, self.training = student, lessons, corpus, training
        self.looks = training.looks

    def plans(self, epoch: int) -> list[Array]:
        return self.corpus.epoch(epoch, seed=self.training.seed, tokens=self.training.tokens)

    def made(self, plan: Array, number: int) -> Sequence[np.ndarray]:  # noqa: ARG002 - nothing is drawn by step
        return self.corpus.arrays(plan, self.training.asked)

    def shares(self, progress: float) -> list[Tensor]:
        """Weight of the states' loss, and whether matrices are rounded."""
        t = self.training
        fading = t.states * max(0.0, 1 - progress / STATES_UNTIL)
        return [torch.tensor(fading), torch.tensor(float(progress >= 1 - t.rounding))]

    def slow(self, name: str) -> float:
        return 0.3 if name.startswith("model.embed") else 1.0

    def losses(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        *arrays, states, rounding = tensors
        self.student.gate.copy_(rounding)
        with self.mixed():
            found = self.lessons(self.student, Texts(*arrays))
        loss = found.divergence + states * found.states + self.training.ahead * found.ahead
        return torch.stack([x.detach() for x in found]), loss

    def look(self, split: int = CALIBRATION) -> dict[str, tuple[float, int]]:
        """Of the averaged weights on held-out chats: `held_out`, the divergence a token with its sign turned (so that
        more is better), from which the best is chosen."""
        chosen = np.flatnonzero(self.corpus.split == split)[: self.training.look_chats]
        if not len(chosen):
            return {}
        found = self.under_average(lambda: self.measured(chosen))
        return {"held_out": (-float(found[0]), len(chosen))}

    @torch.no_grad()
    def final_marks(self) -> dict[str, float]:
        """Of the weights as they stand, on all test chats."""
        chosen = np.flatnonzero(self.corpus.split == TEST)
        if not len(chosen):
            return {}
        self.student.eval()
        found = dict(zip(self.reported, self.measured(chosen).tolist(), strict=True))
        return found | {"chats": len(chosen), "step": self.place.step}

    @torch.no_grad()
    def measured(self, chosen: Array) -> Array:
        """Means of what `losses` reports over the replies of chats, by reply token, with matrices rounded: what is
        stored is what counts."""
        self.student.gate.fill_(1.0)
        order = chosen[np.argsort(self.corpus.aligned.student.lengths[chosen], kind="stable")]
        longest = int(self.corpus.aligned.student.lengths[order].max())
        size = max(1, self.training.tokens // longest)
        sums, weights = np.zeros(len(self.reported)), 0.0
        for start in range(0, len(order), size):
            arrays = self.corpus.arrays(order[start : start + size], 0.0)
            texts = Texts(*(torch.from_numpy(np.ascontiguousarray(a)).to(self.device) for a in arrays))
            with self.mixed():
                found = self.lessons(self.student, texts)
            weight = float(arrays.weight.sum())
            sums += weight * torch.stack(list(found)).double().cpu().numpy()
            weights += weight
        return sums / max(weights, 1e-9)
