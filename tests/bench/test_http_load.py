"""The load generator: bodies, times, sending without coordinated omission, figures."""

import json
import os
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mainspring.bench.http.arrivals import arrivals
from mainspring.bench.http.figures import Ending, Endings, durations_ms, summarise
from mainspring.bench.http.processes import use_of
from mainspring.bench.http.run import Plan, load
from mainspring.bench.http.sender import Target
from mainspring.bench.http.traffic import Shape, Traffic
from mainspring.cli import main
from mainspring.hub import EMBEDDED, model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.formats import read_span
from support.http_service import Heard, Told, scored, service


def turns_of(body: bytes) -> list[str]:
    span = json.loads(body)["span"]
    return [turn["content"] for turn in (*span["input"], span["output"])]


def test_bodies_are_scorable_and_as_long_as_wanted() -> None:
    bundle = Bundle.load(model_folder(EMBEDDED))
    for share in (0.0, 0.5, 0.8):
        for body in islice(Traffic(Shape(tokens=8000, share=share)), 2, 5):
            told = json.loads(body)
            roles = [turn["role"] for turn in (*told["span"]["input"], told["span"]["output"])]
            assert roles == ["user", "assistant"] * (len(roles) // 2)
            assert len(told["behaviors"]) == 8
            view = bundle.view(read_span(told["span"]).span, limit_tokens=10_000)
            assert 7200 < len(view.tokens) < 8800


def test_half_came_before_and_never_the_whole() -> None:
    bodies = [turns_of(body) for body in islice(Traffic(Shape(tokens=4000, share=0.5)), 40)]
    assert len({tuple(turns) for turns in bodies}) == len(bodies)
    seen = set(bodies[0])
    for turns in bodies[1:]:
        known = sum(len(turn) for turn in turns if turn in seen)
        assert 0.4 < known / sum(map(len, turns)) < 0.6
        seen |= set(turns)


def test_turns_come_again_in_their_own_lane_only() -> None:
    turns = [set(turns_of(body)) for body in islice(Traffic(Shape(tokens=2000, lanes=2)), 12)]
    across = [turns[a] & turns[b] for a in range(12) for b in range(a) if (a - b) % 2]
    assert not any(across)
    assert all(any(turns[n] & turns[m] for m in range(n % 2, n, 2)) for n in range(2, 12))


def test_cold_bodies_share_nothing() -> None:
    bodies = list(islice(Traffic(Shape(tokens=2000, share=0.0, fresh_behaviors=True)), 30))
    turns = [turn for body in bodies for turn in turns_of(body)]
    definitions = [each["definition"] for body in bodies for each in json.loads(body)["behaviors"]]
    assert len(set(turns)) == len(turns)
    assert len(set(definitions)) == len(definitions)


def test_a_seed_repeats_a_run() -> None:
    first, same, other = (list(islice(Traffic(Shape(tokens=500), seed), 3)) for seed in (1, 1, 2))
    assert first == same != other


@pytest.mark.parametrize("wrong", [{"tokens": 1}, {"behaviors": 0}, {"share": 1.0}])
def test_shapes_have_limits(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Shape(**wrong)  # type: ignore[arg-type]


def test_poisson_arrivals_have_the_rate_and_the_spread() -> None:
    times = np.array(list(arrivals(100.0, 100.0, "poisson", 1)))
    gaps = np.diff(times)
    assert 9_600 < len(times) < 10_400  # four sigma
    assert times[-1] < 100.0
    assert 0.95 < gaps.std() / gaps.mean() < 1.05


def test_even_arrivals() -> None:
    assert list(arrivals(4.0, 1.0, "even")) == [0.0, 0.25, 0.5, 0.75]


def test_a_service_that_stops_does_not_stop_the_load() -> None:
    """It answers again only when the last request has come: a closed loop would wait for ever. Each of them waited from
    when it was due, so the earlier ones longer."""
    held = threading.Event()

    def told(number: int, heard: Heard) -> Told:
        if number == 49:
            held.set()
        elif number >= 20:
            held.wait(60.0)
        return scored(heard)

    with service(told) as there:
        target = Target(url=f"{there.url}/v1/scores")
        plan = Plan(rate=50.0, seconds=1.0, warmup_s=0.0, pattern="even", slice_s=0.2)
        report = load(target, Shape(tokens=100), plan)
    assert report.answered == report.planned == 50
    third, fourth, last = (each.p50_ms for each in report.slices[2:])
    assert third is not None
    assert fourth is not None
    assert last is not None
    assert third > fourth > last
    assert report.latency is not None
    assert report.latency.max > 500.0  # due at 0.4 s, answered when the last had come at 0.98 s


def test_endings_are_counted_by_status_and_reason() -> None:
    def told(number: int, heard: Heard) -> Told:
        if number % 2:
            return Told(429, {"detail": "later", "reason": "contention"})
        return scored(heard)

    with service(told) as there:
        target = Target(url=f"{there.url}/v1/scores", hang_up=0.3, patience_s=(0.0, 0.0))
        report = load(target, Shape(tokens=100), Plan(rate=200.0, seconds=0.5, warmup_s=0.0, pattern="even"))
    assert report.planned == 100
    assert report.reasons["429 contention"] > 0
    assert report.reasons["0 hung_up"] > 5
    assert report.answered + sum(report.reasons.values()) == 100
    assert report.refused is not None


def test_what_can_not_be_sent_is_said() -> None:
    with service(lambda _n, heard: Told(body=scored(heard).body, after_s=0.3)) as there:
        target = Target(url=f"{there.url}/v1/scores", most_open=3)
        report = load(target, Shape(tokens=100), Plan(rate=200.0, seconds=0.2, warmup_s=0.0, pattern="even"))
    assert report.reasons["0 not_sent"] >= 30
    assert report.answered + report.reasons["0 not_sent"] == 40


def test_hurry_and_terms_are_in_the_headers() -> None:
    with service(lambda _n, heard: scored(heard)) as there:
        target = Target(url=f"{there.url}/v1/scores", api_key="k", slo_class="batch", hurry=0.5, deadline_ms=5000.0)
        load(target, Shape(tokens=100), Plan(rate=200.0, seconds=0.2, warmup_s=0.0, pattern="even"))
    deadlines = [float(heard.headers["x-deadline-ms"]) for heard in there.heard]
    assert {heard.headers["x-slo-class"] for heard in there.heard} == {"batch"}
    assert {heard.headers["authorization"] for heard in there.heard} == {"Bearer k"}
    assert 5 < sum(20.0 <= each <= 200.0 for each in deadlines) < 35
    assert 5000.0 in deadlines


def test_a_share_comes_in_another_class_and_in_no_hurry() -> None:
    with service(lambda _n, heard: scored(heard)) as there:
        target = Target(url=f"{there.url}/v1/scores", slo_class="low", hurry=1.0, second=0.5, second_class="high")
        load(target, Shape(tokens=100), Plan(rate=200.0, seconds=0.2, warmup_s=0.0, pattern="even"))
    pairs = [(heard.headers["x-slo-class"], "x-deadline-ms" in heard.headers) for heard in there.heard]
    assert set(pairs) == {("low", True), ("high", False)}
    assert 5 < pairs.count(("high", False)) < 35


def test_figures_by_slice_and_without_the_warmup() -> None:
    ended = Endings()
    for index in range(40):
        slow = index >= 30
        ended.add(Ending(index / 10.0, 0.0, 0.2 if slow else 0.1, 200, "", "text;dur=5, queue;dur=30, device;dur=50"))
    report = summarise(ended, 10.0, 4.0, slice_s=1.0, warmup_s=1.0)
    assert (report.planned, report.answered, report.answered_rate) == (30, 30, 10.0)
    assert [(each.from_s, each.answered_rate, each.p50_ms) for each in report.slices] == [
        (1.0, 10.0, 100.0), (2.0, 10.0, 100.0), (3.0, 10.0, 200.0),
    ]  # fmt: skip
    assert report.server is not None
    assert report.server.min == pytest.approx(20.0)
    assert report.overhead is not None
    assert report.overhead.min == pytest.approx(50.0)  # the wait for a node is none of the pass's time
    assert "from s" in report.markdown()


def test_a_generator_that_fell_behind_says_so() -> None:
    ended = Endings()
    for index in range(100):
        ended.add(Ending(index / 100.0, 0.02, 0.1, 200))
    report = summarise(ended, 100.0, 1.0)
    assert not report.kept_up
    assert "fell behind" in report.markdown()


def test_server_timing() -> None:
    assert durations_ms("text;dur=1.5, queue;desc=x;dur=2,bad;dur=x, none") == {"text": 1.5, "queue": 2.0}
    assert durations_ms("") == {}


def test_reasons_are_bounded() -> None:
    ended = Endings()
    for index in range(1000):
        reason = ended.reason_of(json.dumps({"reason": f"r{index}"}).encode())
        ended.add(Ending(0.0, 0.0, 0.0, 400, reason))
    assert len(ended.reasons) <= 257
    assert ended.reason_of(b'{"error": {"code": "c"}}') in ("c", "other")
    assert ended.reason_of(b"[]") == ended.reason_of(b"\xff") == "unreadable"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_the_cpu_of_a_process() -> None:
    before = use_of(os.getpid())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    after = use_of(os.getpid())
    assert after.cpu_s - before.cpu_s >= 0.08
    assert after.rss_mib > 5.0
    assert after.waited_s >= before.waited_s


def test_the_wait_for_a_core_is_that_of_all_threads(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    fields = " ".join(["S", *["0"] * 10, "150", "50", *["0"] * 8, "256", "0"])
    for thread, told in {"7": "900 2500000000 3", "8": "100 500000000 1"}.items():
        (folder / "task" / thread).mkdir(parents=True)
        (folder / "task" / thread / "schedstat").write_text(told)
    (folder / "stat").write_text(f"7 (a name) {fields}")
    assert use_of(7, tmp_path).waited_s == pytest.approx(3.0)


def test_the_command() -> None:
    with service(lambda _n, heard: scored(heard)) as there:
        run = CliRunner().invoke(
            main,
            ["bench", "load", there.url, "--rate", "50", "--seconds", "0.4", "--warmup", "0", "--tokens", "100",
             "--pid", f"me={os.getpid()}", "--even"],
        )  # fmt: skip
    assert run.exit_code == 0, run.output
    assert "20 requests at 50/s" in run.output
    assert "| me |" in run.output


def test_a_service_that_answers_nothing_is_a_failure() -> None:
    with service(lambda _n, _h: Told(503, {"detail": "no", "reason": "no_node"})) as there:
        run = CliRunner().invoke(
            main, ["bench", "load", there.url, "--rate", "20", "--seconds", "0.2", "--warmup", "0", "--tokens", "100"]
        )
    assert run.exit_code != 0
    assert "503 no_node" in run.output
