"""A fault fails its own stream. Others go on with the same text, and the process with them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mainspring.backend.generation import RoundResult, SlotRound
from mainspring.backend.torch_slots import network
from mainspring.backend.torch_slots.network import Network
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.engine.stream_records import SlotsFullError, StreamFailedError, StreamSpec
from mainspring.errors import DeviceError
from support.models import tiny_model
from support.slots import plain, prompt, tiny_slots
from support.streams import Told, run, tiny_streams, written

PROMPT = prompt(1, 150)
PLAIN = plain(PROMPT, 60)
SPEC = StreamSpec(id="a", tokens=PROMPT, max_tokens=40, drafter="ngram")
OTHER = replace(SPEC, id="b", tokens=prompt(2, 90))
OTHERS = plain(OTHER.tokens, 40)


class BoomError(RuntimeError):
    pass


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_round_that_raises_fails_who_raised(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the forward, after some layers have run for all; alone, the others go on as if nothing was."""
    streams = tiny_streams()
    streams.open(SPEC)
    streams.open(OTHER)
    streams.open(replace(SPEC, id="bad", tokens=prompt(5, 70)))
    told = Told()
    for _ in range(3 + at):
        told.hear(streams.step())
    bad = streams.backend._slots[streams._streams["bad"].slot]
    before, real = len(told.tokens["bad"]), network.attention_round

    def attention_round(product: Any, mixer: Any, x: Any, places: Any, *rest: Any) -> Any:
        if any(place.slot is bad for place in places):
            raise BoomError
        return real(product, mixer, x, places, *rest)

    monkeypatch.setattr(network, "attention_round", attention_round)
    told.hear(streams.step())
    assert told.ended["bad"].finish == "failed"
    assert "BoomError" in told.ended["bad"].message
    assert len(told.tokens["bad"]) == before
    while streams.live:
        told.hear(streams.step())
    assert told.tokens["a"] == PLAIN[:40]
    assert told.tokens["b"] == OTHERS
    assert streams.stats.failed == 1
    monkeypatch.undo()
    assert written(streams, SPEC) == PLAIN[:40]


def test_a_round_that_raises_once_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = tiny_streams(tiny_slots(mtp=True))
    specs = [replace(SPEC, drafter="mtp"), OTHER]
    told, fired = Told(), []
    for spec in specs:
        streams.open(spec)
    real = TorchSlots._commit

    def once(self: TorchSlots, parts: tuple[SlotRound, ...], *rest: Any) -> Any:
        found = forward(self, parts, *rest)
        if len(parts) == 2 and len(fired) < 3:
            fired.append(1)
            raise BoomError
        return found

    forward = TorchSlots._forward
    monkeypatch.setattr(TorchSlots, "_forward", once)
    while streams.live:
        told.hear(streams.step())
    assert TorchSlots._commit is real
    assert len(fired) == 3
    assert told.tokens["a"] == PLAIN[:40]
    assert told.tokens["b"] == OTHERS


def test_numbers_that_are_none_fail_their_stream() -> None:
    model = tiny_model(0)
    streams = tiny_streams(tiny_slots(model=model, packed=False))
    poison = min(set(range(300)) - {*PLAIN, *PROMPT.tolist(), *OTHERS, *OTHER.tokens.tolist()})
    model.embed.weight[poison] = np.nan
    bad = replace(SPEC, id="bad", tokens=np.array([1, 2, poison]))
    # Head and embedding are one matrix: only what is read is to be poisoned.
    streams.backend._network.head = tiny_head_of(model, poison)
    told = run(streams, SPEC, OTHER, bad)
    assert told.ended["bad"].finish == "failed"
    assert "finite" in told.ended["bad"].message
    assert told.tokens["a"] == PLAIN[:40]
    assert told.tokens["b"] == OTHERS


def tiny_head_of(model: Any, without: int) -> Any:
    weight = model.embed.weight.clone()
    weight[without] = 0.0
    return lambda hidden: hidden @ weight.T


def test_a_prompt_that_fails_is_said_and_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = tiny_streams()
    streams.open(SPEC)
    streams.prefill("a")
    streams.open(OTHER)
    real = Network.piece

    def piece(*_: Any) -> Any:
        raise BoomError

    monkeypatch.setattr(Network, "piece", piece)
    with pytest.raises(StreamFailedError, match="BoomError"):
        streams.prefill("b")
    monkeypatch.setattr(Network, "piece", real)
    assert streams.live == ("a",)
    told = Told()
    while streams.live:
        told.hear(streams.step())
    assert told.tokens["a"] == PLAIN[:40]
    assert written(streams, OTHER) == OTHERS


def test_a_failing_prompt_comes_as_an_event_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def piece(*_: Any) -> Any:
        raise BoomError

    monkeypatch.setattr(Network, "piece", piece)
    told = run(tiny_streams(), SPEC)
    assert told.ended["a"].finish == "failed"
    assert told.tokens["a"] == []


