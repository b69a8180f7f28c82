"""Marks of a written model as it is stored, and its card: does it stop, does it loop, what does the teacher say of it.

Everything is measured on the CPU in fp32 from the model folder, with seeds of its own, so anybody can repeat it.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mainspring.engine.sampling import Sampling
from mainspring.errors import InputError
from mainspring.generator import Generator
from mainspring.model.hybrid import Hybrid
from mainspring.model.loading import load_hybrid
from mainspring.train.distill.card import write_card
from mainspring.train.distill.config import DistillConfig
from mainspring.train.distill.corpus import Corpus
from mainspring.train.distill.generate import distinct
from mainspring.train.distill.pipeline import hidden_turns, open_teacher, read_texts
from mainspring.train.distill.prompts import prompts
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Turn, Vocabulary, teacher_tokenizer
from mainspring.train.splits import TEST
from mainspring.train.updates import Say

MOST_TOKENS, SAMPLES = 256, 10
SAMPLING = Sampling(temperature=0.7, top_p=0.95, frequency_penalty=0.3)
"""Chosen on 80 prompts of the calibration split: without the penalty one reply in ten runs in circles."""


def report(config: DistillConfig, *, asked: int = 200, most: int = MOST_TOKENS, say: Say = print) -> dict[str, Any]:
    """`asked` held-out prompts answered with at most `most` tokens; report.json and README.md beside the weights.
    InputError where the run is not finished."""
    folder = config.out / "model"
    if not folder.is_dir():  # nor is a model of that name on a hub what is meant
        raise InputError(f"{config.out} holds no finished model: train it first", param="out")
    generator = Generator.from_pretrained(folder)
    source = open_teacher(config)
    vocabulary = Vocabulary.of(source, generator.bundle.tokenizer)
    hidden = hidden_turns(config, source)
    judge = Judge(Teacher(source), vocabulary, hidden)
    words = teacher_tokenizer(source)
    found = [p.text for p in prompts(config.sources, share=config.writing.share) if p.split == TEST]
    order = np.random.default_rng(0).permutation(len(found))[:asked]
    replies: list[dict[str, Any]] = []
    for number, index in enumerate(order.tolist()):
        written = generator.generate(found[index], max_tokens=most, sampling=replace(SAMPLING, seed=number))
        turns = [
            Turn("user", words.encode_text(found[index]).tolist()),
            Turn("assistant", words.encode_text(written.text).tolist()),
        ]
        replies.append(
            {
                "prompt": found[index],
                "reply": written.text,
                "seed": number,
                "stopped": written.finish == "stop",
                "tokens": len(written.tokens),
                "distinct_4": distinct(written.tokens),
                "teacher_loss": judge.loss(turns)[0],
            }
        )
        if number % 20 == 19:
            say(f"{number + 1} of {len(order)} prompts answered")
    corpus = read_texts(config, vocabulary, hidden)
    held = held_out_text(load_hybrid(folder), judge, corpus, words)
    marks = summary(replies) | held | {"training": _json(config.out / "model.json")}
    samples = [{key: reply[key] for key in ("prompt", "reply", "seed", "stopped")} for reply in replies[:SAMPLES]]
    whole = {
        "marks": marks,
        "sampling": {
            "temperature": SAMPLING.temperature,
            "top_p": SAMPLING.top_p,
            "frequency_penalty": SAMPLING.frequency_penalty,
            "max_tokens": most,
        },
        "samples": samples,
    }
    (folder / "report.json").write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", "utf-8")
    write_card(folder, whole)
    return whole


class Judge:
    """The teacher as a reader: its loss on an assistant's text."""

    def __init__(self, teacher: Teacher, vocabulary: Vocabulary, hidden: Sequence[Turn]) -> None:
        self.teacher, self.vocabulary, self.hidden = teacher, vocabulary, tuple(hidden)

    def loss(self, turns: Sequence[Turn]) -> tuple[float, int]:
        """(mean loss in nats a teacher token, tokens) of the last turn, its end included."""
        v = self.vocabulary
        text = [t for turn in (*self.hidden, *turns) for t in (*v.opening[turn.role], *turn.tokens, *v.close)]
        rows, _ = self.teacher(torch.tensor([text]))
        own = len(turns[-1].tokens) + 1
        first = len(text) - len(v.close) - len(turns[-1].tokens)
        wanted = torch.tensor(text[first : first + own])
        spoken = self.teacher.logits(rows[0, first - 1 : first - 1 + own]).log_softmax(-1)
        return float(-spoken.gather(1, wanted[:, None]).mean()), own


@torch.inference_mode()
def held_out_text(student_model: Hybrid, judge: Judge, corpus: Corpus, words: Any, most: int = 200) -> dict[str, Any]:
    """Both models' loss on the same held-out replies of the teacher, in bits a byte, and the teacher's perplexity."""
    totals = np.zeros(4)  # the writer's and the teacher's nats, teacher tokens, bytes
    chosen = np.flatnonzero(corpus.split == TEST)[:most]
    for number in chosen.tolist():
        student = corpus.aligned.student[number].astype(np.int64)
        teacher = corpus.aligned.teacher[number].tolist()
        answers = np.flatnonzero(corpus.aligned.reply[number])
        first = int(answers[np.flatnonzero(np.diff(answers, prepend=-9) > 1)[-1]])  # where the last reply opens
        state = student_model.new_state(len(student))
        hidden = student_model.extend(torch.from_numpy(student[:-1]), [len(student) - 1], [state], update=True)
        spoken = student_model.logits(hidden[first:]).log_softmax(-1)
        nats = float(-spoken.gather(1, torch.from_numpy(student[first + 1 :])[:, None]).sum())
        turns = _turns(judge.vocabulary, teacher)[len(judge.hidden) :]
        mean, count = judge.loss(turns)
        size = len(words.decode(turns[-1].tokens).encode()) + 1
        totals += nats, mean * count, count, size
    if not len(chosen):
        return {}
    bits = totals[:2] / totals[3] / math.log(2)
    return {
        "held_out_chats": len(chosen),
        "writer_bits_per_byte": float(bits[0]),
        "teacher_bits_per_byte": float(bits[1]),
        "teacher_perplexity": float(np.exp(totals[1] / totals[2])),
        "writer_perplexity_per_teacher_token": float(np.exp(totals[0] / totals[2])),
    }


def _turns(v: Vocabulary, text: Sequence[int]) -> list[Turn]:
    """A chat's turns from the teacher's tokens."""
    turns, at = [], 0
    while at < len(text):
        role = next(role for role, opening in v.opening.items() if tuple(text[at : at + len(opening)]) == opening)
        first = at + len(v.opening[role])
        end = text.index(v.close[0], first)
        turns.append(Turn(role, list(text[first:end])))
        at = end + len(v.close)
    return turns


def summary(replies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over replies; the loss by its median too, which one odd reply does not move."""
    losses = [reply["teacher_loss"] for reply in replies]
    return {
        "prompts": len(replies),
        "stopped": float(np.mean([reply["stopped"] for reply in replies])),
        "distinct_4": float(np.mean([reply["distinct_4"] for reply in replies])),
        "tokens": float(np.mean([reply["tokens"] for reply in replies])),
        "teacher_loss": float(np.mean(losses)),
        "teacher_loss_median": float(np.median(losses)),
    }


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
