"""What a device tells of itself beside its work: memory and temperature, where anything knows them."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

PACKAGE = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal", "acpitz")
"""Thermal zones that speak for the whole processor, the best first."""


@dataclass(frozen=True)
class Gauges:
    """None: nothing knows. `memory_bytes` of `memory_total_bytes` are in use: of the device's own memory, or by this
    process of the machine's."""

    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None


@runtime_checkable
class Gauged(Protocol):
    """A backend that knows. Asked every few seconds from another thread while passes run: quick, and never waits for
    the device."""

    def gauges(self) -> Gauges: ...


def gauges_of(backend: object) -> Gauges:
    """All None where the backend does not know."""
    return backend.gauges() if isinstance(backend, Gauged) else Gauges()


def of_this_process(proc: Path = Path("/proc"), thermal: Path = Path("/sys/class/thermal")) -> Gauges:
    """A CPU: resident memory, the machine's, its package's temperature. Where there is no /proc (macOS), the total."""
    used: int | None = None
    total: int | None = None
    with suppress(OSError, ValueError, IndexError):
        used = int((proc / "self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Gauges(used, total, _temperature_c(thermal))


def _temperature_c(thermal: Path) -> float | None:
    found: dict[str, float] = {}
    for zone in thermal.glob("thermal_zone*"):
        with suppress(OSError, ValueError):
            found.setdefault((zone / "type").read_text().strip(), int((zone / "temp").read_text()) / 1000.0)
    return next((found[kind] for kind in PACKAGE if kind in found), None)
