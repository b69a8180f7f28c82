"""From a configuration to a node that can join: engine, bundle, model key, cost. Blocking: run in the device thread."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mainspring.backend import Backend, open_backend
from mainspring.backend.null import NullBackend
from mainspring.backend.throttled import ThrottledBackend
from mainspring.engine import Engine
from mainspring.engine.prefix_disk import PrefixDisk
from mainspring.errors import InputError, ModelError, TokenizerError
from mainspring.hub import model_folder
from mainspring.node.config import NodeConfig
from mainspring.node.constants import Constants, constants_key, load, save
from mainspring.node.generating import Generating
from mainspring.node.offering import Offering, limits_of, model_key, state_size
from mainspring.node.probe import CANARY, Probe, Shape, believable
from mainspring.node.runner import Clock, execute
from mainspring.node.tasks import Task
from mainspring.node.writer import Grammars
from mainspring.text import grammar
from mainspring.text.bundle import Bundle
from mainspring.version import __version__

log = logging.getLogger(__name__)
CHECKS = (Shape(500, 1), Shape(500, 16), Shape(64, 1), Shape(64, 8))


@dataclass
class Opened:
    """`key` is what measured constants are kept under."""

    engine: Engine
    offering: Offering
    probe: Probe
    key: str
    kept: bool = False
    generating: Generating | None = None

    def close(self) -> None:
        """In the device thread, once it has nothing more to do."""
        if self.generating is not None:
            self.generating.writer.close()

    def keep_constants(self, folder: Path | None) -> None:
        """Once the answer is whole; nothing before and after."""
        if self.kept or folder is None or self.probe.provisional or self.probe.cost is None:
            return
        self.kept = True
        save(folder, Constants(self.key, self.probe.cost, self.probe.anchors))


def open_node(config: NodeConfig, clock: Clock) -> Opened:
    """ModelError (and what is beneath it) where the folder is at fault."""
    folder = model_folder(config.model)
    bundle = Bundle.load(folder)
    backend = _backend(folder, config)
    if bundle.tokenizer.vocab_size > backend.limits.vocab_size:
        raise TokenizerError("the tokenizer has more ids than the weights: they do not belong together")
    cache_bytes = backend.limits.kept_bytes if config.cache_mib is None else config.cache_mib << 20
    engine = Engine(backend, cache_bytes=cache_bytes)
    generating = Generating.of(backend, config, bundle, clock, grammars_of(bundle), only_scores=is_scorer(folder))
    slots = 0 if generating is None else generating.writing.slots
    limits = limits_of(backend, cache_bytes, state_size(backend), slots, config.stream_tokens)
    probe = Probe(limits.context_tokens, limits.pass_tokens, limits.view_tokens, config.probe_s, config.probe_pass_s)
    key = model_key(folder, bundle.hash, config.state_folder)
    offering = Offering(
        model=key, alias=config.alias or folder.resolve().name, bundle=bundle.hash, packed=bundle.pack(),
        backend=backend, limits=limits, probe=probe, labels=config.labels,
        round_fit=None if generating is None else generating.fit,
    )  # fmt: skip
    kept_under = constants_key(model=key, device=backend.device, numerics=backend.numerics, build=_build())
    opened = Opened(engine, offering, probe, kept_under, generating=generating)
    _spill(opened, config)
    if not _adopt(opened, config.state_folder, clock):
        measure(engine, probe, clock)
    cost = probe.cost
    if cost is None:
        raise ModelError("no pass could be measured on this device, so the node has nothing to offer")
    log.info(
        "a pass takes %.2f ms + %.2f us a view token + %.2f us a branch row%s", 1e3 * cost.c0, 1e6 * cost.c1,
        1e6 * cost.c2, " (provisional)" if probe.provisional else "",
    )  # fmt: skip
    return opened


def _spill(opened: Opened, config: NodeConfig) -> None:
    """InputError where a disk is wanted and can't be had: who asks for one counts on it."""
    if not config.prefix_disk:
        return
    if opened.generating is None:
        raise InputError("no streams are served here, so there are no checkpoints of prompts", param="prefix_disk")
    folder, quota = Path(config.prefix_disk).expanduser(), int(config.prefix_disk_gb * 1e9)
    opened.generating.writer.spill_to(PrefixDisk(folder, quota, opened.key))


def measure(engine: Engine, probe: Probe, clock: Clock) -> None:
    """The first answer, within the probe's budget but for the pass that exceeds it."""
    began_s = clock()
    while (shape := probe.next_first(clock() - began_s)) is not None:
        _run(engine, shape, clock, partial(probe.note, shape), probe)


def _adopt(opened: Opened, folder: Path | None, clock: Clock) -> bool:
    """Constants of an earlier life, if they are still true."""
    found = None if folder is None else load(folder, opened.key)
    if found is None:
        return False
    probe = opened.probe
    measured: list[tuple[Shape, float]] = []
    shapes = [shape for shape in CHECKS if shape.view + 64 <= probe.context_tokens and shape.view <= probe.view_tokens]
    for shape in (CANARY, *shapes[:2]):
        outcome = execute(opened.engine, Task(shape.segments(opened.engine.backend.limits.vocab_size)), clock)
        if outcome.error is None:
            measured.append((shape, outcome.seconds))
    if len(measured) < 2 or not believable(found.cost, measured[1:]):
        log.warning("cost constants of an earlier start are off by more than they may be: measuring again")
        return False
    probe.adopt(found.cost, found.anchors)
    opened.kept = True
    return True


def _run(engine: Engine, shape: Shape, clock: Clock, note: Callable[[float], None], probe: Probe) -> None:
    outcome = execute(engine, Task(shape.segments(engine.backend.limits.vocab_size)), clock)
    if outcome.error is None:
        note(outcome.seconds)
    else:
        log.warning("a pass of %d view tokens and %d branches failed: %s", shape.view, shape.branches,
                    type(outcome.error).__name__)  # fmt: skip
        probe.failed(shape)


def is_scorer(folder: Path) -> bool:
    """Trained to answer questions and not to write: it says how to ask them, and nothing of generation. Its tokenizer
    may well name an end token."""
    return (folder / "scoring.json").is_file() and not (folder / "generation_config.json").is_file()


def grammars_of(bundle: Bundle) -> Grammars | None:
    """None where the extra that follows grammars is not installed."""
    if not grammar.is_installed() or not bundle.eos_ids:
        return None
    return grammar.Grammars(bundle.tokenizer, bundle.eos_ids).grammar


def _backend(folder: Path, config: NodeConfig) -> Backend:
    backend = open_backend(folder, config.device, threads=config.threads)
    if isinstance(backend, NullBackend):
        backend.cost_seconds, backend.round_seconds = config.null_cost, config.null_round
        backend.acceptance = config.null_acceptance
    return backend if config.throttle == 1.0 else ThrottledBackend(backend, config.throttle)


def _build() -> str:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return f"{__version__} torch {torch}"
