"""Whether a node serves streams."""

from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring.backend.null import NullBackend
from mainspring.backend.null_slots import NullSlots
from mainspring.backend.protocol import Limits
from mainspring.errors import DeviceError, InputError
from mainspring.hub import EMBEDDED, model_folder
from mainspring.node.config import NodeConfig
from mainspring.node.generating import Generating
from mainspring.node.opening import is_scorer, open_node


class Unable:
    """A device that does not generate when it comes to it."""

    limits = SimpleNamespace(vocab_size=10, context_tokens=100, kept_bytes=1)
    asked = 0

    def generation(self, _: Any) -> Any:
        self.asked += 1
        raise DeviceError("asked")


def of(backend: Any, slots: int | None, *, prefix_mib: int | None = 1, **more: bool) -> Generating | None:
    config: Any = SimpleNamespace(
        slots=slots, block_rows=2, deterministic=False, prefix_mib=prefix_mib, drafter="", stream_tokens=None
    )
    bundle: Any = SimpleNamespace(eos_ids=(1,), tokenizer=SimpleNamespace(vocab_size=10))
    return Generating.of(backend, config, bundle, perf_counter, **more)


def test_a_device_that_can_not_is_at_fault_only_where_it_was_told_to() -> None:
    backend = Unable()
    assert of(backend, None) is None
    with pytest.raises(InputError, match="asked"):
        of(backend, 2)
    assert backend.asked == 2


@pytest.mark.parametrize("call", ["prefill_slot", "round"])
def test_a_device_that_breaks_down_when_it_is_measured_still_scores(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that lacks what kernels want says so at the first prompt or round, not when slots are made."""

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of resource: shared memory")

    monkeypatch.setattr(NullSlots, call, fail)
    assert of(NullBackend(), None) is None
    with pytest.raises(InputError, match=r"no stream can be served here: the .* \(RuntimeError\)") as caught:
        of(NullBackend(), 2)
    assert caught.value.param == "slots"


@pytest.mark.parametrize(("said", "cap"), [(None, 12_345), (0, 0), (3, 3 << 20)])
def test_memory_for_checkpoints_is_the_devices_where_nobody_says_how_much(said: int | None, cap: int) -> None:
    generating = of(NullBackend(Limits(1000, 100, 300, 12_345)), None, prefix_mib=said)
    assert generating is not None
    assert generating.writer._streams.prefixes.cap_bytes == cap


def test_a_scorer_offers_slots_only_where_it_is_told_to(tmp_path: Path) -> None:
    backend = Unable()
    assert of(backend, None, only_scores=True) is None
    assert backend.asked == 0
    with pytest.raises(InputError, match="asked"):
        of(backend, 2, only_scores=True)
    assert is_scorer(model_folder(EMBEDDED))
    assert not is_scorer(tmp_path)
    for name, scorer in (("scoring.json", True), ("generation_config.json", False)):
        (tmp_path / name).write_text("{}")
        assert is_scorer(tmp_path) is scorer


def test_a_node_of_the_embedded_scorer_has_no_slots() -> None:
    """It names an end token, which alone would have it measure rounds at start and offer slots."""
    opened = open_node(NodeConfig(join="127.0.0.1:1", model=EMBEDDED, tls="", state="", probe_s=0.0, threads=1),
                       perf_counter)  # fmt: skip
    assert opened.engine.store.budget_bytes == 256 << 20
    assert opened.generating is None
    assert opened.offering.limits.slots == 0
    assert opened.offering.offer().round_cost is None


def test_a_disk_for_prompts_needs_streams() -> None:
    config = NodeConfig(join="127.0.0.1:1", model=EMBEDDED, tls="", state="", probe_s=0.0, threads=1, prefix_disk="x")
    with pytest.raises(InputError, match="no streams are served here"):
        open_node(config, perf_counter)
