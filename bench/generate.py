"""Generation on the CPU at the 53.8M shape, random weights, in process.

decode    tokens/s after a prompt: the plain loop, rounds without drafts, rounds whose drafts are right with a given
          chance (the reply is known, so a draft is its next token or a wrong one; the block length is chosen as in
          service), and all slots at once. The floor of one row a round is reading every matrix once.
prefill   prompt tokens/s: what scoring's scan takes, and a prompt of a stream.
first     first tokens/s (1,000 over that is the time to it in ms): cold, a follow-up turn, an exact repeat, one whose
          checkpoint is on disk alone (in the system's cache, most likely).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import torch

from mainspring.backend.generation import SlotLimits, SlotRound, TokenRule
from mainspring.backend.heap import keep_freed_memory
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.engine.drafting import DraftLength
from mainspring.engine.prefix_disk import PrefixDisk
from mainspring.engine.stream_records import StreamSpec
from mainspring.engine.streams import Streams
from mainspring.model.config import parse_config
from mainspring.model.hybrid import Hybrid
from mainspring.model.saving import initialise
from mainspring.plain_loop import PlainLoop
from shapes import SMALL_HYBRID


@click.command(help=__doc__)
@click.option("--case", type=click.Choice(["decode", "prefill", "first"]), default="decode", show_default=True)
@click.option("--prompt", type=click.IntRange(1), default=1000, show_default=True, help="Prompt tokens.")
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True, help="Tokens of a reply.")
@click.option("--right", type=click.FloatRange(0, 1), default=0.7, show_default=True, help="Chance of a right draft.")
@click.option("--slots", type=click.IntRange(1), default=4, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@shared_options
def main(
    options: Options, publish: Publish, case: str, prompt: int, tokens: int, right: float, slots: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()
    shape = parse_config(SMALL_HYBRID)
    plain = PlainLoop(initialise(Hybrid(shape), seed=0).eval().requires_grad_(False))
    backend = TorchBackend(initialise(Hybrid(shape), seed=0).eval().requires_grad_(False))
    ids = np.random.default_rng(0).integers(0, SMALL_HYBRID["vocab_size"], prompt)
    device = backend.generation(SlotLimits(slots, 8))
    if case == "decode":
        arms = list(decoding(plain, device, ids, tokens, right))
        floor = sum(p.numel() for p in plain.model.parameters()) * 4 / 1e6
        title = f"Decoding {tokens} tokens after {prompt}; {floor:.0f} MB of matrices a round"
        publish(measure(arms, options, title=title, unit="tokens"))
    elif case == "prefill":
        arms = list(prefilling(backend, device, ids))
        publish(measure(arms, options, title=f"Prefill of {prompt} tokens", unit="tokens"))
    else:
        with TemporaryDirectory() as folder:
            arms = list(first_tokens(device, ids, Path(folder)))
            publish(measure(arms, options, title=f"First token after {prompt} tokens", unit="first tokens"))


def decoding(plain: PlainLoop, device: TorchSlots, ids: np.ndarray, count: int, right: float) -> Iterator[Arm]:
    """The prompt is scanned in `setup`, untimed; in the plain loop its logits are asked for."""
    state: list[object] = []

    def ready() -> None:
        made = plain.model.new_state(len(ids) + count)
        state[:] = [made, plain.advance(made, ids)]

    def one_by_one() -> float:
        made, logits = state
        for _ in range(count):
            logits = plain.advance(made, np.array([int(logits.argmax())]))  # type: ignore[attr-defined,arg-type]
        return count

    yield Arm("plain loop", one_by_one, setup=ready)
    opened: list[int] = []
    checkpoint = scanned(device, ids)
    known = reply(device, checkpoint, ids, count + 8)
    length, chance = DraftLength(device.limits.block_rows - 1), np.random.default_rng(1)

    def restore(slots: int) -> Callable[[], None]:
        def setup() -> None:
            while opened:
                device.close_slot(opened.pop())
            for _ in range(slots):
                opened.append(device.open_slot(drafting=False, capacity=len(ids) + count + 8))
                device.restore(opened[-1], checkpoint)
                device.begin(opened[-1], TokenRule(), ids)

        return setup

    def rounds(drafting: bool) -> Callable[[], float]:
        def run() -> float:
            done = dict.fromkeys(opened, 0)
            while any(n < count for n in done.values()):
                n = length.choose(["oracle"]) if drafting else 0
                parts = tuple(part(slot, done[slot], n) for slot in opened if done[slot] < count)
                result = device.round(parts)
                for mine, found in zip(parts, result.slots, strict=True):
                    done[mine.slot] += len(found.tokens)
                    length.accepted("oracle", found.drafted, found.accepted)
                length.measured(result.seconds, result.rows, 0)
            return sum(done.values())

        return run

    def part(slot: int, at: int, n: int) -> SlotRound:
        anchor = known[at - 1] if at else -1
        drafts = tuple(t if chance.random() < right else (t + 1) % 1000 for t in known[at : at + n]) if at else ()
        return SlotRound(slot, anchor, count - at, drafts=drafts)

    yield Arm("rounds, no drafts", rounds(False), setup=restore(1))
    yield Arm(f"rounds, drafts right with {right:g}", rounds(True), setup=restore(1))
    yield Arm(f"{device.limits.slots} slots, no drafts", rounds(False), setup=restore(device.limits.slots))


def scanned(device: TorchSlots, ids: np.ndarray) -> int:
    """A checkpoint at the prompt's end."""
    slot = device.open_slot(drafting=False)
    device.prefill_slot(slot, ids)
    checkpoint = device.save(slot)
    device.close_slot(slot)
    return checkpoint


