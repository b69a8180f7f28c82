"""The teacher writes: every row of a batch is a stream that gets a new text when the last is done.

A step feeds one token to each row: a prompt's next token while there are any, else the one sampled. So there is one
shape, nothing is prefilled, and on a GPU a step is recorded once and replayed. The host looks every few steps, takes
finished rows and refills them. The order of texts, and on a CPU their tokens, follow from the seed alone.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from mainspring.backend.capture import recorded
from mainspring.train.distill.config import Writing
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Turn, Vocabulary

LOOK_STEPS = 16  # a finished row idles half of that on average
DISTINCT, LEAST_TOKENS = 0.9, 4


class Chat(NamedTuple):
    """Turns alternate, the user's first; the last is the assistant's."""

    turns: tuple[Turn, ...]
    split: int


@dataclass
class _Job:
    turns: tuple[Turn, ...]
    role: str  # whose turn is written
    split: int
    forced: list[int] = field(default_factory=list)


class Streams:
    """`Writing.rows` texts at once, none longer than `Writing.capacity` teacher tokens with its prompt; questions and
    answers that go on beyond their own limits are cut, and left out."""

    def __init__(self, teacher: Teacher, vocabulary: Vocabulary, writing: Writing, hidden: Sequence[Turn]) -> None:
        self.teacher, self.vocabulary, self.writing, self.hidden = teacher, vocabulary, writing, tuple(hidden)
        device, (B, S) = teacher.embed.device, (writing.rows, writing.capacity)  # noqa: N806
        self.cache = teacher.new_cache(B, S)
        self.text = torch.zeros(B, S, dtype=torch.long, device=device)  # forced tokens, then written ones
        self.forced = torch.ones(B, dtype=torch.long, device=device)
        self.place = torch.full((B,), S - 1, dtype=torch.long, device=device)  # at the end: idle
        self.limit = torch.full((B,), S - 1, dtype=torch.long, device=device)  # place at which a row is cut
        self.done = torch.ones(B, dtype=torch.bool, device=device)
        self.row = torch.arange(B, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.following = _following(teacher, writing)
        self.steps = self.written = self.kept = 0

    def write(self, starts: Iterable[tuple[tuple[Turn, ...], int]], seed: int) -> list[Chat]:
        """A chat for each start (turns so far, split); where there are none, the user's turn is written first. Those
        that don't end by themselves, loop, or aren't English are left out."""
        torch.manual_seed(seed)
        rng = random.Random(seed)  # noqa: S311 - seeded on purpose
        waiting = deque(self._job(turns, split) for turns, split in starts)
        running: dict[int, _Job] = {}
        found: list[Chat] = []
        taken: list[tuple[_Job, list[int]]] = []
        while waiting or running or taken:
            self._refill(waiting, running)
            for _ in range(LOOK_STEPS if running else 0):
                self._advance()
            for job, tokens in taken:  # while the device is at it
                self._take(job, tokens, found, waiting, rng)
            taken = self._ended(running)
        return found

    def _ended(self, running: dict[int, _Job]) -> list[tuple[_Job, list[int]]]:
        """Jobs whose rows are done, with what was written."""
        ended = self.done.tolist()
        rows = [row for row in running if ended[row]]
        if not rows:
            return []
        where = torch.tensor(rows, device=self.text.device)
        texts, places = self.text[where].cpu().numpy(), self.place[where].tolist()
        found = []
        for row, text, place in zip(rows, texts, places, strict=True):
            job = running.pop(row)
            found.append((job, text[len(job.forced) : place + 1].tolist()))
            self.written += len(found[-1][1])
        return found

    def _job(self, turns: tuple[Turn, ...], split: int) -> _Job:
        v = self.vocabulary
        role = "user" if len(turns) % 2 == 0 else "assistant"
        before = [t for turn in (*self.hidden, *turns) for t in (*v.opening[turn.role], *turn.tokens, *v.close)]
        return _Job(turns, role, split, [*before, *v.opening[role]])

    def _refill(self, waiting: "deque[_Job]", running: dict[int, _Job]) -> None:
        free = [row for row in range(self.writing.rows) if row not in running]
        rows: list[int] = []
        texts: list[list[int]] = []
        while free and waiting:
            job = waiting.popleft()
            if len(job.forced) + LEAST_TOKENS >= self.writing.capacity:
                continue  # no room to answer
            running[free[0]] = job
            rows.append(free.pop(0))
            texts.append(job.forced)
        if not rows:
            return
        width, device = max(map(len, texts)), self.text.device
        where = torch.tensor(rows, device=device)
        padded = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], device=device)
        self.text[where, :width] = padded
        self.forced[where] = torch.tensor([len(text) for text in texts], device=device)
        limits = [
            min(len(running[row].forced) + self._most(running[row].role), self.writing.capacity - 1) for row in rows
        ]
        self.limit[where] = torch.tensor(limits, device=device)
        self.place[where], self.done[where] = 0, False

    def _most(self, role: str) -> int:
        return self.writing.most_asked if role == "user" else self.writing.most_answered

    def _take(
        self, job: _Job, tokens: list[int], found: list[Chat], waiting: "deque[_Job]", rng: random.Random
    ) -> None:
        v = self.vocabulary
        if not tokens or tokens[-1] != v.close[0] or not self._good(tokens[:-1], job.role):
            return
        turns = (*job.turns, Turn(job.role, tokens[:-1]))
        if job.role == "user":
            waiting.append(self._job(turns, job.split))
            return
        if len(turns) == 2 and rng.random() < self.writing.follow:
            waiting.append(self._job(turns, job.split))
        else:
            self.kept += 1
            found.append(Chat(turns, job.split))

    def _good(self, tokens: list[int], role: str) -> bool:
        if any(self.vocabulary.first[t] < 0 or not self.vocabulary.english[t] for t in tokens):
            return False
        if role == "user":
            return len(tokens) >= LEAST_TOKENS
        return len(tokens) >= LEAST_TOKENS and distinct(tokens) >= DISTINCT

    def _advance(self) -> None:
        """One token for every row."""
        self.steps += 1
        if self.graph is not None:
            self.graph.replay()
        elif self.text.is_cuda and self.steps > 3:
            self.graph, _ = recorded(self._step)
            self.graph.replay()
        else:
            self._step()

    def _step(self) -> None:
        last = self.writing.capacity - 1
        tokens = self.text.gather(1, self.place[:, None])[:, 0]
        following = (self.place + 1).clamp(max=last)
        chosen = self.following(tokens, self.place, self.cache)
        known = self.text.gather(1, following[:, None])[:, 0]
        new = torch.where(following < self.forced, known, chosen)
        new = torch.where(self.done, known, new)
        self.text.scatter_(1, following[:, None], new[:, None])
        moved = ~self.done
        self.place.copy_(torch.where(moved, following, self.place))
        own = following >= self.forced
        self.done |= moved & ((own & (new == self.vocabulary.close[0])) | (following >= self.limit))


def _following(teacher: Teacher, writing: Writing) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(tokens, places, cache) -> tokens."""
    if teacher.embed.is_cuda:
        from mainspring.train.distill.fused import Steps

        return Steps(teacher, writing)
    return lambda tokens, places, cache: sample(teacher.step(tokens, places, cache), writing)


def sample(logits: Tensor, writing: Writing) -> Tensor:
    """A token a row: by temperature, of those at least `least` as likely as the likeliest (Nguyen et al. 2024)."""
    p = (logits / writing.temperature).softmax(-1)
    p = torch.where(p >= writing.least * p.amax(-1, keepdim=True), p, 0.0)
    return (p / torch.empty_like(p).exponential_()).argmax(-1)


def distinct(tokens: Sequence[int], n: int = 4) -> float:
    """Share of runs of `n` tokens that are distinct; 1 where there are fewer than `n` tokens."""
    runs = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(runs)) / len(runs) if runs else 1.0
