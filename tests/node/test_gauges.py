"""Memory and temperature in reports: what the device knows, None where it does not, and no report fails by it."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.backend.gauges import Gauges, gauges_of, of_this_process
from mainspring.backend.null import NullBackend
from mainspring.backend.throttled import ThrottledBackend
from mainspring.backend.torch_cpu import TorchBackend
from support.models import tiny_model
from support.nodes import NodeRig


def test_a_cpu_node_reports_its_memory() -> None:
    backend = TorchBackend(tiny_model())
    rig = NodeRig(backend).join()
    told = rig.reports[-1]
    assert told.memory_bytes is not None
    assert told.memory_total_bytes is not None
    assert 50 << 20 < told.memory_bytes < told.memory_total_bytes
    throttled = gauges_of(ThrottledBackend(backend, 2.0))
    assert throttled.memory_total_bytes == told.memory_total_bytes


def test_a_device_that_does_not_know_says_none() -> None:
    assert gauges_of(NullBackend()) == gauges_of(ThrottledBackend(NullBackend(), 2.0)) == Gauges(None, None, None)
    told = NodeRig().join().reports[-1]
    assert (told.memory_bytes, told.memory_total_bytes, told.temperature_c) == (None, None, None)


@pytest.mark.parametrize(
    "wild", [Gauges(-1, 1 << 60, float("nan")), Gauges(None, None, float("inf")), Gauges(0, -5, -274.0)]
)
def test_a_broken_sensor_costs_no_link(monkeypatch: pytest.MonkeyPatch, wild: Gauges) -> None:
    monkeypatch.setattr(NullBackend, "gauges", lambda _self: wild, raising=False)
    rig = NodeRig().join()
    rig.run(5.0)
    told = rig.reports[-1]
    assert told.temperature_c is None
    assert told.memory_total_bytes is None
    assert not rig.ended


def no_driver(_self: NullBackend) -> Gauges:
    raise RuntimeError("no driver")


@pytest.mark.parametrize("broken", [no_driver, lambda _self: None, lambda _self: Gauges("5 GiB")])
def test_a_backend_that_breaks_when_asked_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: Callable[[NullBackend], Gauges]
) -> None:
    monkeypatch.setattr(NullBackend, "gauges", broken, raising=False)
    with caplog.at_level(logging.ERROR):
        rig = NodeRig().join()
        rig.run(10.0)
    assert len(rig.reports) > 3
    assert caplog.text.count("can't tell its memory") == 1


def test_the_package_s_temperature_comes_first_and_nonsense_is_passed_over(tmp_path: Path) -> None:
    for number, (kind, text) in enumerate([("acpitz", "27800"), ("x86_pkg_temp", "61500"), ("iwlwifi", "99000")]):
        zone = tmp_path / f"thermal_zone{number}"
        zone.mkdir()
        (zone / "type").write_text(kind + "\n")
        (zone / "temp").write_text(text + "\n")
    assert of_this_process(thermal=tmp_path).temperature_c == 61.5
    (tmp_path / "thermal_zone1" / "temp").write_text("")
    assert of_this_process(thermal=tmp_path).temperature_c == 27.8
    nothing = of_this_process(tmp_path / "none", tmp_path / "none")
    assert (nothing.memory_bytes, nothing.temperature_c) == (None, None)
    assert nothing.memory_total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