class Only:
    """Allows the same few tokens everywhere; raises when asked for the round number `fails`."""

    def __init__(self, ids: Sequence[int], fails: int = -1, *, in_advance: bool = False) -> None:
        words = np.zeros(10, np.uint32)
        for token in ids:
            words[token // 32] |= np.uint32(1 << token % 32)
        self.words, self.fails, self.in_advance, self.asked = words, fails, in_advance, 0
        self.seen: list[int] = []

    def masks(self, drafts: Sequence[int]) -> NDArray[np.uint32]:
        self.asked += 1
        if self.asked == self.fails and not self.in_advance:
            raise BoomError
        return np.tile(self.words, (1 + len(drafts), 1))

    def advance(self, tokens: Sequence[int]) -> None:
        if self.asked == self.fails:
            raise BoomError
        self.seen.extend(tokens)


def test_a_constraint_holds_with_drafts() -> None:
    allowed = (3, 40, 41, 77, 200)
    texts = []
    for drafter in ("ngram", "none"):
        grammar = Only(allowed)
        text = written(tiny_streams(), replace(SPEC, constraint=grammar, drafter=drafter, draft_tokens=5))
        assert set(text) <= set(allowed)
        assert grammar.seen == text
        texts.append(text)
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 1


def test_a_constraint_does_not_hear_of_stops() -> None:
    grammar = Only((3, 40, 41, 77, 200))
    text = written(tiny_streams(), replace(SPEC, constraint=grammar, stop_ids=(3, 40, 41, 77, 200)))
    assert len(text) == 1
    assert grammar.seen == []


@pytest.mark.parametrize("in_advance", [True, False])
def test_a_constraint_that_raises_fails_its_stream(in_advance: bool) -> None:
    told = run(tiny_streams(), replace(SPEC, id="bad", constraint=Only((3, 40), 4, in_advance=in_advance)), OTHER)
    assert told.ended["bad"].finish == "failed"
    assert len(told.tokens["bad"]) == 3
    assert told.tokens["b"] == OTHERS


def test_a_constraint_that_allows_nothing_fails_its_stream() -> None:
    told = run(tiny_streams(), replace(SPEC, id="bad", constraint=Only(())), OTHER)
    assert told.ended["bad"].finish == "failed"
    assert "allowed" in told.ended["bad"].message
    assert told.tokens["b"] == OTHERS


def test_rounds_are_one_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the company, drafts and drafters: one round, one answer."""
    calls: list[int] = []
    real = TorchSlots.round

    def counted(self: TorchSlots, parts: tuple[SlotRound, ...]) -> RoundResult:
        calls.append(len(parts))
        return real(self, parts)

    monkeypatch.setattr(TorchSlots, "round", counted)
    streams = tiny_streams(tiny_slots(mtp=True))
    run(streams, SPEC, replace(OTHER, drafter="mtp", draft_tokens=3), replace(SPEC, id="c", drafter="none"))
    assert len(calls) == streams.stats.rounds
    assert max(calls) == 3


class Clinging(TorchSlots):
    """Does not let go of these slots; of those in `late` it says so, but does."""

    kept: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()

    def close_slot(self, slot: int) -> None:
        if slot in self.kept:
            raise BoomError
        super().close_slot(slot)
        if slot in self.late:
            raise BoomError


def clinging() -> tuple[Clinging, Any]:
    streams = tiny_streams(tiny_slots(2))
    backend: Any = streams.backend
    backend.__class__ = Clinging
    return backend, streams


@pytest.mark.parametrize("how", ["cancel", "end", "prompt"])
def test_a_slot_that_can_not_be_let_go_of_is_retired_and_comes_back(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend, streams = clinging()
    streams.open(SPEC)
    streams.open(OTHER)
    backend.kept = frozenset({0})
    told = Told()
    if how == "cancel":
        assert streams.cancel("a").finish == "cancelled"
    elif how == "prompt":
        monkeypatch.setattr(Network, "piece", lambda *_, **__: 1 / 0)
        with pytest.raises(StreamFailedError):
            streams.prefill("a")
        monkeypatch.undo()
    while streams.live:
        told.hear(streams.step())
    assert told.tokens["b"] == OTHERS
    assert (streams.free_slots, streams.retired_slots) == (1, 1)
    assert "slot 0 of 2 can't be let go of (BoomError)" in caplog.text
    streams.open(OTHER)
    with pytest.raises(SlotsFullError, match="1 of them retired"):
        streams.open(SPEC)
    backend.kept = frozenset()
    assert written(streams, SPEC) == PLAIN[:40]
    assert (streams.free_slots, streams.retired_slots) == (2, 0)


def test_a_device_that_keeps_all_its_slots_says_so() -> None:
    backend, streams = clinging()
    backend.kept = frozenset({0, 1})
    streams.open(SPEC)
    streams.open(OTHER)
    streams.close()
    assert streams.free_slots == 0
    with pytest.raises(DeviceError, match="none of its 2 slots"):
        streams.open(SPEC)


def test_a_slot_that_was_let_go_of_with_a_fault_is_found_again() -> None:
    """To close it again would raise for ever: it is free when the device hands it out."""
    backend, streams = clinging()
    backend.late = frozenset({0})
    streams.open(SPEC)
    streams.cancel("a")
    assert streams.retired_slots == 1
    backend.late = frozenset()
    assert written(streams, SPEC) == PLAIN[:40]
    assert (streams.free_slots, streams.retired_slots) == (2, 0)


def test_a_fault_while_a_stream_is_opened_loses_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    _, streams = clinging()
    monkeypatch.setattr(type(streams), "_restore", lambda *_: 1 / 0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            streams.open(SPEC)
    assert (streams.free_slots, streams.retired_slots) == (2, 0)
