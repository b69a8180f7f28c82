"""What a node offers: the model key, its bundle, numerics, limits, cost.

The model key is the hash of weights and bundle: nodes answer for each other only with equal keys. Hashing gigabytes
takes seconds, so the digest of a file is remembered on disk by name, size and time of change.
"""

import hashlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from mainspring.backend.gauges import Gauges, gauges_of
from mainspring.backend.protocol import Backend
from mainspring.core.nouns import Limits
from mainspring.errors import ModelError
from mainspring.faultlog import log_fault
from mainspring.node.probe import Probe
from mainspring.node.roundfit import RoundFit
from mainspring.wire import messages as m
from mainspring.wire.records import Numerics

log = logging.getLogger(__name__)

COLDEST_C, HOTTEST_C = -100.0, 500.0
"""Beyond, a sensor is broken."""
QUESTION_TOKENS = 1024
PASS_PARTS = 256
DIGESTS = 256
CHUNK = 1 << 20


class Offering:
    """Made once; `offer()` says it with the cost that is known by then. ModelError without a cost."""

    def __init__(
        self,
        *,
        model: str,
        alias: str,
        bundle: str,
        packed: bytes,
        backend: Backend,
        limits: Limits,
        probe: Probe,
        labels: dict[str, str] | None = None,
        round_fit: RoundFit | None = None,
    ) -> None:
        self.model, self.alias, self.bundle, self.packed = model, alias, bundle, packed
        self.limits, self.probe = limits, probe
        self._numerics, self._device = backend.numerics, backend.device
        self._backend = backend
        self._blind = False
        self.sha256 = hashlib.sha256(packed).hexdigest()
        self._labels = labels or {}
        self._round_fit = round_fit

    def offer(self, *, generates: bool = True) -> m.Offer:
        """`generates` False: to a router that knows no streams."""
        fit = self._round_fit if generates and self.limits.slots else None
        limits = self.limits if fit is not None else replace(self.limits, slots=0)
        if self.probe.cost is None:
            raise ModelError("no pass could be measured, so nothing can be offered")
        return m.Offer(
            model=self.model, alias=self.alias, bundle=self.bundle, bundle_bytes=len(self.packed),
            bundle_sha256=self.sha256, numerics=cast(Numerics, self._numerics), cost=self.probe.cost,
            limits=limits, round_cost=None if fit is None else fit.tell(), anchors=self.probe.anchors,
            provisional=self.probe.provisional, device=self._device, labels=self._labels,
        )  # fmt: skip

    def gauges(self) -> Gauges:
        """Memory and temperature, each within what the wire takes or None. One that breaks is said once, and never
        asked again: a report must not fail by it."""
        if self._blind:
            return Gauges()
        try:
            told = gauges_of(self._backend)
            celsius = told.temperature_c
            sane = celsius is not None and COLDEST_C <= celsius <= HOTTEST_C
            return Gauges(_count(told.memory_bytes), _count(told.memory_total_bytes), celsius if sane else None)
        except Exception as error:
            log_fault(log, error, "the device can't tell its memory and temperature")
            self._blind = True
            return Gauges()


def _count(value: int | None) -> int | None:
    return None if value is None or not 0 <= value <= 1 << 53 else int(value)


def limits_of(
    backend: Backend, cache_bytes: int, kept: "StateSize", slots: int = 0, stream_tokens: int | None = None
) -> Limits:
    """A view that is scanned in chunks has to fit the cache between them, as `kept`. `slots` streams of at most
    `stream_tokens` (None: the model's context) each.

    The model's context is shared by view and branch, so a question of usual length is left room.
    """
    held = backend.limits
    view = held.context_tokens - min(QUESTION_TOKENS, held.context_tokens // 4)
    fits = kept.tokens_in(cache_bytes) if cache_bytes else held.pass_rows
    stream = min(held.context_tokens, stream_tokens or held.context_tokens)
    return Limits(held.pass_rows, PASS_PARTS, max(1, min(view, fits)), slots, max(1, slots) * stream, stream)


class StateSize(NamedTuple):
    """Device memory of a kept view, bytes: what any has (recurrent state, convolution) and what each token adds."""

    fixed: int
    a_token: int

    def tokens_in(self, room: int) -> int:
        return max(0, room - self.fixed) // max(1, self.a_token)


def state_size(backend: Backend) -> StateSize:
    """From two views, rounded up."""
    long = min(512, backend.limits.context_tokens)
    short = max(1, long // 4)
    few, many = _state_bytes(backend, short), _state_bytes(backend, long)
    a_token = -(-(many - few) // max(1, long - short))
    return StateSize(max(0, many - a_token * long), a_token)


def _state_bytes(backend: Backend, tokens: int) -> int:
    state = backend.prefill(np.zeros(tokens, np.int64))
    try:
        return backend.state_bytes(state)
    finally:
        backend.release(state)


def model_key(folder: Path, bundle: str, state_folder: Path | None = None) -> str:
    """Hash of weights, config and bundle. ModelError where a file can't be read."""
    digest = hashlib.sha256(bundle.encode())
    known = _read_digests(state_folder)
    try:
        for path in sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")]):
            digest.update(path.name.encode() + b"\0" + _digest(path, known).encode())
    except OSError as error:
        raise ModelError(f"{folder} can't be read: {error.strerror}") from None
    _write_digests(state_folder, known)
    return digest.hexdigest()


def _digest(path: Path, known: dict[str, str]) -> str:
    stat = path.stat()
    place = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    if place not in known:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        known[place] = digest.hexdigest()
    return known[place]


def _read_digests(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {}
    try:
        return msgspec.json.decode((folder / "digests.json").read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_digests(folder: Path | None, known: dict[str, str]) -> None:
    """The latest ones; where the disk takes none, the next start hashes again."""
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / "digests.tmp"
        temporary.write_bytes(msgspec.json.encode(dict(list(known.items())[-DIGESTS:])))
        temporary.replace(folder / "digests.json")
