"""What the student is told at every token: the teacher's next-token distribution, its states, and the token after next.

Where the teacher stands at the same place, its probabilities are the target, summed over its tokens that begin with the
same student token; inside a teacher token the next piece is. Losses are sums over tokens by weight, divided by the sum
of weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.train.distill.student import Student
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Marginal
from mainspring.train.network import text_block, text_layout, text_states

PIECE_TOKENS = 8192  # of a step whose distributions are made at once


class Texts(NamedTuple):
    """Padded on the right; `weight` is that of the token after each student token, 0 where there is none to learn."""

    student: Tensor  # [B, T]
    lengths: Tensor  # [B]
    teacher: Tensor  # [B, Tt]
    places: Tensor  # [B, T] row of the teacher, -1: none
    weight: Tensor  # [B, T] fp32


class Sums(NamedTuple):
    """Divergence from the teacher, 1 - cosine of states, divergence of the drafts; how often a draft's likeliest token
    is the trunk's; likelihood of the text itself, all means by weight."""

    divergence: Tensor
    states: Tensor
    ahead: Tensor
    agreement: Tensor
    text: Tensor


@dataclass(frozen=True)
class Lessons:
    """A teacher and how its states and tokens become the student's."""

    teacher: Teacher
    marginal: Marginal
    basis: Tensor  # [teacher d, d]
    taps: tuple[int, ...]  # one a student layer

    def __call__(self, student: Student, texts: Texts, *, drafts: bool = True) -> Sums:
        above, states = self._read(texts.teacher)
        embedding = student.embedding()
        own = text_states(student.model, embedding, texts.student, texts.lengths)
        rows = student.model.norm(own[-1].float())
        ahead = self._drafted(student, embedding, texts, rows.detach()) if drafts else rows
        sums = (self._fused if rows.is_cuda else self._spoken)(rows, ahead, embedding, above, texts)
        total, further = texts.weight.sum().clamp(min=1e-6), texts.weight[:, 1:].sum().clamp(min=1e-6)
        return Sums(
            sums[0] / total, self._states(states, own, texts), sums[1] / further, sums[2] / further, sums[3] / total
        )

    @cached_property
    def _read(self) -> Callable[[Tensor], tuple[Tensor, list[Tensor]]]:
        """The teacher's rows and tapped states of texts."""
        if not self.teacher.embed.is_cuda:
            return lambda tokens: self.teacher(tokens, self.taps)
        from mainspring.train.distill.fused import Quick

        quick = Quick(self.teacher)
        return lambda tokens: quick(tokens, self.taps)

    def _spoken(self, rows: Tensor, ahead: Tensor, embedding: Tensor, above: Tensor, texts: Texts) -> Tensor:
        """Sums by weight [4], as `_divergences` gives them."""
        at, sums = texts.places.clamp(min=0), torch.zeros(4, device=rows.device)
        for part in _pieces(texts):
            target = self._target(_taken(above[part], at[part]), Texts(*(x[part] for x in texts)))
            sums = sums + _divergences(
                rows[part], ahead[part], embedding, target, texts.student[part], texts.weight[part]
            )
        return sums

    def _fused(self, rows: Tensor, ahead: Tensor, embedding: Tensor, above: Tensor, texts: Texts) -> Tensor:
        from mainspring.train.distill.fused import spoken

        head = self.teacher.embed if self.teacher.head is None else self.teacher.head
        first = torch.where(self.marginal.known, self.marginal.first, -1).to(torch.int32)
        size = _pieces(texts)[0].stop
        return spoken(
            rows, ahead, embedding, above, head, first, texts.student, texts.places, texts.weight, size
        )  # fmt: skip

    @torch.no_grad()
    def _target(self, above: Tensor, texts: Texts) -> Tensor:
        """[n, T, vocab] probabilities of the next student token."""
        B, T = texts.student.shape  # noqa: N806
        target = self.marginal(self.teacher.logits(above).flatten(0, 1))
        following = F.pad(texts.student[:, 1:], (0, 1)).flatten()
        piece = torch.zeros_like(target).scatter_(1, following[:, None], 1.0)
        return torch.where((texts.places < 0).flatten()[:, None], piece, target).view(B, T, -1)

    def _states(self, states: list[Tensor], own: list[Tensor], texts: Texts) -> Tensor:
        at = texts.places.clamp(min=0)
        weight = texts.weight * (texts.places >= 0)
        total = own[0].new_zeros((), dtype=torch.float32)
        for above, mine in zip(states, own, strict=True):
            aim = _taken(above, at).float() @ self.basis
            alike = F.cosine_similarity(aim, mine.float(), dim=-1)
            total = total + ((1 - alike) * weight).sum() / weight.sum().clamp(min=1e-6)
        return total / len(own)

    def _drafted(self, student: Student, embedding: Tensor, texts: Texts, rows: Tensor) -> Tensor:
        """Rows before the head that draft the token after next; the last of a text is of no use."""
        mtp = student.mtp
        following = F.embedding(F.pad(texts.student[:, 1:], (0, 1)), embedding.detach())
        mask, turn = text_layout(student.model, texts.student, texts.lengths)
        return mtp.norm(text_block(mtp.blocks[0], mtp.joined(following, rows), mask, turn).float())  # type: ignore[arg-type]


def _divergences(
    rows: Tensor, ahead: Tensor, embedding: Tensor, target: Tensor, tokens: Tensor, weight: Tensor
) -> Tensor:
    """Sums by weight [4]: divergence, that of the drafts, drafts' agreement with the trunk, loss of the text."""
    logits = F.linear(rows, embedding).float()
    spoken = logits.log_softmax(-1)
    entropy = torch.special.entr(target).sum(-1)
    divergence = -(target * spoken).sum(-1) - entropy
    drafts = F.linear(ahead[:, :-1], embedding.detach()).float()
    further = -(target[:, 1:] * drafts.log_softmax(-1)).sum(-1) - entropy[:, 1:]
    agree = (drafts.argmax(-1) == logits[:, 1:].argmax(-1)).float()
    text = -spoken[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    pairs = ((divergence, weight), (further, weight[:, 1:]), (agree, weight[:, 1:]), (text, weight[:, :-1]))
    return torch.stack([(value * by).sum() for value, by in pairs])


def _pieces(texts: Texts) -> list[slice]:
    """Of the texts, of about PIECE_TOKENS tokens each."""
    size = max(1, PIECE_TOKENS // texts.student.shape[1])
    return [slice(start, start + size) for start in range(0, len(texts.student), size)]


def _taken(rows: Tensor, at: Tensor) -> Tensor:
    """rows [B, Tt, d] at places [B, T] -> [B, T, d]."""
    return rows.gather(1, at[..., None].expand(-1, -1, rows.shape[-1]))
