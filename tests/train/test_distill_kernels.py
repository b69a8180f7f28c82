"""The teacher's step and the drawing of a token by kernels, against the plain code: on the GPU where there is one, else
interpreted."""

import pytest
import torch

from mainspring.train.distill.config import Writing
from mainspring.train.distill.fused import Quick, Steps
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.triton import KEYS, draw
from mainspring.train.gguf import read_gguf
from support.gguf import write_tiny_gguf
from support.kernels import ACCURATE, DEVICE, error

CAPACITY = 2 * KEYS + 22
PLACES = (0, 1, KEYS - 1, KEYS, KEYS + 1, 2 * KEYS + 2, CAPACITY - 1)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Teacher:
    path = tmp_path_factory.mktemp("kernels") / "tiny.gguf"
    write_tiny_gguf(path, heads=2, kv_heads=1)  # heads wide enough for the tensor units
    return Teacher(read_gguf(path)).to(DEVICE)


def test_a_step_is_the_plain_step_at_every_kind_of_place(teacher: Teacher) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = teacher.new_cache(len(PLACES), CAPACITY).shape
    before = torch.randn(shape, generator=generator).to(DEVICE)
    tokens = torch.randint(0, 500, (len(PLACES),), generator=generator).to(DEVICE)
    places = torch.tensor(PLACES, device=DEVICE)
    wanted, got = before.clone(), before.clone()
    plain = teacher.step(tokens, places, wanted)
    assert error(Quick(teacher).step(tokens, places, got), plain) < 10 * ACCURATE
    assert error(got, wanted) < ACCURATE
    assert (got != before).any(-1).sum() == 2 * len(PLACES) * shape[0] * shape[3]  # of each row its own place alone


def test_whole_texts_are_read_as_by_the_plain_forward(teacher: Teacher) -> None:
    tokens = torch.randint(0, 500, (3, 70), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    rows, states = teacher(tokens, (0, 2, 3))
    got, got_states = Quick(teacher)(tokens, (0, 2, 3))
    assert error(got, rows) < 10 * ACCURATE
    assert len(got_states) == 3
    for mine, state in zip(got_states, states, strict=True):
        assert error(mine, state) < 10 * ACCURATE


def test_what_lies_beyond_a_place_is_not_read(teacher: Teacher) -> None:
    tokens, places = torch.tensor([3, 4], device=DEVICE), torch.tensor([5, KEYS], device=DEVICE)
    quick, cache = Quick(teacher), teacher.new_cache(2, CAPACITY)
    clean = quick.step(tokens, places, cache)
    cache[:, :, 0, :, 6:], cache[:, :, 1, :, KEYS + 1 :] = float("nan"), float("nan")
    assert torch.equal(quick.step(tokens, places, cache), clean)


def test_the_likeliest_token_of_each_row_is_what_greedy_steps_give(teacher: Teacher) -> None:
    tokens, places = torch.tensor([3, 4], device=DEVICE), torch.tensor([5, KEYS], device=DEVICE)
    cache = teacher.new_cache(2, CAPACITY)
    wanted = teacher.step(tokens, places, cache.clone()).argmax(-1)
    assert torch.equal(Steps(teacher, Writing(least=1.0))(tokens, places, cache), wanted)


def test_drawing_keeps_to_what_is_likely_enough() -> None:
    p = torch.tensor([0.05, 0.5, 0.3, 0.15])
    logits = (2 * torch.log(p)).expand(600, 4).contiguous().to(DEVICE)
    drawn = draw(logits, torch.tensor([7], device=DEVICE), 2.0, 0.2).cpu()
    shares = torch.bincount(drawn, minlength=4) / 600
    assert shares[0] == 0
    assert (shares[1:] - p[1:] / 0.95).abs().max() < 0.08


def test_drawing_follows_from_the_seed_and_rows_draw_apart() -> None:
    logits = torch.zeros(24, 5000, device=DEVICE)
    first, again, other = (draw(logits, torch.tensor([s], device=DEVICE), 1.0, 0.0).cpu() for s in (1, 1, 2**40))
    assert torch.equal(first, again)
    assert (first != other).sum() > 18
    assert len(set(first.tolist())) > 18
    assert int(first.max()) > 4096  # the last round of columns is drawn from too


def test_the_likeliest_alone_is_an_arg_max() -> None:
    logits = torch.randn(16, 9001, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert torch.equal(draw(logits, torch.tensor([3], device=DEVICE), 0.8, 1.0), logits.argmax(1))
