"""From a config to a finished model folder: prepare, train, fold, quantise, calibrate. Each stage is kept in the run
folder and not done again.

    out/skeleton     tokenizer, template, scoring.json
    out/table.safetensors   what embeddings start from, where the config names a source of it
    out/data.npz     arrays; calibration.jsonl, test.jsonl: the held-out rows as text
    out/checkpoint.pt, best.pt, log.jsonl, curve.png
    out/model        the trained model
"""

import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mainspring.model.loading import load_hybrid
from mainspring.model.quantised import quantise_folder
from mainspring.model.saving import save_hybrid
from mainspring.text.bundle import Bundle
from mainspring.text.probability import Calibration
from mainspring.train.arrays import TrainingData
from mainspring.train.calibrate import fit
from mainspring.train.config import Config
from mainspring.train.curve import draw_curve
from mainspring.train.dataset import examples, prepare
from mainspring.train.familiarity import familiarity_of
from mainspring.train.labelled import prepare_labelled
from mainspring.train.loop import Run
from mainspring.train.parameters import Trainable, add_lora, config_of, fresh
from mainspring.train.skeleton import VIEW_TOKENS, tokenizer_text, whole, write_scoring, write_skeleton
from mainspring.train.smollm2 import load_table
from mainspring.train.splits import CALIBRATION
from mainspring.train.updates import remember

Say = Callable[[str], None]


def train_scorer(
    config: Config, *, device: str = "auto", stop_after_s: float = math.inf, say: Say = print
) -> Path | None:
    """The trained model's folder, None where the time was up first: the same call goes on from there."""
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    started = time.monotonic()
    remember(config, config.out)
    skeleton = _skeleton(config)
    data = _data(config, skeleton, say)
    trained = _trainable(config, skeleton, data)
    run = Run(trained, data, config.training, config.out, chosen)
    if run.resume():
        say(f"going on from step {run.place.step}")
    count = sum(p.numel() for p in run.parameters.values())
    say(f"{count:,} parameters trained on {chosen}, {len(run.batches.views):,} views, {len(run.batches.rows):,} rows")
    done = run.train(say=say, stop_after_s=stop_after_s - (time.monotonic() - started))
    draw_curve(config.out / "log.jsonl", config.out / "curve.png")
    if not done:
        say(f"stopped at step {run.place.step}; the same command goes on from there")
        return None
    folder = _finish(config, run, skeleton, data, say)
    say(f"model in {folder}")
    return folder


def _skeleton(config: Config) -> Path:
    folder = config.out / "skeleton"
    if config.base is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in sorted(config.base.iterdir()):
            if entry.suffix in (".json", ".jinja") and not entry.name.endswith(".index.json"):
                shutil.copyfile(entry, folder / entry.name)
    elif not folder.is_dir():
        with whole(folder) as aside:
            write_skeleton(aside, tokenizer_text(config.sources))
    return folder


def _data(config: Config, skeleton: Path, say: Say) -> TrainingData:
    path = config.out / "data.npz"
    if not path.is_file():
        bundle, limit = Bundle.load(skeleton), config.training.view_tokens
        if config.data:
            return prepare_labelled(bundle, config.data, config.out, limit=limit, say=say)
        found = examples(config.sources, share=config.training.share)
        return prepare(bundle, found, config.out, limit=limit, progress=say)
    return TrainingData.load(path)


def _trainable(config: Config, skeleton: Path, data: TrainingData) -> Trainable:
    torch.manual_seed(config.training.seed)
    labels = [int(i) for i in data.label_ids]
    if config.base is not None:
        model = load_hybrid(config.base).requires_grad_(config.tune == "all")
        if config.tune == "lora":
            add_lora(model, config.training.rank)
        if not model.config.tie_word_embeddings:
            model.head.requires_grad_(False)
        model.norm.requires_grad_(True)
        return Trainable(model, labels)
    bundle = Bundle.load(skeleton)
    table = load_table(config.table, config.out, bundle.tokenizer)
    control = sorted(bundle.tokenizer.control.values())
    shape = config_of(config.shape, len(table), control[0], VIEW_TOKENS + 1024)
    free = list(dict.fromkeys([*control, *labels]))
    seed = config.training.seed
    model = fresh(shape, seed, config.shape.final_scale)
    return Trainable(model, free, table, std=config.shape.embedding_std, seed=seed)


def _finish(config: Config, run: Run, skeleton: Path, data: TrainingData, say: Say = print) -> Path:
    folder = config.out / "model"
    if config.training.keep_best:
        run.take_best()
    elif run.early:
        run.mix_early(say=say)
    with whole(folder) as aside:
        shutil.copytree(skeleton, aside, dirs_exist_ok=True)
        _calibrate(aside, run, data)
        run.load_average()
        save_hybrid(run.trained.cpu().fold(), aside)
        if config.training.quantise:
            quantise_folder(aside)
        familiarity_of(data).save(aside)
    return folder


def _calibrate(folder: Path, run: Run, data: TrainingData) -> None:
    """Fitted on the calibration split; left alone where there is none."""
    chosen = np.flatnonzero(data.rows.split == CALIBRATION)
    if not len(chosen):
        return
    rows, logits = run.scores(chosen)
    fitted = fit(logits.astype(np.float64), data.rows.label[rows].astype(np.int64))
    store_calibration(folder, fitted)


def store_calibration(folder: Path, fitted: Calibration) -> None:
    path = folder / "scoring.json"
    scoring: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {"version": 1}
    values = {"temperature": round(fitted.temperature, 6), "bias": list(fitted.bias)}
    write_scoring(folder, scoring | {"calibration": scoring.get("calibration", {}) | {"behavior": values}})
