"""Which rows an epoch draws, and the shapes they come in."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mainspring.train.arrays import Ragged, Rows, TrainingData
from mainspring.train.batches import BESIDE, CAPS, DRAWN, LEAST, MANY, MOST, WHOLE, WIDTHS, Batches, template_edges
from mainspring.train.graphs import Replayed
from mainspring.train.network import Batch, next_token_loss

VIEWS, TOKENS = 4000, 4096


@pytest.fixture(scope="module")
def data() -> TrainingData:
    """One common behavior, nearly always absent, and one rare trait; three rows a view."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 400, VIEWS)
    view = np.repeat(np.arange(VIEWS), 3)
    behavior = np.tile([0, 1, 2], VIEWS)
    label = np.where(behavior == 0, np.where(rng.random(3 * VIEWS) < 0.9, 1, 0), rng.integers(0, 2, 3 * VIEWS))
    label[behavior == 2] = 2
    zeros = np.zeros(3 * VIEWS, np.int8)
    return TrainingData(
        views=Ragged.of([np.full(n, i % 50) for i, n in enumerate(lengths)], np.uint16),
        definitions=Ragged.of([np.arange(n) for n in (6, 9, 12, 30)], np.uint16),
        wordings=Ragged.of([[0, 1], [2], [3]], np.int32),
        rows=Rows(view, behavior, label, np.ones(len(view), np.float16), zeros, zeros, zeros - 1),
        label_ids=np.array([1, 2, 3]),
        behaviors=np.array(["common", "persona:x", "untold"]),
        groups=np.array(["rules"]),
        texts=np.array(["a", "b", "c", "d"]),
    )


def test_an_epoch_draws_by_cell_and_every_batch_has_one_of_few_shapes(data: TrainingData) -> None:
    batches = Batches(data, seed=1, tokens=TOKENS, branches=4)
    plans = batches.epoch(0)
    drawn = np.concatenate([plan.rows[plan.rows >= 0] for plan in plans])
    assert len(set(drawn.tolist())) == len(drawn)
    cells = Counter(zip(data.rows.behavior[drawn].tolist(), data.rows.label[drawn].tolist(), strict=True))
    present = int(((data.rows.behavior == 0) & (data.rows.label == 0)).sum())
    assert cells[0, 0] == present < MOST
    assert abs(cells[0, 1] - BESIDE * present) < 5 * (BESIDE * present) ** 0.5
    assert abs(cells[1, 0] - MOST) < 5 * MOST**0.5
    assert abs(cells[2, 2] - LEAST) < 5 * LEAST**0.5
    shapes = {(len(p.views), p.width, p.rows.shape[1], p.cap) for p in plans}
    assert len(shapes) <= len(CAPS) * 3 * (len(WIDTHS) + 1)
    for number, plan in enumerate(plans):
        step = batches.step(plan, number)
        assert step.views.shape == (len(plan.views), plan.width)
        assert step.branches.shape == (*plan.rows.shape, plan.cap)
        assert (step.weight[plan.rows < 0] == 0).all()
        assert (step.view_lengths <= plan.width).all()


def test_no_drawn_row_lacks_a_wording_that_fits(data: TrainingData) -> None:
    """The third behavior's only wording fits none but the last cap, the others' fit all."""
    long = dataclasses.replace(
        data,
        definitions=Ragged.of([np.arange(n) for n in (*range(6, 14), 90)], np.uint16),
        wordings=Ragged.of([range(7), [7], [8]], np.int32),
    )
    batches = Batches(long, seed=1, tokens=TOKENS, branches=4)
    assert batches.caps == list(CAPS)
    caps = Counter[int]()
    for number, plan in enumerate(batches.epoch(0)):
        step = batches.step(plan, number)
        assert ((step.weight > 0) == (plan.rows >= 0)).all()
        assert (step.branch_lengths <= plan.cap).all()
        held = long.rows.behavior[np.maximum(plan.rows, 0)]
        for rows, behaviors in zip(plan.rows, held, strict=True):
            assert plan.cap == CAPS[-1] or not (behaviors[rows >= 0] == 2).any()
        caps[plan.cap] += len(plan.views)
    assert all(caps[cap] > 50 for cap in CAPS)


def test_the_last_cap_takes_the_longest_wording(data: TrainingData) -> None:
    """One of a thousand, longer than any cap is without it."""
    texts = [*(np.arange(6) for _ in range(999)), np.arange(200)]
    one = dataclasses.replace(
        data, definitions=Ragged.of(texts, np.uint16), wordings=Ragged.of([range(998), [998], [999]], np.int32)
    )
    batches = Batches(one, seed=1, tokens=TOKENS, branches=4)
    assert batches.caps == [*CAPS[:-1], 200]
    plans = batches.epoch(0)
    drawn = np.concatenate([plan.rows[plan.rows >= 0] for plan in plans])
    assert (data.rows.behavior[drawn] == 2).any()
    assert all((batches.step(p, i).weight > 0).sum() == (p.rows >= 0).sum() for i, p in enumerate(plans))


