"""Streams from real processes on loopback: text, kills, hang-ups. Two nodes with null slots, one with real weights."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from mainspring.engine.sampling import Sampling
from mainspring.engine.streams import Streams
from mainspring.fleet.client import FleetClient
from mainspring.fleet.errors import RequestRefusedError
from mainspring.wire import messages as m
from support.machines import WAIT_S, Machine, until_nodes

NULL = {
    "device": '"null"', "null_cost": "[0.002, 1e-6, 1e-6]", "null_round": "[0.02, 0.001, 0.0]", "probe_s": "0.5",
    "state": '""', "slots": "4",
}  # fmt: skip
BOTH = {"ant", "bee"}
LINGER_S = 1.5
"""A closed connection's socket is there for a second more, to repeat its last words."""
Scene = Callable[[FleetClient], Awaitable[None]]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("fleet")) as made:
        made.router()
        for name in sorted(BOTH):
            made.node(name, **NULL)
        yield made


def play(machine: Machine, scene: Scene, wanted: Collection[str] = BOTH, linger_s: float = LINGER_S) -> None:
    async def whole() -> None:
        async with machine.client() as fleet:
            await until_nodes(fleet, lambda nodes: {n for n in nodes if nodes[n].state == "ready"} >= {*wanted})
            await scene(fleet)
        await asyncio.sleep(linger_s)

    asyncio.run(asyncio.wait_for(whole(), 3 * WAIT_S))


def ask(which: int, tokens: int = 40, prompt: int = 150, model: str = "tiny", **sampling: object) -> m.Submit:
    """Nothing stops it early, so that how much comes is known."""
    ids = np.random.default_rng(which).integers(0, 250, prompt)
    how = {"temperature": 0.0, "ignore_eos": True, "drafter": "none", **sampling}
    return m.Submit(
        request=f"g{which}", model=model, slo="batch", view_tokens=ids.astype("<u4").tobytes(), max_tokens=tokens,
        sampling=m.Sampling(**how),  # type: ignore[arg-type]
    )  # fmt: skip


async def generated(fleet: FleetClient, submit: m.Submit) -> tuple[list[int], m.LeaseEnded]:
    tokens: list[int] = []
    async for message in fleet.generate(submit):
        if isinstance(message, m.LeaseEnded):
            return tokens, message
        tokens += m.u32(message.tokens).tolist()
    raise AssertionError("no end")


def test_streams_of_two_processes_say_the_same(machine: Machine) -> None:
    async def scene(fleet: FleetClient) -> None:
        alone = [await generated(fleet, ask(seed)) for seed in range(3)]
        together = await asyncio.gather(*(generated(fleet, ask(seed)) for seed in (0, 1, 2, 0, 1, 2)))
        for index, (tokens, ended) in enumerate(together):
            assert tokens == alone[index % 3][0]
            assert (ended.finish, ended.tokens) == ("length", 40)
        assert {ended.node for _, ended in together} == BOTH
        status = await fleet.status()
        assert status.totals.streams == 0
        assert any(each.written is not None for each in status.nodes)

    play(machine, scene)


def test_a_node_killed_mid_stream_ends_its_streams_and_no_other(machine: Machine) -> None:
    async def scene(fleet: FleetClient) -> None:
        whole = [await generated(fleet, ask(seed, 100)) for seed in range(6)]
        heard: dict[int, list[int]] = {seed: [] for seed in range(6)}

        async def listen(seed: int) -> str:
            try:
                async for message in fleet.generate(ask(seed, 100)):
                    if isinstance(message, m.Rounds):
                        heard[seed] += m.u32(message.tokens).tolist()
            except RequestRefusedError as error:
                return error.code
            return "whole"

        tasks = [asyncio.create_task(listen(seed)) for seed in range(6)]
        async with asyncio.timeout(WAIT_S):
            while not all(heard.values()):
                await asyncio.sleep(0.01)
        there = (await until_nodes(fleet, lambda nodes: all(nodes[n].slots_used for n in BOTH)))["ant"].slots_used
        machine.processes["ant"].kill()
        ends = await asyncio.gather(*tasks)
        assert sorted(ends) == ["lease_lost"] * there + ["whole"] * (6 - there)
        for seed, end in enumerate(ends):
            expected = whole[seed][0]
            assert heard[seed] == (expected if end == "whole" else expected[: len(heard[seed])]), "once, in order"
        machine.processes["ant"].wait()
        machine.node("ant", **NULL)
        await until_nodes(fleet, lambda nodes: nodes.keys() >= BOTH and nodes["ant"].state == "ready")

    play(machine, scene)


