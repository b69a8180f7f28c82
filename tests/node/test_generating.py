"""Whether a node serves streams."""

from types import SimpleNamespace
from typing import Any

import pytest

from mainspring.backend.cuda.backend import CudaBackend
from mainspring.errors import DeviceError, InputError
from mainspring.node.generating import Generating


class Untried:
    """A device whose generation no card has run: to be asked for by number of slots."""

    generation_untried = True
    limits = SimpleNamespace(vocab_size=10, context_tokens=100)
    asked = 0

    def generation(self, _: Any) -> Any:
        self.asked += 1
        raise DeviceError("asked")


def of(backend: Any, slots: int | None) -> Generating | None:
    config: Any = SimpleNamespace(
        slots=slots, block_rows=2, deterministic=False, prefix_mib=1, drafter="", stream_tokens=None
    )
    bundle: Any = SimpleNamespace(eos_ids=(1,), tokenizer=SimpleNamespace(vocab_size=10))
    return Generating.of(backend, config, bundle, SimpleNamespace())  # type: ignore[arg-type]


def test_a_device_that_no_card_has_tried_generates_only_where_it_is_told_to() -> None:
    assert CudaBackend.generation_untried
    backend = Untried()
    assert of(backend, None) is None
    assert backend.asked == 0
    with pytest.raises(InputError, match="asked"):
        of(backend, 2)
    assert backend.asked == 1


def test_others_are_asked() -> None:
    backend = Untried()
    backend.generation_untried = False
    assert of(backend, None) is None
    assert backend.asked == 1
