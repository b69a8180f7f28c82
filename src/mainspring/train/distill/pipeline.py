"""From a config to a written model folder. Each stage is kept in the run folder and not done again.

out/teacher.gguf      the teacher, joined from its parts
out/texts/NNN.npz     what it wrote, shard by shard
out/skeleton          tokenizer and template
out/basis.pt          the directions of the teacher's states that are kept
out/checkpoint.pt, best.pt, log.jsonl, curve.png
out/model             the model, 4-bit, model.json its marks; report.json and README.md come with `report`
out/partial           the model as it was when the time was up, partial.json its marks
"""

import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mainspring.errors import InputError
from mainspring.model.quantised import quantise_folder
from mainspring.model.saving import save_hybrid
from mainspring.text.tokenizer import Tokenizer
from mainspring.train.curve import draw_curve
from mainspring.train.distill.config import DistillConfig
from mainspring.train.distill.corpus import Corpus, load_chats, save_chats
from mainspring.train.distill.generate import Chat, Streams
from mainspring.train.distill.initial import principal, settle, start_from, tapped_layers
from mainspring.train.distill.losses import Lessons
from mainspring.train.distill.prompts import bare, prompts, withheld
from mainspring.train.distill.run import DistillRun
from mainspring.train.distill.student import empty_student, writer_config
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Marginal, Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import Gguf, read_gguf
from mainspring.train.looks import put
from mainspring.train.packed import blamed, gguf_file
from mainspring.train.skeleton import tokenizer_text, whole, write_skeleton
from mainspring.train.splits import TRAIN
from mainspring.train.updates import Say, remember

Start = tuple[tuple[Turn, ...], int]
BASIS_CHATS, SETTLE_CHATS = 256, 16  # chats that directions, and the spread of logits, come from
MOST_HELD = 1000  # held-out prompts asked, of a split


def train_writer(
    config: DistillConfig, *, device: str = "auto", stop_after_s: float = math.inf, say: Say = print
) -> Path | None:
    """The model's folder, None where the time was up first: the same call goes on from there."""
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    ends = time.monotonic() + stop_after_s
    remember(config, config.out)
    if (folder := config.out / "model").is_dir():
        say(f"model in {folder}, finished before")
        return folder
    source = open_teacher(config)
    skeleton = write_folder(config)
    with blamed("teacher"):
        vocabulary = Vocabulary.of(source, Tokenizer.load(skeleton, fast=False))
        hidden = hidden_turns(config, source)
        teacher = Teacher(source)
    if config.shape.hidden_size > teacher.shape.hidden_size:
        most = teacher.shape.hidden_size
        raise InputError(f"{config.shape.hidden_size} is more than the teacher's {most}", param="shape.hidden_size")
    if chosen == "cuda":
        teacher = teacher.to(chosen, torch.bfloat16)
    if not write_texts(config, source, teacher, vocabulary, hidden, ends, say):
        say("stopped; the same command goes on from there")
        return None
    corpus = read_texts(config, vocabulary, hidden)
    run = make_run(config, source, teacher, vocabulary, corpus, chosen, say)
    if run.resume():
        say(f"going on from step {run.place.step}")
    done = run.train(say=say, stop_after_s=ends - time.monotonic())
    draw_curve(config.out / "log.jsonl", config.out / "curve.png", right="minus divergence, held out")
    if not done:
        folder = finish(config, run, skeleton, "partial")
        say(f"stopped at step {run.place.step}, the model so far in {folder}; the same command goes on from there")
        return None
    folder = finish(config, run, skeleton)
    say(f"model in {folder}")
    return folder


def open_teacher(config: DistillConfig) -> Gguf:
    """InputError where there is none, or none that can teach."""
    with blamed("teacher"):
        return read_gguf(gguf_file(config.teacher, config.out / "teacher.gguf"))


def write_folder(config: DistillConfig) -> Path:
    folder = config.out / "skeleton"
    if not folder.is_dir():
        with whole(folder) as aside:
            write_skeleton(aside, tokenizer_text(config.sources))
            (aside / "scoring.json").unlink()  # it was taught to answer, not to judge
    return folder


def hidden_turns(config: DistillConfig, source: Gguf) -> tuple[Turn, ...]:
    if not config.writing.system:
        return ()
    return (Turn("system", teacher_tokenizer(source).encode_text(config.writing.system).tolist()),)


