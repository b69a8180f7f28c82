"""The CUDA backend against the naive way: each branch with its whole view as one sequence, in fp32."""

from functools import cache

import numpy as np
import pytest
import torch

from mainspring.backend.cuda import backend as module
from mainspring.backend.cuda import graphs
from mainspring.backend.cuda.backend import CudaBackend
from mainspring.backend.cuda.buckets import bucketed, round_rows
from mainspring.backend.cuda.explain import check, describe
from mainspring.backend.cuda.job import Job, exact
from mainspring.backend.cuda.layout import Grid, Shape, buffer_bytes, fields
from mainspring.backend.cuda.memory import LEAST_ROWS, MOST_ROWS, bytes_a_row, pass_rows
from mainspring.backend.cuda.network import Network
from mainspring.backend.generation import SlotLimits
from mainspring.backend.protocol import PackedPass, open_backend
from mainspring.errors import DeviceError, DeviceMemoryError
from mainspring.model.hybrid import Hybrid
from mainspring.ops.attention import triton as attention
from mainspring.ops.gated_delta.triton import WIDE_HEADS
from support.kernels import DEVICE
from support.models import random_tokens, tiny_config, tiny_model
from support.passes import one_pass

SHAPE = {
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 64,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
}
CLOSE = 3e-5


def model(**changes) -> Hybrid:
    return tiny_model(**SHAPE | changes)


def backend(pass_rows: int = 4096, **changes) -> CudaBackend:
    return CudaBackend(model(**changes).to(DEVICE), pass_rows=pass_rows)


@cache
def plain(kinds: tuple[str, ...]) -> Hybrid:
    return model(layer_types=list(kinds))


def naive(view: list[int], branch: list[int], labels: list[int], kinds=tuple(SHAPE["layer_types"])) -> np.ndarray:
    tokens = torch.tensor(view + branch)
    network = plain(tuple(kinds))
    with torch.inference_mode():
        hidden = network.extend(tokens, [len(tokens)], [network.new_state()], update=True)
        return network.logits(hidden)[-1, labels].numpy()


VIEWS = [random_tokens(i, n).tolist() for i, n in enumerate((70, 2, 0))]
PARENTS = [0, 0, 1, 2]
BRANCHES = [random_tokens(50 + i, n).tolist() for i, n in enumerate((9, 1, 66, 5))]
LABELS = [[1, 2, 3], [4], [5, 6], [7]]


def mixed() -> PackedPass:
    return one_pass(VIEWS, BRANCHES, LABELS, parents=PARENTS)


def mixed_naive(kinds=tuple(SHAPE["layer_types"])) -> np.ndarray:
    cases = zip(PARENTS, BRANCHES, LABELS, strict=True)
    return np.concatenate([naive(VIEWS[p], b, ids, kinds) for p, b, ids in cases])


@pytest.mark.parametrize("kinds", [["linear_attention", "full_attention"], ["full_attention", "linear_attention"]])
def test_a_pass_equals_the_naive_way(kinds: list[str]) -> None:
    result = backend(layer_types=kinds).score_pass(mixed())
    assert np.abs(result.logits - mixed_naive(kinds)).max() < CLOSE
    assert result.states == (-1, -1, -1)
    assert result.seconds > 0


