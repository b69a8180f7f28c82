"""The training loop: bf16 on a GPU, fp32 on a CPU, the same result whether or not it was interrupted.

All that a step depends on is data, seed and step number: rows and wordings come from `Batches`, dropout from a
generator seeded a step. A checkpoint holds weights, their average, the optimiser and the place in the epoch; beside it
lies the average that did best so far.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.train.arrays import TrainingData
from mainspring.train.batches import Batches, BatchPlan, Step, base_numbers, held_out
from mainspring.train.config import Training
from mainspring.train.graphs import Replayed
from mainspring.train.looks import Best, put, rows_to_look_at
from mainspring.train.metrics import macro_auc
from mainspring.train.network import Batch, label_logits, next_token_loss
from mainspring.train.parameters import Trainable
from mainspring.train.splits import CALIBRATION

AHEAD, LOG_EVERY, LOOKS = 6, 50, 14
Say = Callable[[str], None]


@dataclass
class Place:
    """Where a run stands: the next batch is `index` of `epoch`, `step` overall."""

    epoch: int = 0
    index: int = 0
    step: int = 0


class Run:
    def __init__(self, trained: Trainable, data: TrainingData, training: Training, folder: Path, device: str) -> None:
        self.trained, self.data, self.training, self.folder = trained.to(device), data, training, folder
        self.device = torch.device(device)
        self.parameters = {n: p for n, p in trained.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}
        gpu = self.device.type == "cuda"
        self.optimisers = self._optimisers(fused=gpu)
        self.batches = Batches(
            data,
            seed=training.seed,
            tokens=training.tokens,
            branches=training.branches,
            smoothing=training.smoothing,
            hide=training.hide,
        )
        self.label_ids = torch.from_numpy(data.label_ids).to(self.device)
        self.steps = Replayed(self._losses, list(self.parameters.values()), record=gpu)
        self.place = Place()
        self.log = folder / "log.jsonl"
        self.best = Best(folder / "best.pt")
        if gpu:
            torch.set_float32_matmul_precision("high")
            torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape: 0.3 s a step

    def _optimisers(self, *, fused: bool) -> list[torch.optim.Optimizer]:
        """Matrices decay, the rest does not; embeddings, free rows above all, move more slowly."""
        groups: dict[tuple[float, float], list[Tensor]] = {}
        matrices: list[Tensor] = []
        for name, p in self.parameters.items():
            slow = 0.1 if name == "rows" else 0.5 if name == "projection" else 1.0
            wide = p.dim() > 1 and not name.endswith(("conv", "rows"))
            if self.training.muon and wide and ".blocks." in name:
                matrices.append(p)
            else:
                groups.setdefault((slow, self.training.decay if wide else 0.0), []).append(p)
        rate, decay = self.training.rate, self.training.decay
        found: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [{"params": ps, "weight_decay": decay, "slow": slow} for (slow, decay), ps in groups.items()],
                lr=rate, betas=(0.9, 0.95), eps=1e-8, fused=fused,
            )
        ]  # fmt: skip
        if matrices:
            every = {"params": matrices, "slow": 1.0}
            found.append(torch.optim.Muon([every], lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
        return found

    def train(self, *, say: Say, stop_after_s: float = math.inf, stop_at: int | None = None) -> bool:
        """Go on until the end (True), for that long, or to that step; a checkpoint is left either way."""
        started = saved = time.monotonic()
        epochs, seen, losses = self.training.epochs, 0, []
        look = max(1.0 / LOOKS, 1e-9)
        for tensors, progress in self._steps():
            losses.append(self._step(tensors, progress))
            seen += tensors[0].numel() + tensors[2].numel()
            self.place.step += 1
            self.place.index += 1
            now = time.monotonic()
            if self.place.step % LOG_EVERY == 0:
                loss, language = torch.stack(losses).mean(0).tolist()
                say(
                    f"step {self.place.step} {progress:.1%} loss {loss:.4f}"
                    + (f", next token {language:.3f}," if language else "")
                    + f" {seen / (now - started):,.0f} tokens/s"
                )
                self._note(step=self.place.step, progress=progress, loss=loss, language=language, seconds=now - started)
                losses = []
            if int(progress / look) != int((progress + 1 / (epochs * self.count)) / look):
                found = self.look()
                best = self.best.offer(found, self.place.step, self.average)
                values = {name: value for name, (value, _) in found.items()}
                say(
                    f"step {self.place.step} held out: "
                    + ", ".join(f"{k} {v:.3f}" for k, v in values.items())
                    + (", the best so far" if best else "")
                )
                self._note(step=self.place.step, progress=progress, held_out=values)
            late = now - started > stop_after_s or self.place.step == stop_at
            if late or now - saved > self.training.save_every_s:
                self.save()
                saved = now
            if late:
                return False
        self.save()
        return True

    def _note(self, **entry: Any) -> None:
        with self.log.open("a") as handle:
            handle.write(json.dumps(entry) + "\n")

    def _steps(self) -> Iterator[tuple[list[Tensor], float]]:
        """Batches from the place on, made ahead by a thread; with each how much of the training is done."""
        whole, part = divmod(self.training.epochs, 1)
        last = int(whole) + (part > 0)
        with ThreadPoolExecutor(2) as pool:
            while self.place.epoch < last:
                plans = self.batches.epoch(self.place.epoch)
                self.count = len(plans)
                if self.place.epoch == int(whole):
                    plans = plans[: max(1, round(part * len(plans)))]
                first, at = self.place.step - self.place.index, self.place.index
                rest = iter(range(at, len(plans)))
                waiting: list[tuple[int, Future[list[Tensor]]]] = [
                    (i, pool.submit(self._made, plans[i], first + i)) for i in islice(rest, AHEAD)
                ]
                while waiting:
                    i, found = waiting.pop(0)
                    if (more := next(rest, None)) is not None:
                        waiting.append((more, pool.submit(self._made, plans[more], first + more)))
                    progress = (self.place.epoch + i / self.count) / self.training.epochs
                    yield found.result(), progress
                self.place.epoch, self.place.index = self.place.epoch + 1, 0

    def _made(self, plan: BatchPlan, number: int) -> list[Tensor]:
        tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in self.batches.step(plan, number)]
        return [t.pin_memory() for t in tensors] if self.device.type == "cuda" else tensors

    def _step(self, tensors: Sequence[Tensor], progress: float) -> Tensor:
        """One update; the losses of labels and of next tokens, on the device."""
        torch.manual_seed(self.training.seed * 1_000_003 + self.place.step)
        self.trained.train()
        losses = self.steps([*tensors, torch.tensor(self.training.language * (1 - progress))])
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["slow"] * self._rate(progress)
            optimiser.step()
        self._average()
        return losses

    def _losses(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(losses of the labels and of the views' next tokens [2], their weighted sum)."""
        t = self.training
        *arrays, targets, weight, share = tensors
        batch = Batch(*arrays)
        with self._mixed():
            embedding = self.trained.embedding()
            logits, views = label_logits(self.trained.model, embedding, batch, self.label_ids, dropout=t.dropout)
            language = logits.new_zeros(())
            if t.language:
                language = next_token_loss(views, embedding, self.trained.spread, batch, t.language_rows)
        losses = -(targets * F.log_softmax(logits, -1)).sum(-1)
        labels = (losses * weight).sum() / weight.sum().clamp(min=1)
        return torch.stack([labels, language]), labels + share * language

    def _mixed(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _rate(self, progress: float) -> float:
        warm = min(1.0, (self.place.step + 1) / self.training.warmup)
        return self.training.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))

    @torch.no_grad()
    def _average(self) -> None:
        """Exponential, with a shorter memory at the start."""
        keep = min(self.training.average, (1 + self.place.step) / (10 + self.place.step))
        torch._foreach_lerp_(list(self.average.values()), list(self.parameters.values()), 1 - keep)

    def _on(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def _logits(self, step: Step) -> Tensor:
        batch = Batch(*(self._on(a) for a in step[:4]))
        with self._mixed():
            return label_logits(self.trained.model, self.trained.embedding(), batch, self.label_ids)[0]

    @torch.no_grad()
    def scores(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row numbers, label logits) of held-out rows under the averaged weights."""
        own = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.load_average()
        self.trained.eval()
        found = [
            (part, self._logits(step)[:, 0].float().cpu().numpy())
            for part, step in held_out(self.data, rows, tokens=2 * self.training.tokens)
        ]
        for name, p in self.parameters.items():
            p.copy_(own[name])
        return np.concatenate([r for r, _ in found]), np.concatenate([x for _, x in found])

    @torch.no_grad()
    def load_average(self) -> None:
        for name, p in self.parameters.items():
            p.copy_(self.average[name])

    @torch.no_grad()
    def take_best(self) -> None:
        """The averaged weights that did best become the average; nothing where no look was taken."""
        for name, kept in (self.best.weights() or {}).items():
            self.average[name].copy_(kept)

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

    def save(self) -> None:
        state = {
            "weights": {name: p.detach() for name, p in self.parameters.items()},
            "average": self.average,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "place": vars(self.place),
        }
        put(state, self.folder / "checkpoint.pt")

    @torch.no_grad()
    def resume(self) -> bool:
        path = self.folder / "checkpoint.pt"
        if not path.is_file():
            return False
        state = torch.load(path, map_location=self.device, weights_only=True)
        for name, p in self.parameters.items():
            p.copy_(state["weights"][name])
            self.average[name].copy_(state["average"][name])
        for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
        self.place = Place(**state["place"])
        self.best.resume()
        return True
