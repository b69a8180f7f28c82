"""The schedule of shapes against devices of known cost, and what is kept of it on disk."""

import pytest

from mainspring.core.cost import Cost
from mainspring.node.constants import KEPT, Constants, constants_key, load, save
from mainspring.node.probe import BUDGET_S, QUICK, Probe, Shape, believable


def device(cost: Cost, shape: Shape) -> float:
    return cost.seconds(*shape.sample)


def first(probe: Probe, cost: Cost) -> float:
    """Runs the first phase on a device of that cost; how long it took."""
    elapsed = 0.0
    while (shape := probe.next_first(elapsed)) is not None:
        seconds = device(cost, shape)
        probe.note(shape, seconds)
        elapsed += seconds
    return elapsed


def idle(probe: Probe, cost: Cost) -> float:
    """Runs all that idle time allows; how long that was."""
    elapsed = 0.0
    while probe.due_s() < float("inf"):
        waited = probe.due_s()
        shape = probe.next_idle(waited + 1e-9)
        assert shape is not None
        assert probe.next_idle(waited - 1e-3) is None, "not before it is due"
        probe.note(shape, device(cost, shape))
        elapsed += waited
    return elapsed


FAST, SLOW, CRAWLING = Cost(2e-3, 1e-5, 2e-5), Cost(2e-2, 3e-5, 6e-5), Cost(0.5, 2e-2, 2e-2)


@pytest.mark.parametrize("cost", [FAST, SLOW, CRAWLING], ids=["fast", "slow", "crawling"])
def test_a_first_answer_within_the_budget_and_one_pass(cost: Cost) -> None:
    probe = Probe(32_768, 65_536, 32_000)
    took = first(probe, cost)
    slowest = max(device(cost, Shape(500, 1)), device(cost, Shape(256, 1)), 0.5)
    assert took <= BUDGET_S + (10.0 * slowest if cost is CRAWLING else 0.0)
    assert probe.cost is not None
    assert probe.provisional or cost is CRAWLING, "a device too slow for the long shapes owes nothing more"
    for shape in (Shape(500, 1), Shape(2_000, 16), Shape(18_000, 64)):
        assert probe.cost.seconds(*shape.sample) == pytest.approx(device(cost, shape), rel=0.05)


def test_idle_time_finishes_what_the_budget_left() -> None:
    probe = Probe(32_768, 65_536, 32_000)
    first(probe, SLOW)
    known = probe.anchors
    assert probe.owed()
    idle(probe, SLOW)
    assert not probe.provisional
    assert probe.next_idle(1e9) is None
    later = [anchor for anchor in probe.anchors if anchor not in known]
    assert later
    assert all(seconds <= 0.5 for *_, seconds in later), "no pass so long that arriving work would suffer"


def test_attention_that_grows_with_the_square_is_seen() -> None:
    cost = Cost(5e-3, 1e-5, 2e-5, 1e-9)
    probe = Probe(32_768, 65_536, 32_000)
    first(probe, cost)
    idle(probe, cost)
    assert probe.cost is not None
    assert probe.cost.c3 == pytest.approx(1e-9, rel=0.1)
    assert probe.cost.seconds(*Shape(18_000, 256).sample) == pytest.approx(device(cost, Shape(18_000, 256)), rel=0.02)


def test_shapes_stay_within_the_limits() -> None:
    probe = Probe(context_tokens=2_100, pass_rows=3_000, view_tokens=2_050)
    first(probe, FAST)
    idle(probe, FAST)
    assert all(view + rows <= 3_000 for view, rows, *_ in probe.anchors)
    assert max(view for view, *_ in probe.anchors) == 2_000
    tiny = Probe(context_tokens=128, pass_rows=512, view_tokens=96)
    first(tiny, FAST)
    assert tiny.cost is not None


def test_what_fails_is_not_tried_again_and_nonsense_is_not_learnt() -> None:
    probe = Probe(32_768, 65_536, 32_000)
    elapsed, tried = 0.0, []
    while (shape := probe.next_first(elapsed)) is not None:
        tried.append(shape)
        if shape == QUICK[3]:
            probe.failed(shape)
        else:
            probe.note(shape, float("nan") if shape == QUICK[5] else device(FAST, shape))
            elapsed += device(FAST, shape)
    assert tried.count(QUICK[3]) == tried.count(QUICK[5]) == 1
    assert QUICK[3] not in probe.owed()
    assert QUICK[5] not in probe.owed()
    assert probe.cost is not None
    assert probe.cost.c1 == pytest.approx(FAST.c1, rel=0.05)


def test_several_requests_are_that_many_segments() -> None:
    shape = Shape(500, 4, 3)
    segments = shape.segments(300)
    assert [len(segment.tokens) for segment in segments] == [500] * 3
    assert [segment.rows for segment in segments] == [160] * 3
    assert shape.sample == (1500, 480, 3 * (125_000 + 80_000))


def test_constants_survive_a_restart_and_nothing_else_does(tmp_path) -> None:
    key = constants_key(model="m", device="cpu", numerics="fp32", build="1")
    other = constants_key(model="m", device="cpu throttled", numerics="fp32", build="1")
    assert key != other
    constants = Constants(key, FAST, ((500, 40, 145_000, 0.01),))
    assert load(tmp_path, key) is None
    save(tmp_path, constants)
    assert load(tmp_path, key) == constants
    assert load(tmp_path, other) is None
    file = next(tmp_path.glob("cost-*"))
    file.rename(tmp_path / f"cost-{other[:32]}.json")
    assert load(tmp_path, other) is None, "a copied file passes for nobody else's"
    for rubbish in (b"", b"{", b'{"key": 1}', b"x" * (300 << 10), constants_bytes(key, c0=-1.0)):
        (tmp_path / f"cost-{key[:32]}.json").write_bytes(rubbish)
        assert load(tmp_path, key) is None


def constants_bytes(key: str, c0: float) -> bytes:
    import msgspec

    return msgspec.json.encode({"key": key, "cost": {"c0": c0, "c1": 1e-5, "c2": 1e-5}, "anchors": []})


def test_the_folder_of_constants_has_an_end(tmp_path) -> None:
    for i in range(KEPT + 5):
        save(tmp_path, Constants(f"{i:064d}"[::-1], FAST, ()))
    assert len(list(tmp_path.glob("cost-*.json"))) == KEPT
    assert not list(tmp_path.glob("*.tmp"))


def test_a_disk_that_takes_nothing_is_no_reason_to_stop(tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("")
    save(tmp_path / "file", Constants("k", FAST, ()))
    assert "can't be kept" in caplog.text


def test_an_earlier_answer_is_believed_only_while_it_is_true() -> None:
    shapes = [Shape(500, 1), Shape(500, 16)]
    assert believable(FAST, [(shape, 1.3 * device(FAST, shape)) for shape in shapes])
    assert not believable(FAST, [(shape, 2.0 * device(FAST, shape)) for shape in shapes])
    assert not believable(FAST, [(shape, 0.5 * device(FAST, shape)) for shape in shapes])
