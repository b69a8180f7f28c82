"""What is counted of a profiler's trace: host waits, unpinned copies, the device's idle share."""

import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = str(Path(__file__).parents[2] / "bench")
MODULES = ("generate_floors", "generate_gpu", "round_trace", "shapes")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script's module and, as `trace`, the one that reads traces: neighbours by name."""
    monkeypatch.syspath_prepend(BENCH)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import generate_gpu
    import round_trace

    generate_gpu.trace = round_trace  # type: ignore[attr-defined]
    yield generate_gpu
    for name in MODULES:
        sys.modules.pop(name, None)


def event(kind: str, name: str, at: float, lasts: float) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": at, "dur": lasts}


def trace(*events: dict[str, Any]) -> dict[str, Any]:
    """A span of 100 us from 1,000 on, which began with a round's kernel half done."""
    span = event("user_annotation", "steady rounds", 1000.0, 100.0)
    return {"traceEvents": [{"ph": "M", "name": "process_name"}, span, event("kernel", "step", 990.0, 20.0), *events]}


def test_busy_is_a_union_within_the_span(bench: Any) -> None:
    seen = bench.trace.read(
        trace(
            event("kernel", "down", 1020.0, 20.0),
            event("kernel", "beside it", 1025.0, 5.0),
            event("gpu_memset", "Memset (Device)", 1035.0, 10.0),
            event("kernel", "until after the end", 1090.0, 50.0),
            event("kernel", "behind the end", 1200.0, 50.0),
            event("cpu_op", "aten::copy_", 1050.0, 30.0),
        ),
        rounds=2,
    )
    assert (seen.wall_us, seen.busy_us) == (100.0, 10.0 + 25.0 + 10.0)
    assert seen.launches == 3  # that began within
    assert seen.idle() == pytest.approx(0.55)
    assert seen.idle(45.0) == pytest.approx(0.5)  # rounds of 45 us when nobody records


def test_waits_are_calls_that_wait_and_copies_that_are_not_pinned(bench: Any) -> None:
    seen = bench.trace.read(
        trace(
            event("cuda_runtime", "cudaEventSynchronize", 1010.0, 5.0),
            event("cuda_runtime", "cudaEventSynchronize", 1060.0, 5.0),
            event("cuda_driver", "cuStreamSynchronize", 1070.0, 5.0),
            event("cuda_runtime", "cudaDeviceSynchronize", 1101.0, 5.0),  # the recorder's own, at its end
            event("cuda_runtime", "cudaGraphLaunch", 1011.0, 5.0),
            event("cuda_runtime", "cudaMemcpyAsync", 1012.0, 5.0),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1013.0, 1.0),
            event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1014.0, 1.0),
        ),
        rounds=2,
    )
    assert seen.waits == {"cudaEventSynchronize": 2, "cuStreamSynchronize": 1}
    assert seen.copies == {"Memcpy HtoD (Pageable -> Device)": 1}
    assert seen.counted() == (
        "Memcpy HtoD (Pageable -> Device) 0.50, cuStreamSynchronize 0.50, cudaEventSynchronize 1.00"
    )
    assert bench.trace.read(trace(), rounds=2).counted() == "none"


def test_a_trace_of_nothing_is_no_figure(bench: Any) -> None:
    with pytest.raises(ValueError, match="0 spans"):
        bench.trace.read({"traceEvents": []}, rounds=2)
    with pytest.raises(ValueError, match="does the profiler see the device"):
        bench.trace.read({"traceEvents": trace()["traceEvents"][:2]}, rounds=2)


def test_a_failing_profiler_costs_its_row_only(bench: Any) -> None:
    def failing() -> str:
        raise RuntimeError("no rights to counters")

    case = bench.CASES[0]
    assert bench.or_reason(case, lambda: "| a row |") == "| a row |"
    assert bench.or_reason(case, failing) == "0.8B, 1 x 1 row at 1,024: RuntimeError: no rights to counters"