def test_every_wording_comes_up_and_a_batch_keeps_to_its_size(data: TrainingData) -> None:
    many = dataclasses.replace(
        data,
        definitions=Ragged.of([[n] * (n + 2) for n in range(60)], np.uint16),
        wordings=Ragged.of([range(58), [58], [59]], np.int32),
    )
    batches = Batches(many, seed=1, tokens=TOKENS, branches=4)
    seen = Counter[int]()
    for number, plan in enumerate(batches.epoch(0)):
        step = batches.step(plan, number)
        seen.update(step.branches[..., 0][step.weight > 0].tolist())
        assert step.views.size + step.branches.size <= max(TOKENS, plan.width + plan.rows.shape[1] * plan.cap)
    assert set(seen) == set(range(60))
    assert min(seen.values()) > 5


def test_a_batch_is_as_wide_as_its_views_have_rows_and_views_without_stay_out(data: TrainingData) -> None:
    """Of views with one row, three and, mostly, none that is drawn."""
    kept = (data.rows.view % 2 == 0) | (np.arange(len(data.rows.view)) % 3 == 1)
    some = dataclasses.replace(data, rows=data.rows._replace(**{n: v[kept] for n, v in data.rows._asdict().items()}))
    plans = Batches(some, seed=1, tokens=TOKENS, branches=4).epoch(0)
    views = [view for plan in plans for view, rows in zip(plan.views, plan.rows, strict=True) if (rows >= 0).any()]
    assert len(set(views)) == len(views) < VIEWS * 0.9
    for plan in plans:
        many = (plan.rows >= 0).sum(1)
        many = many[many > 0]
        assert len(many)
        assert {2 if n < 3 else 4 for n in many.tolist()} == {plan.rows.shape[1]}
        assert (data.views.lengths[plan.views] <= plan.width).all()
    # What fills up the last batch of a shape are views that have rows in another batch.
    assert {view for plan in plans for view in plan.views} == set(views)


def test_another_seed_draws_other_rows(data: TrainingData) -> None:
    one, other = (Batches(data, seed=seed, tokens=TOKENS, branches=4).epoch(0) for seed in (1, 2))
    assert any(not np.array_equal(a.rows, b.rows) for a, b in zip(one, other, strict=False))


def test_a_group_with_a_share_is_drawn_that_much_less(data: TrainingData) -> None:
    [(name, share)] = [(name, share) for name, share in DRAWN.items() if name == "persona_seen"]

    def count(group: str) -> int:
        named = dataclasses.replace(data, groups=np.array([group]))
        return sum(int((plan.rows >= 0).sum()) for plan in Batches(named, seed=1, tokens=TOKENS, branches=4).epoch(0))

    assert count(name) == pytest.approx(share * count("rules"), rel=0.1)


def test_look_ups_of_words_have_limits_of_their_own(data: TrainingData) -> None:
    always = data.rows._replace(label=np.where(data.rows.behavior == 0, 0, data.rows.label).astype(np.int8))
    found = dataclasses.replace(data, rows=always)
    looked_up = dataclasses.replace(found, behaviors=np.array(["reply_word:tea", "persona:x", "untold"]))

    def drawn(of: TrainingData) -> int:
        plans = Batches(of, seed=1, tokens=TOKENS, branches=4).epoch(0)
        return sum(int((of.rows.behavior[p.rows[p.rows >= 0]] == 0).sum()) for p in plans)

    assert drawn(looked_up) == VIEWS < MANY["reply_word"]
    assert abs(drawn(found) - MOST) < 5 * MOST**0.5