def test_who_hangs_up_frees_the_slot(machine: Machine) -> None:
    async def scene(fleet: FleetClient) -> None:
        for seed in range(8):
            async with aclosing(fleet.generate(ask(seed, 5000))) as stream:
                async for message in stream:
                    assert isinstance(message, m.Rounds)
                    break
        await until_nodes(fleet, lambda nodes: not any(nodes[name].slots_used for name in BOTH))
        tokens, ended = await generated(fleet, ask(1, 5))
        assert len(tokens) == ended.tokens == 5

    play(machine, scene)


def test_a_node_told_to_end_finishes_its_streams(machine: Machine) -> None:
    async def scene(fleet: FleetClient) -> None:
        tasks = [asyncio.create_task(generated(fleet, ask(seed, 60))) for seed in range(6)]
        await until_nodes(fleet, lambda nodes: all(nodes[name].slots_used for name in BOTH))
        machine.processes["ant"].send_signal(signal.SIGTERM)
        for tokens, ended in await asyncio.gather(*tasks):
            assert (len(tokens), ended.finish) == (60, "length")
        assert await asyncio.to_thread(machine.processes["ant"].wait, WAIT_S) == 0
        machine.node("ant", **NULL)
        await until_nodes(fleet, lambda nodes: nodes.keys() >= BOTH and nodes["ant"].state == "ready")

    play(machine, scene)


def test_real_weights_write_over_the_fleet_what_they_write_here(tmp_path: Path) -> None:
    """The CPU's slots in another process, drafts by lookup among them. A fleet of its own: nodes that compute nothing
    would answer for the same weights."""
    from mainspring.backend import open_backend
    from mainspring.backend.generation import SlotLimits
    from mainspring.engine.stream_records import StreamSpec
    from mainspring.text.bundle import Bundle

    with Machine(tmp_path) as machine:
        machine.router()
        machine.node("cpu", device='"cpu"', threads="1", probe_s="0.5", state='""', slots="2")
        known = Bundle.load(machine.model).tokenizer.vocab_size
        streams = Streams(open_backend(machine.model, "cpu", threads=1).generation(SlotLimits(1, vocab_size=known)))

        def here(seed: int, sampling: Sampling) -> list[int]:
            ids = np.random.default_rng(seed).integers(0, 250, 150)
            streams.open(StreamSpec(id="x", tokens=ids, max_tokens=40, sampling=sampling, drafter="none"))
            out: list[int] = []
            while streams.live:
                out += [token for each in streams.step() for token in each.tokens]
            return out

        async def scene(fleet: FleetClient) -> None:
            for seed in range(2):
                greedy, ended = await generated(fleet, ask(seed, drafter="ngram"))
                assert greedy == here(seed, Sampling())
                assert ended.rounds <= 40
                drawn, _ = await generated(fleet, ask(seed, temperature=1.0, seed=5))
                assert drawn == here(seed, Sampling(temperature=1.0, seed=5))
                assert drawn != greedy

        play(machine, scene, {"cpu"}, linger_s=4.0)  # also of a first dial that was given up


def test_a_node_that_starts_again_finds_what_it_read_on_its_disk(tmp_path: Path) -> None:
    keys = {"device": '"cpu"', "threads": "1", "probe_s": "0.5", "state": '""', "slots": "2"}
    kept = tmp_path / "kept"
    flags = ("--prefix-disk", str(kept), "--prefix-disk-gb", "0.5")
    with Machine(tmp_path) as machine:
        machine.router()
        machine.node("cpu", *flags, **keys)

        async def scene(fleet: FleetClient) -> None:
            first, ended = await generated(fleet, ask(1))
            assert ended.cached_tokens == 0
            machine.processes["cpu"].send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(machine.processes["cpu"].wait, WAIT_S) == 0
            assert list(kept.glob("*.safetensors"))
            machine.node("cpu", *flags, **keys)
            await until_nodes(fleet, lambda nodes: "cpu" in nodes and nodes["cpu"].state == "ready")
            again, ended = await generated(fleet, ask(1))
            assert again == first
            assert ended.cached_tokens == 150

        play(machine, scene, {"cpu"}, linger_s=4.0)
