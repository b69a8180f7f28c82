"""Rounds on the device: the CPU's tokens and counts, states that rejected rows were never in, rounds launched ahead."""

import numpy as np
import pytest
import torch

from mainspring.backend.cuda_slots.runner import Runner
from mainspring.backend.generation import NO_TOKEN, SlotRound, TokenRule
from mainspring.engine.sampling import Sampling
from support.cuda_slots import on_cpu, on_device, one, opened, prompt, settled, whole_tiles, write

PROMPT = prompt()


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_tiles(monkeypatch)


@pytest.mark.parametrize("ahead", [True, False])
def test_drafts_of_the_head_and_text_are_those_of_the_cpu(ahead: bool) -> None:
    cpu, device = on_cpu(mtp=True, vocab=3), on_device(mtp=True, vocab=3, ahead=ahead)  # so few that drafts stand
    wanted, results = write(cpu, opened(cpu, PROMPT, drafting=True), 12, draft=3)
    text, found = write(device, opened(device, PROMPT, drafting=True), 12, draft=3)
    assert text == wanted
    counts = [(each.drafted, each.accepted, len(each.tokens)) for each in found]
    assert counts == [(each.drafted, each.accepted, len(each.tokens)) for each in results]
    assert any(accepted for _, accepted, _ in counts)


def test_drafts_change_no_bit() -> None:
    """Right and wrong drafts of the host's against none, in rounds of one shape."""
    device = on_device(deterministic=True)
    slot = opened(device, PROMPT)
    wanted, _ = write(device, slot, 9)
    alone = settled(device, slot)
    device.close_slot(slot)
    slot = opened(device, PROMPT)
    text = list(one(device, slot, most=9).tokens)
    for right, wrong in ((0, 2), (2, 1), (3, 0)):
        drafts = (*wanted[len(text) : len(text) + right], *[95] * wrong)
        text += one(device, slot, text[-1], 9 - len(text), drafts=drafts).tokens
    assert text == wanted
    after = settled(device, slot)
    assert all(map(torch.equal, after, alone))


def test_a_wrong_commit_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with one row more kept than stands."""
    device = on_device(deterministic=True)
    slot = opened(device, PROMPT)
    wanted, _ = write(device, slot, 3)
    alone = settled(device, slot)
    device.close_slot(slot)
    slot = opened(device, PROMPT)
    text = list(one(device, slot, most=3).tokens)
    text += one(device, slot, text[-1], 2, drafts=(95,)).tokens
    with torch.inference_mode():
        device._arrays.words[slot, 2] += 1
    text += one(device, slot, text[-1], 1).tokens
    assert not torch.equal(settled(device, slot)[0], alone[0])
    assert len(text) == len(wanted)


def test_streams_come_and_go_as_alone() -> None:
    """Greedy and sampled, with and without drafts, each equal to the CPU's of its own; a closed one's results, launched
    ahead, are nobody's."""
    cpu, device = on_cpu(mtp=True), on_device(mtp=True)
    kinds = [(TokenRule(), 2), (TokenRule(Sampling(0.9, top_k=20, top_p=0.9, seed=5).rule), 3),
             (TokenRule(Sampling(1.0, min_p=0.01, seed=6).rule, logprobs=1), 0)]  # fmt: skip
    wanted = []
    for n, (rule, draft) in enumerate(kinds):
        slot = opened(cpu, prompt(n), rule, drafting=draft > 0)
        wanted.append(write(cpu, slot, 6, draft=draft)[0])
        cpu.close_slot(slot)
    live: dict[int, tuple[int, list[int]]] = {}
    texts = {}
    waiting = list(range(len(kinds)))
    while waiting or live:
        if waiting:
            n = waiting.pop(0)
            live[opened(device, prompt(n), kinds[n][0], drafting=kinds[n][1] > 0)] = (n, [])
        parts = tuple(
            SlotRound(slot, text[-1] if text else NO_TOKEN, 6 - len(text), draft=kinds[n][1] if text else 0)
            for slot, (n, text) in live.items()
        )
        for part, result in zip(parts, device.round(parts).slots, strict=True):
            n, text = live[part.slot]
            text += result.tokens
            assert len(result.logprobs) == (len(result.tokens) if kinds[n][0].logprobs >= 0 else 0)
            if len(text) == 6:
                texts[n] = text
                device.close_slot(part.slot)
                del live[part.slot]
    assert [texts[n] for n in range(len(kinds))] == wanted


def test_an_outcome_that_waits_while_others_are_asked_for_stays_its_own() -> None:
    """One stream a call, as after a round that failed: each leaves a round ahead that nobody takes before its turn."""
    device = on_device(slots=4)
    slots = [opened(device, prompt(n)) for n in range(4)]
    texts: list[list[int]] = [[] for _ in slots]
    for _ in range(4):
        for slot, text in zip(slots, texts, strict=True):
            text += one(device, slot, text[-1] if text else NO_TOKEN, 9 - len(text)).tokens
    cpu = on_cpu(slots=1)
    for n, text in enumerate(texts):
        slot = opened(cpu, prompt(n))
        assert text == write(cpu, slot, 4)[0]
        cpu.close_slot(slot)