def reply(device: TorchSlots, checkpoint: int, ids: np.ndarray, count: int) -> list[int]:
    slot = device.open_slot(drafting=False)
    device.restore(slot, checkpoint)
    device.begin(slot, TokenRule(), ids)
    tokens: list[int] = []
    while len(tokens) < count:
        part = SlotRound(slot, tokens[-1] if tokens else -1, 1)
        tokens += device.round((part,)).slots[0].tokens
    device.close_slot(slot)
    return tokens


def prefilling(backend: TorchBackend, device: TorchSlots, ids: np.ndarray) -> Iterator[Arm]:
    def scoring() -> float:
        backend.release(backend.prefill(ids))
        return len(ids)

    def stream() -> float:
        slot = device.open_slot(drafting=False, capacity=len(ids))
        device.prefill_slot(slot, ids)
        device.close_slot(slot)
        return len(ids)

    yield Arm("a view of scoring", scoring)
    yield Arm("a stream's prompt", stream)


def first_tokens(device: TorchSlots, ids: np.ndarray, folder: Path) -> Iterator[Arm]:
    kept, none = Streams(device), Streams(device, cache_bytes=0)
    numbers = np.random.default_rng(5)

    def run(streams: Streams, tokens: np.ndarray) -> float:
        streams.open(StreamSpec(id="x", tokens=tokens, max_tokens=9, drafter="none"))
        while not streams.step():
            pass
        streams.cancel("x")
        return 1

    def turn() -> np.ndarray:
        return np.concatenate([ids, numbers.integers(0, 1000, 50)])

    run(kept, ids)
    yield Arm("cold", lambda: run(none, ids))
    yield Arm("follow-up of 50 tokens", lambda: run(kept, turn()))
    yield Arm("exact repeat", lambda: run(kept, ids))
    stored = Streams(device)
    stored.spill_to(PrefixDisk(folder, 1 << 30, "bench"))
    run(stored, ids)
    stored.prefixes.spill_all()
    yield Arm("exact repeat from disk", lambda: run(stored, ids), setup=stored.prefixes.clear)


if __name__ == "__main__":
    main()