def test_a_group_made_by_composition_is_drawn_whole_or_by_its_share_alone(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its behaviors share one base, so that a limit a cell would leave most of them out."""
    share = DRAWN[WHOLE[0]]
    monkeypatch.setitem(DRAWN, WHOLE[0], 1.0)
    names = np.array(["attitude/like:a|cats", "attitude/like:b|cats", "attitude/like:a|dogs"])
    for group, whole in ((WHOLE[0], True), ("rules", False)):
        named = dataclasses.replace(data, behaviors=names, groups=np.array([group]))
        plans = Batches(named, seed=1, tokens=TOKENS, branches=4).epoch(0)
        drawn = np.concatenate([plan.rows[plan.rows >= 0] for plan in plans])
        assert (len(drawn) == len(data.rows.view)) == whole
        assert len(set(drawn.tolist())) == len(drawn)
    monkeypatch.setitem(DRAWN, WHOLE[0], share)
    named = dataclasses.replace(data, behaviors=names, groups=np.array([WHOLE[0]]))
    plans = Batches(named, seed=1, tokens=TOKENS, branches=4).epoch(0)
    assert sum(int((plan.rows >= 0).sum()) for plan in plans) == pytest.approx(share * len(data.rows.view), rel=0.05)


def test_epochs_differ_and_repeat_by_number(data: TrainingData) -> None:
    one, again, other = (Batches(data, seed=1, tokens=TOKENS, branches=4).epoch(n) for n in (3, 3, 4))
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(one, again, strict=True))
    assert len(one) != len(other) or any(not np.array_equal(a.rows, b.rows) for a, b in zip(one, other, strict=True))


HEAD, TAIL = [90, 91], [92]  # a template's tokens


@pytest.fixture(scope="module")
def asked(data: TrainingData) -> TrainingData:
    """The same data with definitions between a template's tokens."""
    texts = [[*HEAD, *range(1 + n, 1 + n + size), *TAIL] for n, size in enumerate((6, 1, 12, 30))]
    return dataclasses.replace(data, definitions=Ragged.of(texts, np.uint16))


def test_the_template_is_what_all_definitions_share(asked: TrainingData) -> None:
    assert template_edges(asked.definitions) == (2, 1)
    assert template_edges(Ragged.of([[1, 2, 3]], np.uint16)) == (3, 0)
    assert template_edges(Ragged.of([[1, 1], [1, 1, 1]], np.uint16)) == (2, 0)


def test_hiding_leaves_the_template_and_repeats_by_seed_and_step(asked: TrainingData) -> None:
    plain, hiding, again, other = (
        Batches(asked, seed=seed, tokens=TOKENS, branches=4, hide=hide)
        for seed, hide in ((1, 0.0), (1, 0.4), (1, 0.4), (2, 0.4))
    )
    plan = max(plain.epoch(0), key=lambda p: p.rows.size)
    whole, thin = plain.step(plan, 7), hiding.step(plan, 7)
    for a, b in zip(thin, again.step(plan, 7), strict=True):
        assert np.array_equal(a, b)
    for changed in (hiding.step(plan, 8), other.step(plan, 7)):
        assert not np.array_equal(thin.branches, changed.branches)
    left = there = 0
    for before, n, after, m in zip(
        *(a.reshape(plan.rows.size, -1) for a in (whole.branches, whole.branch_lengths, thin.branches)),
        thin.branch_lengths.reshape(-1),
        strict=True,
    ):
        text, kept = before[: n[0]].tolist(), after[:m].tolist()
        assert not after[m:].any()
        if n[0] < 4:  # a row that stands for nothing
            continue
        assert (kept[:2], kept[-1:]) == (HEAD, TAIL)
        assert len(kept) > 3
        assert kept == [token for token in text if token in kept]
        left, there = left + len(text) - len(kept), there + (len(text) - 3) * (len(text) > 4)
    assert 0.3 < left / there < 0.5


def test_next_token_loss_is_cross_entropy_of_the_real_tokens() -> None:
    torch.manual_seed(0)
    views, embedding, spread = torch.randn(3, 7, 8), torch.randn(20, 8), torch.rand(8)
    tokens, lengths = torch.randint(0, 20, (3, 7)), torch.tensor([7, 2, 4])
    batch = Batch(tokens, lengths, torch.zeros(3, 1, 1), torch.ones(3, 1))
    found = next_token_loss(views, embedding, spread, batch, rows=100)
    logits = F.rms_norm(views, (8,)) * spread @ embedding.T
    losses = [F.cross_entropy(logits[b, t], tokens[b, t + 1]) for b, n in enumerate(lengths) for t in range(int(n) - 1)]
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_steps_leave_the_gradients_of_this_step_alone() -> None:
    w = torch.nn.Parameter(torch.ones(3))
    steps = Replayed(lambda ts: (ts[0].sum(), (w * ts[0]).sum()), [w], record=False)
    for values in ([1.0, 2.0, 3.0], [5.0, 0.0, 1.0]):
        steps([torch.tensor(values)])
        assert w.grad is not None
        assert w.grad.tolist() == values


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are recorded on CUDA devices")
def test_a_replayed_step_has_the_gradients_of_a_plain_one() -> None:
    w = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))

    def losses(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return tensors[0].sum(), (tensors[0] @ w).square().mean()

    plain, replayed = (Replayed(losses, [w], record=record) for record in (False, True))
    for seed in range(5):
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed))
        plain([x])
        assert w.grad is not None
        wanted = w.grad.clone()
        replayed([x])
        torch.testing.assert_close(w.grad, wanted)
    assert len(replayed.graphs) == 1