def test_rounds_are_launched_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[str] = []
    launch, take = Runner.launch, Runner._down

    def counted(self: Runner, *given: object) -> object:
        launches.append("launch")
        return launch(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "launch", counted)
    assert take
    device = on_device()
    slot = opened(device, PROMPT)
    text = list(one(device, slot, most=20).tokens)
    assert launches == []
    text += one(device, slot, text[-1], 19).tokens
    assert len(launches) == 2  # the one asked for, and the next
    text += one(device, slot, text[-1], 18).tokens
    assert len(launches) == 3  # taken, and the next
    text += one(device, slot, text[-1], 17, drafts=(3,)).tokens
    assert len(launches) == 4  # thrown away, and launched with the drafts; nothing ahead of a host that drafts
    again = on_device(ahead=False)
    assert text == write(again, opened(again, PROMPT), len(text))[0]


def test_what_was_thrown_away_was_never_there() -> None:
    """Ahead or not, the slot is the same bits; the head's drafts too."""
    states = []
    for ahead in (True, False):
        device = on_device(mtp=True, deterministic=True, ahead=ahead)
        slot = opened(device, PROMPT, drafting=True)
        text, drafted = list(one(device, slot, most=20).tokens), []
        for most, draft in ((15, 2), (30, 3), (7, 1), (4, 0)):
            result = one(device, slot, text[-1], most, draft=draft)
            text += result.tokens
            drafted.append((result.drafted, result.accepted))
        states.append((text, drafted, settled(device, slot)))
    assert states[0][:2] == states[1][:2]
    assert all(map(torch.equal, states[0][2], states[1][2]))


def test_checkpoints_hit_as_a_miss_and_a_repeat_runs_no_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_device(mtp=True)
    tokens = prompt(4, 70)
    slot = device.open_slot(drafting=True)
    (early,) = device.prefill_slot(slot, tokens, saves=(64,))
    whole = device.save(slot)
    device.begin(slot, TokenRule(), tokens)
    wanted, results = write(device, slot, 5, draft=2)
    sizes = [device.checkpoint_size(each) for each in (early, whole)]
    assert sizes[0].buffer == sizes[1].buffer
    assert sizes[1].own > sizes[0].own > 0
    assert device.position(slot) > 70
    other = device.open_slot(drafting=True)  # while the first still writes on the buffer
    device.restore(other, early)
    assert device.position(other) == 64
    device.prefill_slot(other, tokens[64:])
    device.begin(other, TokenRule(), tokens)
    assert write(device, other, 5, draft=2) == (wanted, results)
    device.close_slot(slot)
    device.close_slot(other)
    monkeypatch.setattr(device._trunk, "piece", None)
    repeat = device.open_slot(drafting=True)
    device.restore(repeat, whole)
    assert device._slots[repeat].buffer.number == sizes[1].buffer
    device.begin(repeat, TokenRule(), tokens)
    assert write(device, repeat, 5, draft=2) == (wanted, results)
    device.release(early)
    device.release(whole)


def test_masks_penalties_and_stops_are_the_cpu_s() -> None:
    cpu, device = on_cpu(), on_device()
    rule = Sampling(0.0, frequency_penalty=1.5, repetition_penalty=1.2, logit_bias=((9, 3.0),)).rule
    allowed = np.full((2, 3), 0x0F0F0F0F, np.uint32)
    ends = []
    for slots in (cpu, device):
        slot = opened(slots, PROMPT, TokenRule(rule, min_tokens=1))
        text = list(one(slots, slot, masks=allowed[:1]).tokens)
        for drafts, masks in (((), None), ((2, 3), None), ((8,), allowed)):
            text += one(slots, slot, text[-1], drafts=drafts, masks=masks).tokens
        slots.close_slot(slot)
        slot = opened(slots, PROMPT, TokenRule(stop_ids=frozenset(text[:1]), min_tokens=2, logprobs=2))
        results = [one(slots, slot)]
        results.append(one(slots, slot, results[0].tokens[-1]))
        ends.append((text, [each.tokens for each in results], [each.stopped for each in results]))
        logged = [each.logprobs[0] for each in results]
        ends[-1] = (*ends[-1], [[i for i, _ in each.others] for each in logged])
    assert ends[0] == ends[1]


def test_a_fault_is_one_slot_s() -> None:
    device = on_device()
    bad, good = opened(device, PROMPT), opened(device, PROMPT)
    with torch.inference_mode():
        device._arrays.first[bad, 5] = torch.nan
    found = device.round((SlotRound(bad, NO_TOKEN, 9), SlotRound(good, NO_TOKEN, 9))).slots
    assert found[0].fault == "logits are not finite"
    assert found[0].tokens == ()
    assert len(found[1].tokens) == 1
    none = np.zeros((1, 3), np.uint32)
    fault = one(device, good, found[1].tokens[0], 8, masks=none)
    assert fault.fault == "no token is allowed here"
    text = [*found[1].tokens, *one(device, good, found[1].tokens[0], 8).tokens]
    other = on_device()
    assert write(other, opened(other, PROMPT), 2)[0] == text


def test_wrong_calls_are_refused() -> None:
    device = on_device(slots=1)
    slot = device.open_slot(drafting=False)
    with pytest.raises(ValueError, match="all 1 slots"):
        device.open_slot(drafting=False)
    with pytest.raises(ValueError, match="not open"):
        device.position(4)
    with pytest.raises(ValueError, match="has not been scanned"):
        one(device, slot)
    with pytest.raises(ValueError, match="scanned, and once"):
        device.begin(slot, TokenRule(), PROMPT)
    with pytest.raises(ValueError, match="before the first round"):
        device.save(slot)
    with pytest.raises(ValueError, match="multiple of 64"):
        device.prefill_slot(slot, PROMPT[:0])
    with pytest.raises(ValueError, match="multiples of 64"):
        device.prefill_slot(slot, PROMPT, saves=(3,))