def test_long_views_may_go_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, in company that stays whole, moved on from a state of their own, and padded to a bucket. A view of as many
    segments as chunks, and one of more chunks than segments."""
    long, longer, kept, ends = 200, 300, 140, [1 + 4 + 1 + 3, 3, 3]
    if DEVICE == "cpu":
        monkeypatch.setattr("mainspring.ops.gated_delta.segments.MOST_SEGMENTS", 3)
        long, longer, kept, ends = 130, 200, 70, [1 + 3 + 1 + 2, 2, 3]
    device = CudaBackend(model().to(DEVICE), pass_rows=4096, segment_rows=64, graph_rows=0)
    shapes = []
    launch = device._runner.launch
    device._runner.launch = lambda job, shape: shapes.append(shape) or launch(job, shape)
    views = [random_tokens(i, n).tolist() for i, n in enumerate((30, long, 0, longer))]
    branches = [random_tokens(50 + i, 9).tolist() for i in range(4)]
    wanted = np.concatenate([naive(v, b, [1, 2]) for v, b in zip(views, branches, strict=True)])
    work = one_pass(views, branches, [[1, 2]] * 4, parents=[0, 1, 2, 3])
    assert np.abs(device.score_pass(work).logits - wanted).max() < CLOSE
    state = device.prefill(np.array(views[3][:kept]))
    moved = device.score_pass(one_pass([views[3][kept:]], [branches[3]], [[1, 2]], states=[state]))
    assert np.abs(moved.logits - wanted[-2:]).max() < CLOSE
    assert [shape.segments for shape in shapes] == ends
    device._runner.run = lambda job: launch(job, bucketed(exact(job, device._network.grid(job))))
    with np.errstate(all="ignore"):  # nobody writes the outputs of padded rows
        padded = device.score_pass(work).logits
    assert np.abs(padded - wanted).max() < CLOSE


@pytest.mark.parametrize("kinds", [["linear_attention", "full_attention"], ["full_attention", "linear_attention"]])
def test_views_and_branches_may_share_a_launch(kinds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of attention, where both are cut alike: the same bits, exact and padded to a bucket, and one launch less."""
    apart, device = (CudaBackend(model(layer_types=kinds).to(DEVICE), pass_rows=4096, graph_rows=0) for _ in range(2))
    apart._network = Network(model(layer_types=kinds).to(DEVICE), mixes=False)
    apart._runner = graphs.Runner(apart._network, graph_rows=0)
    launches, shapes = [], []
    attend = attention.attend
    monkeypatch.setattr(attention, "attend", lambda *args, **more: launches.append(more) or attend(*args, **more))
    wanted = apart.score_pass(mixed()).logits
    assert len(launches) == (1 if kinds[-1] == "full_attention" else 2)
    apart._runner.run = lambda job: apart._runner.launch(job, grown(job, apart._network.grid(job)))
    with np.errstate(all="ignore"):  # nobody writes the outputs of padded rows
        padded = apart.score_pass(mixed()).logits
    if DEVICE == "cpu":  # a device's library may multiply more rows in another order
        assert np.array_equal(padded, wanted)
    launches.clear()
    launch = device._runner.launch
    monkeypatch.setattr(device._runner, "launch", lambda job, shape: shapes.append(shape) or launch(job, shape))
    got = device.score_pass(mixed()).logits
    assert len(launches) == 1
    assert np.array_equal(got, wanted)
    assert np.abs(got - mixed_naive(kinds)).max() < CLOSE
    device._runner.run = lambda job: launch(job, grown(job, device._network.grid(job)))
    with np.errstate(all="ignore"):
        assert np.array_equal(device.score_pass(mixed()).logits, padded)
    assert np.abs(padded - wanted).max() < CLOSE
    assert [shape.mixed for shape in shapes] == [True]
    assert not exact(Job([], [], *(np.zeros(0, np.int64),) * 5), device._network.small).mixed


