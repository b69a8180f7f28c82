"""What running a job came to."""

from dataclasses import dataclass, field

import numpy as np

from mainspring.node.writer import Wrote


@dataclass(frozen=True)
class Outcome:
    """`logits` [labels] a branch, a part; `seconds` of the device, after a sync. With `error` nothing else counts but
    the seconds. `unkept`: parts whose end later work was to build on and that found no room; `missing`: store keys
    that the pass builds on and that were gone. `wrote`: what became of streams, also where the rest failed."""

    logits: list[list[np.ndarray]] = field(default_factory=list)
    seconds: float = 0.0
    unkept: tuple[int, ...] = ()
    error: BaseException | None = None
    missing: tuple[bytes, ...] = ()
    wrote: Wrote = field(default_factory=Wrote)
