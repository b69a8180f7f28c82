"""What every training loop here does: bf16 on a GPU, fp32 on a CPU, the same result whether or not it was interrupted.

A loop says which batches an epoch has, makes a batch's tensors from its plan and number, and gives losses for them; all
that a step depends on is data, seed and step number. Here are the optimisers, the average, checkpoints, resuming, looks
at held-out texts and the log. A checkpoint holds weights, their average, that of early on if it is to be mixed in, the
optimisers and the place in the epoch; beside it lies the average that did best so far.
"""

import dataclasses
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mainspring.errors import InputError
from mainspring.train.config import Pace
from mainspring.train.graphs import Replayed
from mainspring.train.looks import Best, Found, put
from mainspring.train.muon import Muon

AHEAD, LOG_EVERY = 6, 50
Say = Callable[[str], None]
Plan = TypeVar("Plan")


@dataclass
class Place:
    """Where a run stands: the next batch is `index` of `epoch`, `step` overall."""

    epoch: int = 0
    index: int = 0
    step: int = 0


class Loop(ABC, Generic[Plan]):
    reported: tuple[str, ...] = ("loss",)  # names of what `losses` reports
    looks = 14

    def __init__(self, trained: nn.Module, pace: Pace, folder: Path, device: str) -> None:
        self.module, self.pace, self.folder = trained.to(device), pace, folder
        self.device = torch.device(device)
        self.parameters = {n: p for n, p in trained.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}
        gpu = self.device.type == "cuda"
        self.optimisers = self._optimisers(fused=gpu)
        self.steps = Replayed(self.losses, list(self.parameters.values()), record=gpu)
        self.place = Place()
        self.count = 1  # batches of the current epoch
        self.log = folder / "log.jsonl"
        self.best = Best(folder / "best.pt")
        self.early: dict[str, Tensor] = {}  # the average as it was early on, where it is to be mixed in
        if gpu:
            torch.set_float32_matmul_precision("high")
            torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape: 0.3 s a step

    @abstractmethod
    def plans(self, epoch: int) -> list[Plan]:
        """The epoch's batches in the order they run."""

    @abstractmethod
    def made(self, plan: Plan, number: int) -> Sequence[np.ndarray]:
        """The arrays of a batch, which is the run's step `number`. Called by threads."""

    @abstractmethod
    def losses(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(what to report [len(reported)], the loss to differentiate) of `made`'s arrays and the `shares`."""

    @abstractmethod
    def look(self) -> Found:
        """Marks on held-out texts."""

    @abstractmethod
    def shares(self, progress: float) -> list[Tensor]:
        """What changes on the way, as tensors: recorded steps read it."""

    @abstractmethod
    def slow(self, name: str) -> float:
        """The share of the rate that a parameter moves at."""

    def counted(self, tensors: Sequence[Tensor]) -> int:
        """Tokens of a batch, padded."""
        return tensors[0].numel()

    def _optimisers(self, *, fused: bool) -> list[torch.optim.Optimizer]:
        """Matrices decay, the rest does not."""
        groups: dict[tuple[float, float], list[Tensor]] = {}
        matrices: list[Tensor] = []
        for name, p in self.parameters.items():
            wide = p.dim() > 1 and not name.endswith(("conv", "rows"))
            if self.pace.muon and wide and ".blocks." in name:
                matrices.append(p)
            else:
                groups.setdefault((self.slow(name), self.pace.decay if wide else 0.0), []).append(p)
        rate, decay = self.pace.rate, self.pace.decay
        found: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [{"params": ps, "weight_decay": decay, "slow": slow} for (slow, decay), ps in groups.items()],
                lr=rate, betas=(0.9, 0.95), eps=1e-8, fused=fused,
            )
        ]  # fmt: skip
        if matrices:
            every = {"params": matrices, "slow": 1.0}
            found.append(Muon([every], lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
        return found

    def train(self, *, say: Say, stop_after_s: float = math.inf, stop_at: int | None = None) -> bool:
        """Go on until the end (True), for that long, or to that step; a checkpoint is left either way."""
        started = saved = time.monotonic()
        epochs, seen, losses = self.pace.epochs, 0, []
        look = max(1.0 / self.looks, 1e-9)
        for tensors, progress in self._steps():
            losses.append(self._step(tensors, progress))
            seen += self.counted(tensors)
            self.place.step += 1
            self.place.index += 1
            after = progress + 1 / (epochs * self.count)
            if progress < self.pace.early <= after:
                self.early = {name: p.clone() for name, p in self.average.items()}
            now = time.monotonic()
            if self.place.step % LOG_EVERY == 0:
                values = dict(zip(self.reported, torch.stack(losses).mean(0).tolist(), strict=True))
                words = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if value)
                say(f"step {self.place.step} {progress:.1%} {words}, {seen / (now - started):,.0f} tokens/s")
                self._note(step=self.place.step, progress=progress, **values, seconds=now - started)
                losses = []
            if int(progress / look) != int(after / look):
                self._look("held out", progress, say)
            late = now - started > stop_after_s or self.place.step == stop_at
            if late or now - saved > self.pace.save_every_s:
                self.save()
                saved = now
            if late:
                return False
        self.save()
        return True

    def _look(self, what: str, progress: float, say: Say) -> None:
        found = self.look()
        best = self.best.offer(found, self.place.step, self.average)
        values = {name: value for name, (value, _) in found.items()}
        words = ", ".join(f"{k} {v:.3f}" for k, v in values.items())
        say(f"step {self.place.step} {what}: {words}" + (", the best so far" if best else ""))
        self._note(step=self.place.step, progress=progress, **{what.replace(" ", "_"): values})

    def _note(self, **entry: Any) -> None:
        with self.log.open("a") as handle:
            handle.write(json.dumps(entry) + "\n")

    def _steps(self) -> Iterator[tuple[list[Tensor], float]]:
        """Batches from the place on, made ahead by a thread; with each how much of the training is done."""
        whole, part = divmod(self.pace.epochs, 1)
        last = int(whole) + (part > 0)
        with ThreadPoolExecutor(2) as pool:
            while self.place.epoch < last:
                plans = self.plans(self.place.epoch)
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
                    progress = (self.place.epoch + i / self.count) / self.pace.epochs
                    yield found.result(), progress
                self.place.epoch, self.place.index = self.place.epoch + 1, 0

    def _made(self, plan: Plan, number: int) -> list[Tensor]:
        tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in self.made(plan, number)]
        return [t.pin_memory() for t in tensors] if self.device.type == "cuda" else tensors

    def _step(self, tensors: Sequence[Tensor], progress: float) -> Tensor:
        """One update; what its losses report, on the device."""
        torch.manual_seed(self.pace.seed * 1_000_003 + self.place.step)
        self.module.train()
        losses = self.steps([*tensors, *self.shares(progress)])
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["slow"] * self._rate(progress)
            optimiser.step()
        self._average()
        return losses

    def _rate(self, progress: float) -> float:
        warm = min(1.0, (self.place.step + 1) / self.pace.warmup)
        return self.pace.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))

    @torch.no_grad()
    def _average(self) -> None:
        """Exponential, with a shorter memory at the start."""
        keep = min(self.pace.average, (1 + self.place.step) / (10 + self.place.step))
        torch._foreach_lerp_(list(self.average.values()), list(self.parameters.values()), 1 - keep)

    def mixed(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    @torch.no_grad()
    def load_average(self) -> None:
        for name, p in self.parameters.items():
            p.copy_(self.average[name])

    @torch.no_grad()
    def under_average(self, found: Callable[[], Any]) -> Any:
        """`found()` with the averaged weights in place, which then give way to the run's own."""
        own = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.load_average()
        self.module.eval()
        try:
            return found()
        finally:
            for name, p in self.parameters.items():
                p.copy_(own[name])

    @torch.no_grad()
    def take_best(self) -> None:
        """The averaged weights that did best become the average; nothing where no look was taken."""
        for name, kept in (self.best.weights() or {}).items():
            self.average[name].copy_(kept)

    @torch.no_grad()
    def mix_early(self, *, say: Say) -> None:
        """The average becomes the mean of that of early on and itself, by `early_share`, in the MLPs by `early_mlps` of
        that; what it is worth is noted.

        Not to be saved in a checkpoint: the same would be mixed in again.
        """
        for name, kept in self.early.items():
            part = self.pace.early_mlps if ".mlp." in name else 1.0
            self.average[name].lerp_(kept, self.pace.early_share * part)
        self._look("mixed", 1.0, say)

    def save(self) -> None:
        state = {
            "weights": {name: p.detach() for name, p in self.parameters.items()},
            "average": self.average,
            "early": self.early,
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
        self.place, self.early = Place(**state["place"]), state["early"]
        self.best.resume()
        return True


def remember(config: Any, folder: Path) -> None:
    """The config (a dataclass) beside what it made. InputError: the run folder is of another config."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    now = json.dumps(dataclasses.asdict(config), default=str, indent=2)
    if not path.is_file():
        path.with_suffix(".new").write_text(now, "utf-8")
        path.with_suffix(".new").replace(path)
    elif json.loads(path.read_text("utf-8")) != json.loads(now):
        raise InputError(f"{folder} holds a run of another config: remove it or name another folder", param="out")