def starts(config: DistillConfig, source: Gguf) -> list[Start]:
    """What each chat begins with, in the order they are asked: nothing, for a question of the teacher's own, or a
    prompt; held-out prompts once each."""
    writing = config.writing
    rng = np.random.default_rng([writing.seed, 0])
    found = prompts(config.sources, share=writing.share)
    held_texts = withheld(found)
    tokens = teacher_tokenizer(source).encode_texts([prompt.text for prompt in found])
    asked: dict[int, list[Start]] = {}
    for number in rng.permutation(len(found)).tolist():
        if found[number].split == TRAIN and bare(found[number].text) in held_texts:
            continue
        turn = Turn("user", tokens[number].tolist())
        asked.setdefault(found[number].split, []).append(((turn,), found[number].split))
    most = min(MOST_HELD, writing.chats // 8)
    held = [start for split, many in asked.items() if split != TRAIN for start in many[:most]]
    left = max(1, writing.chats - len(held))
    own = round(left * writing.invented)
    known = asked.get(TRAIN, [])
    if not known:
        raise ValueError("the sources give no prompt to train on: raise writing.share")
    whole = [*held, *[known[i % len(known)] for i in range(left - own)], *[((), TRAIN)] * own]
    return [whole[i] for i in rng.permutation(len(whole)).tolist()]


def write_texts(
    config: DistillConfig, source: Gguf, teacher: Teacher, vocabulary: Vocabulary, hidden: tuple[Turn, ...],
    ends: float, say: Say,
) -> bool:  # fmt: skip
    """The shards that are not there yet; False where the time was up."""
    folder, size = config.out / "texts", config.writing.per_shard
    folder.mkdir(exist_ok=True)
    shards = -(-config.writing.chats // size)
    missing = [n for n in range(shards) if not (folder / f"{n:03d}.npz").is_file()]
    if not missing:
        return True
    asked, words = starts(config, source), teacher_tokenizer(source)
    held = withheld(prompts(config.sources, share=config.writing.share))
    streams = Streams(teacher, vocabulary, config.writing, hidden)
    for number in missing:
        if time.monotonic() > ends:
            return False
        began, before = time.monotonic(), streams.written
        mine = asked[number * size : (number + 1) * size]
        chats = streams.write(mine, config.writing.seed * 1_000_003 + number)
        chats = [chat for chat in chats if chat.split != TRAIN or not asks(chat, held, words)]
        save_chats(chats, folder / f"{number:03d}.npz")
        rate = (streams.written - before) / (time.monotonic() - began)
        say(f"texts {number + 1} of {shards}: {len(chats):,} of {len(mine):,} kept, {rate:,.0f} tokens/s")
    return True


def asks(chat: Chat, held: frozenset[str], words: Tokenizer) -> bool:
    """Whether one of the user's turns, which the teacher may have made up, is a held-out prompt."""
    return any(turn.role == "user" and bare(words.decode(turn.tokens)) in held for turn in chat.turns)


def read_texts(config: DistillConfig, vocabulary: Vocabulary, hidden: tuple[Turn, ...]) -> Corpus:
    shards = -(-config.writing.chats // config.writing.per_shard)
    chats = [chat for n in range(shards) for chat in load_chats(config.out / "texts" / f"{n:03d}.npz")]
    corpus = Corpus.of(chats, vocabulary, hidden, config.training.view_tokens)
    if not (corpus.split == TRAIN).any():
        raise ValueError(f"{config.out / 'texts'} holds no chat to train on: the teacher's replies were all left out")
    return corpus


def make_run(
    config: DistillConfig, source: Gguf, teacher: Teacher, vocabulary: Vocabulary, corpus: Corpus, device: str, say: Say
) -> DistillRun:
    """The run at its start: the student from the teacher, the lessons."""
    taps = tapped_layers(teacher.shape.layers, config.shape.num_hidden_layers)
    teacher = teacher.to(device)
    basis, kept = _basis(config, teacher, corpus, taps)
    shape = writer_config(config.shape, teacher.shape, vocabulary.size, vocabulary.end)
    student = empty_student(shape, config.training.seed)
    start_from(student, Teacher(source), vocabulary, basis, kept, layers=config.shape.from_layers)
    first = corpus.arrays(np.flatnonzero(corpus.split == TRAIN)[:SETTLE_CHATS], 1.0)
    settle(student, torch.from_numpy(first.student), torch.from_numpy(first.lengths))
    lessons = Lessons(teacher, Marginal(vocabulary).to(device), basis.to(device), tuple(taps))
    count = sum(p.numel() for p in student.parameters())
    trained = int((corpus.split == TRAIN).sum())
    tokens = int(corpus.aligned.student.lengths[corpus.split == TRAIN].sum())
    say(
        f"{count:,} parameters on {device}, from {kept:.0%} of the teacher's states; "
        f"{trained:,} chats, {tokens:,} tokens"
    )
    return DistillRun(student, lessons, corpus, config.training, config.out, device)


def _basis(config: DistillConfig, teacher: Teacher, corpus: Corpus, taps: list[int]) -> tuple[Tensor, float]:
    path = config.out / "basis.pt"
    if not path.is_file():
        chosen = np.flatnonzero(corpus.split == TRAIN)[:BASIS_CHATS]
        lengths = corpus.aligned.teacher.lengths[chosen]
        tokens = corpus.aligned.teacher.padded(chosen, int(lengths.max()), 0)
        where = teacher.embed.device
        basis, kept = principal(
            teacher, torch.from_numpy(tokens).to(where), torch.from_numpy(lengths).to(where),
            config.shape.hidden_size, taps,
        )  # fmt: skip
        put({"basis": basis, "kept": kept}, path)
    found = torch.load(path, weights_only=True)
    return found["basis"], found["kept"]


def finish(config: DistillConfig, run: DistillRun, skeleton: Path, name: str = "model") -> Path:
    """The averaged (or best) weights as a model folder, with what the held-out texts say of them. The run is of no use
    afterwards."""
    folder = config.out / name
    if config.training.keep_best:
        run.take_best()
    run.load_average()
    marks = run.final_marks()
    model, mtp = run.student.cpu().fold()
    (config.out / f"{name}.json").write_text(json.dumps(marks, indent=2) + "\n", "utf-8")
    with whole(folder) as aside:
        shutil.copytree(skeleton, aside, dirs_exist_ok=True)
        save_hybrid(model, aside, mtp)
        if config.training.quantise:
            quantise_folder(aside, 4)
        settings = {"do_sample": True, "temperature": 0.7, "top_p": 0.95, "eos_token_id": [run.corpus.end]}
        (aside / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    return folder