@pytest.mark.parametrize("poison", [torch.nan, 1e30])
def test_padding_to_a_bucket_changes_nothing(poison: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What graphs run on: more rows, views, branches, chunks and items than the pass has. Nobody writes the outputs of
    padded rows, and whatever was there before stays in those rows."""
    device = backend()
    device._runner.run = lambda job: device._runner.launch(job, grown(job, device._network.grid(job)))
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, poison))
    with np.errstate(all="ignore"):
        got = device.score_pass(mixed()).logits
    assert np.abs(got - mixed_naive()).max() < CLOSE


def grown(job: Job, grid: Grid) -> Shape:
    shape = bucketed(exact(job, grid))
    assert shape.rows > job.rows
    assert shape.views > len(job.states)
    return shape


def test_what_exceeds_a_pass_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views longer than a pass, views that share one, branches over several: no forward has more rows than allowed."""
    device, rows = backend(pass_rows=64), []
    run = device._runner.run
    monkeypatch.setattr(device._runner, "run", lambda job: rows.append(job.rows) or run(job))
    branches = [b[:20] for b in BRANCHES]
    result = device.score_pass(one_pass(VIEWS, branches, LABELS, parents=PARENTS))
    wanted = [naive(VIEWS[p], b, ids) for p, b, ids in zip(PARENTS, branches, LABELS, strict=True)]
    assert np.abs(result.logits - np.concatenate(wanted)).max() < CLOSE
    assert max(rows) <= 64
    assert sum(rows) == sum(map(len, VIEWS)) + sum(map(len, branches))
    assert len(device._states) == 0


def test_kept_states_fork_and_move_on() -> None:
    """In pieces shorter than the convolution's memory too, and with room that has to grow."""
    device = backend()
    view, branch = random_tokens(1, 80).tolist(), random_tokens(2, 10).tolist()
    wanted = naive(view, branch, [1, 2])
    kept = device.score_pass(one_pass([view], [branch], [[1, 2]], keep=True))
    (state,) = kept.states
    forked = device.score_pass(one_pass([[]], [branch], [[1, 2]], states=[state]))
    grown = device.prefill(np.array(view[:66]))
    for piece in (view[66:67], view[67:69]):
        device.prefill(np.array(piece), grown)
    moved = device.score_pass(one_pass([view[69:]], [branch], [[1, 2]], states=[grown]))
    for result in (kept, forked, moved):
        assert np.abs(result.logits - wanted).max() < CLOSE
    assert forked.states == (state,)
    assert device.state_bytes(state) > 0
    device.release(state)
    with pytest.raises(ValueError, match="no state has handle"):
        device.release(state)


def test_a_copy_moves_alone() -> None:
    device = backend()
    view, branch = random_tokens(3, 40).tolist(), random_tokens(4, 6).tolist()
    first = device.prefill(np.array(view[:30]))
    second = device.copy(first, capacity=50)
    device.prefill(np.array(view[30:]), second)
    for state, seen in ((first, view[:30]), (second, view)):
        got = device.score_pass(one_pass([[]], [branch], [[1, 2]], states=[state])).logits
        assert np.abs(got - naive(seen, branch, [1, 2])).max() < CLOSE


def test_a_forgotten_tail_is_caught() -> None:
    """The convolution's last rows alternate between two copies; the wrong one gives other logits."""
    device = backend()
    view, branch = random_tokens(5, 20).tolist(), random_tokens(6, 4).tolist()
    state = device.prefill(np.array(view))
    device._states[state].parity ^= 1
    with np.errstate(all="ignore"):  # nothing was ever written there
        got = device.score_pass(one_pass([[]], [branch], [[1, 2]], states=[state])).logits
    assert not np.abs(got - naive(view, branch, [1, 2])).max() < 1e-3


def test_a_pass_without_branches_and_one_without_views() -> None:
    device = backend()
    assert device.score_pass(one_pass([[1, 2, 3]], [], [])).logits.shape == (0,)
    assert device.score_pass(one_pass([], [], [])).states == ()


def test_bf16_is_near() -> None:
    """Weights rounded for both sides; the interpreter truncates where the device rounds."""
    network = model()
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.copy_(parameter.bfloat16())
    rounded = {name: p.to(torch.bfloat16) if p.dim() > 1 else p for name, p in network.state_dict().items()}
    half = model()
    half.load_state_dict(rounded, assign=True)
    half.head.weight = half.embed.weight
    device = CudaBackend(half.to(DEVICE), pass_rows=4096)
    assert device.numerics == "bf16"
    view, branch = random_tokens(7, 66).tolist(), random_tokens(8, 5).tolist()
    got = device.score_pass(one_pass([view], [branch], [[1, 2, 3]])).logits
    tokens = torch.tensor(view + branch)
    with torch.inference_mode():
        hidden = network.extend(tokens, [len(tokens)], [network.new_state()], update=True)
        wanted = network.logits(hidden)[-1, [1, 2, 3]].numpy()
    assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()


def test_no_memory_for_slots_is_said_and_they_can_be_had_later(monkeypatch: pytest.MonkeyPatch) -> None:
    device, limits = backend(), SlotLimits(3, 2)

    def full(*_: object, **__: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nmore")

    monkeypatch.setattr(module.torch.cuda, "empty_cache", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr("mainspring.backend.cuda_slots.slots.CudaSlots", full)
        with pytest.raises(DeviceMemoryError, match=r"^3 slots do not fit the device: .* 20 GiB$"):
            device.generation(limits)
    assert device.generation(limits).limits == limits
    with pytest.raises(DeviceError, match="open already"):
        device.generation(limits)


def test_out_of_memory_fails_the_pass_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    device = backend()
    run = device._runner.run

    def full(job: Job) -> np.ndarray:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nmore")

    monkeypatch.setattr(device._runner, "run", full)
    monkeypatch.setattr(module.torch.cuda, "empty_cache", lambda: None)
    with pytest.raises(DeviceMemoryError, match=r"a pass of 153 rows: CUDA out of memory. Tried to allocate 20 GiB$"):
        device.score_pass(mixed())
    monkeypatch.setattr(device._runner, "run", run)
    assert np.abs(device.score_pass(mixed()).logits - mixed_naive()).max() < CLOSE


def test_rows_of_a_pass_follow_from_free_memory() -> None:
    config = tiny_config()
    a_row = bytes_a_row(config, 2)
    assert pass_rows(config, 2, 0) == LEAST_ROWS
    assert pass_rows(config, 2, 1 << 50) == MOST_ROWS
    free = int(10_000 * a_row / 0.6) + a_row
    assert pass_rows(config, 2, free) == 10_000
    assert pass_rows(config, 4, free) < 10_000


def test_larger_passes_are_recorded_when_they_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To record is slower than to launch: a bucket that comes once is not worth it, and what was seen is bounded."""
    runner, made = backend()._runner, []
    runner.graph_rows = graphs.GRAPH_ROWS
    monkeypatch.setattr(runner, "launch", lambda job, _: made.append(("launch", job.rows)))
    monkeypatch.setattr(runner, "_replay", lambda job, _: made.append(("replay", job.rows)))

    def passes(*rows: int) -> list[str]:
        made.clear()
        for n in rows:
            runner.run(Job([np.zeros(n, np.int64)], [None], *(np.zeros(0, np.int64),) * 5))
        return [how for how, _ in made]

    assert passes(4_096, 4_097, 4_100, 5_000, 4_200) == ["replay", "launch", "replay", "launch", "replay"]
    assert passes(10_241, 10_241) == ["launch", "launch"]
    monkeypatch.setattr(graphs, "MOST_SEEN", 2)
    assert passes(6_000, 7_000, 8_000, 6_000) == ["launch"] * 4
    assert len(runner._seen) == 2


@pytest.mark.parametrize("rows", [0, 1, 64, 65, 511, 513, 1000, 4000, 4097, 9000])
def test_buckets_hold_and_waste_an_eighth_at_most(rows: int) -> None:
    assert rows <= round_rows(rows) < max(rows + 64, rows * 1.126)


def test_buckets_are_few() -> None:
    """A graph a bucket: all passes of one view with eight branches up to 4,096 rows share a few dozen."""
    grid = Grid(32, 64, 16, 64, 3)
    none = np.zeros(0, np.int64)
    shapes = set()
    for view in range(50, 3800, 37):
        tokens, lengths = np.zeros(8 * 40, np.int64), np.full(8, 40)
        job = Job(
            [np.zeros(view, np.int64)], [None], tokens, lengths, np.zeros(8, np.int64), none, np.zeros(8, np.int64)
        )
        shape = exact(job, grid)
        large = bucketed(shape)
        assert all(a >= b for a, b in zip(large[:-1], shape[:-1], strict=True))
        assert buffer_bytes(large) < 40 * large.rows + 20_000
        shapes.add(large)
    assert len(shapes) < 40


@pytest.mark.parametrize("rows", [1, 7, 64, 333])
def test_every_table_is_aligned(rows: int) -> None:
    """Of pointers, kernels know only whether they are multiples of 16; one that is not means another compilation."""
    shape = Shape(rows, rows + 1, 3, 5, 7, 9, 3, 5, 3, 1, 1, long=False, split=False, grid=Grid(32, 64, 16, 64, 3))
    ends = 0
    for _, _, begin, end in fields(shape):
        assert begin % 16 == 0
        assert begin >= ends
        ends = end


@pytest.mark.parametrize("segment_rows", [0, 2048])
def test_warming_up_meets_every_variant(segment_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the fork, by the length of branches, of attention and of the scan, by that of views."""
    device, shapes = CudaBackend(model().to(DEVICE), pass_rows=4096, segment_rows=segment_rows), []
    monkeypatch.setattr(device._runner, "launch", lambda _, shape: shapes.append(shape))
    device.warm()
    assert {shape.long for shape in shapes} == {False, True}
    network = device._network
    assert {(shape.grid, shape.split) for shape in shapes} == {
        (network.small, False), (network.large, False), (network.large, True),
    }  # fmt: skip
    assert all(shape.view_rows and shape.branch_rows for shape in shapes)
    whole = [shape for shape in shapes if not shape.segments]
    assert {shape.views * network.heads.values >= WIDE_HEADS for shape in whole} == {False, True}
    cut = {shape.segments * network.heads.values >= WIDE_HEADS for shape in shapes if shape.segments}
    assert cut == ({False, True} if segment_rows else set())


@pytest.mark.parametrize("few", [True, False])
def test_attention_is_cut_by_what_there_is(few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows, and few on short views, go in other tiles; both equal the naive way. Through the interpreter it takes
    fewer to be many, still several tiles of rows and of keys."""
    rows = 40 if few else 2500 if DEVICE == "cuda" else 260
    if DEVICE == "cpu":
        monkeypatch.setattr("mainspring.backend.cuda.network.SMALL_ROWS", 256)
    device = backend()
    views = [random_tokens(n, rows // 2).tolist() for n in range(2)]
    branch = random_tokens(9, 5).tolist()
    job_grids = []
    run = device._runner.run
    device._runner.run = lambda job: job_grids.append(device._network.grid(job)) or run(job)
    got = device.score_pass(one_pass(views, [branch], [[1, 2]], parents=[1])).logits
    assert job_grids == [device._network.small if few else device._network.large]
    assert np.abs(got - naive(views[1], branch, [1, 2])).max() < CLOSE


def test_shapes_without_a_kernel_are_refused() -> None:
    with pytest.raises(DeviceError, match="head_dim 16 has no CUDA kernel"):
        check(tiny_config())
    with pytest.raises(DeviceError, match="linear head sizes 16 and 24"):
        check(tiny_config(head_dim=64))


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a device")
def test_no_device_is_said(tmp_path) -> None:
    assert "no CUDA device" in describe().problem
    with pytest.raises(DeviceError, match="no CUDA device: torch"):
        open_backend(tmp_path, "cuda")
