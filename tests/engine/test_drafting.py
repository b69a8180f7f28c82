"""What is drafted: n-grams against a search through the text, lengths against the best there is, the head's rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mainspring.backend.generation import TokenRule
from mainspring.backend.torch_slots.drafting import Drafted
from mainspring.backend.torch_slots.slot import Slot
from mainspring.engine.drafting import NONE, DraftLength, NgramLookup
from mainspring.engine.stream_records import StreamSpec
from support.models import tiny_model
from support.slots import one, opened, plain, prompt, tiny_head, tiny_slots
from support.streams import run, tiny_streams


def searched(tokens: list[int], most: int) -> tuple[int, ...]:
    """The latest earlier place of the longest ending there is, by looking everywhere."""
    for n in NgramLookup.lengths:
        for at in range(len(tokens) - n - 1, -1, -1):
            if len(tokens) > n and tokens[at : at + n] == tokens[-n:]:
                return tuple(tokens[at + n : at + n + most])
    return ()


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 8), st.integers(0, 60))
def test_lookup_is_a_search(tokens: list[int], most: int, cut: int) -> None:
    lookup = NgramLookup(tokens[:cut])
    lookup.extend(tokens[cut:])
    assert lookup.propose(most) == searched(tokens, most)


# ---------------------------------------------------------------- how many


def simulated(
    seconds: tuple[float, float, float], accepts: float, *, rounds: int = 400, streams: int = 1, seed: int = 0
) -> list[int]:
    """What it chose where rounds took a + b rows + c steps and drafts stood with that chance."""
    length, chance = DraftLength(7), np.random.default_rng(seed)
    chosen = []
    for _ in range(rounds):
        n = length.choose(["mtp"] * streams)
        chosen.append(n)
        for _ in range(streams):
            accepted = 0
            while accepted < n and chance.random() < accepts:
                accepted += 1
            length.accepted("mtp", n, accepted)
        rows = streams * (1 + n)
        length.measured(seconds[0] + seconds[1] * rows + seconds[2] * n, rows, n)
    return chosen


def best(seconds: tuple[float, float, float], accepts: float, streams: int = 1) -> int:
    n = np.arange(8)
    tokens = np.cumsum(accepts**n)
    return int(np.argmax(streams * tokens / (seconds[0] + seconds[1] * streams * (1 + n) + seconds[2] * n)))


@pytest.mark.parametrize(
    ("seconds", "accepts"),
    [
        ((0.02, 0.0001, 0.0001), 0.9),  # bandwidth-bound: the whole block
        ((0.002, 0.02, 0.001), 0.5),  # rows cost as much as rounds: nothing
        ((0.02, 0.002, 0.003), 0.7),
        ((0.02, 0.002, 0.003), 0.05),
    ],
)
@pytest.mark.parametrize("streams", [1, 4])
def test_it_finds_the_length_with_the_most_tokens_a_second(
    seconds: tuple[float, float, float], accepts: float, streams: int
) -> None:
    late = simulated(seconds, accepts, streams=streams)[200:]
    usual = max(set(late), key=late.count)
    assert abs(usual - best(seconds, accepts, streams)) <= 1
    assert late.count(usual) > 100


def test_it_notices_that_a_drafter_got_better() -> None:
    length = DraftLength(7)
    for _ in range(300):
        n = length.choose(["ngram"])
        length.accepted("ngram", n, 0)
        length.measured(0.02 + 0.004 * (1 + n), 1 + n, 0)
    assert length.choose(["ngram"]) <= 2
    for _ in range(1500):
        n = length.choose(["ngram"])
        length.accepted("ngram", n, n)
        length.measured(0.02 + 0.004 * (1 + n), 1 + n, 0)
    assert length.choose(["ngram"]) >= 6


def test_nothing_is_drafted_for_who_does_not() -> None:
    assert DraftLength(7).choose([NONE, NONE]) == 0
    assert DraftLength(0).choose(["ngram"]) == 0
    assert DraftLength(7).choose([]) == 0


def test_nonsense_times_change_nothing() -> None:
    length = DraftLength(7)
    for seconds in (0.0, -1.0, float("nan"), float("inf"), 1e9):
        length.measured(seconds, 4, 1)
    assert not length._gram.any()


# ---------------------------------------------------------------- the head


@torch.inference_mode()
def chained(tokens: list[int], count: int) -> list[int]:
    """The head's drafts after `tokens`, by the plain networks, from nothing."""
    model, head = tiny_model(0), tiny_head()
    ids = torch.tensor(tokens)
    hidden = model.extend(ids[:-1], [len(ids) - 1], [model.new_state()], update=True)
    state = head.new_state(len(ids) + count)
    row = head.extend(model.embed(ids[1:]), hidden, state)[-1:]
    drafts = []
    for _ in range(count):
        drafts.append(int(model.logits(row)[0].argmax()))
        row = head.extend(model.embed(torch.tensor(drafts[-1:])), row, state)
    return drafts


def test_the_heads_drafts_are_the_plain_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round after round, with none, some and all drafts kept, after rounds without drafts, in company."""
    tokens = prompt(1, 150)
    slots = tiny_slots(mtp=True)
    made: list[tuple[int, ...]] = []
    real = slots._mtp.draft
    monkeypatch.setattr(slots._mtp, "draft", lambda *a: [made.append(each.tokens) or each for each in real(*a)])
    slot = opened(slots, tokens, TokenRule(), drafting=True)
    text = [*tokens.tolist(), *one(slots, slot).tokens]
    for draft in (3, 1, 0, 0, 7, 5):
        made.clear()
        found = one(slots, slot, text[-1], draft=draft)
        assert made == ([tuple(chained(text, draft))] if draft else [])
        assert found.drafted == draft
        text += found.tokens
        # rounds in which drafts stand: what the model says next, drafted from outside
        right = tuple(greedy(text, 4))
        text += one(slots, slot, text[-1], drafts=right[:3]).tokens
        assert tuple(text[-4:]) == right


@pytest.mark.parametrize("right", [7, 3, 2])
def test_drafts_go_on_after_several_were_accepted(right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's first `right` drafts of each round are made right, so that rounds keep several rows at once: each
    round after them drafts as many as before, from the rows that were kept."""
    ids, count = prompt(1, 150), 60
    known = plain(ids, count + 8)
    slots = tiny_slots(mtp=True)
    read: list[int] = []
    real = slots._mtp.draft  # type: ignore[union-attr]

    def draft(live: list[Slot], counts: list[int]) -> list[Drafted]:
        read.append(len(live[0].following))
        made, at = real(live, counts), live[0].emitted
        wrong = [(token + 1) % 200 for token in known[at + right : at + counts[0]]]
        return [made[0]._replace(tokens=(*known[at : at + min(right, counts[0])], *wrong)[: counts[0]])]

    monkeypatch.setattr(slots._mtp, "draft", draft)
    told = run(tiny_streams(slots), StreamSpec(id="a", tokens=ids, max_tokens=count, drafter="mtp", draft_tokens=7))
    assert told.tokens["a"] == known[:count]
    rounds = told.log["a"][1:]
    left = count - 1
    for tokens, drafted, accepted in rounds:
        assert drafted == min(7, left - 1)
        assert accepted == min(right, drafted)
        assert len(tokens) == accepted + 1
        left -= len(tokens)
    assert read[1:] == [len(tokens) for tokens, drafted, _ in rounds[: len(read) - 1]]


def test_waiting_rows_are_read_in_time() -> None:
    slots = tiny_slots(mtp=True)
    slot = opened(slots, prompt(1, 100), TokenRule(), drafting=True)
    text = list(one(slots, slot).tokens)
    for _ in range(150):
        text += one(slots, slot, text[-1]).tokens
        pending = slots._slots[slot].pending
        assert pending is not None
        assert len(pending) <= 65
    made = one(slots, slot, text[-1], draft=2)
    assert made.drafted == 2
    whole = [*prompt(1, 100).tolist(), *text]
    assert slots._slots[slot].drafted + len(slots._slots[slot].following) == len(whole) + len(made.tokens) - 1


def greedy(text: list[int], count: int) -> list[int]:
    return plain(np.array(text), count)
