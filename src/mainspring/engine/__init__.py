"""Host logic on ints and numpy, the same for every device: work in, packed passes out, kept views looked after."""

from mainspring.engine.engine import Engine, Ran
from mainspring.engine.work import Branch, CheckpointGoneError, Segment, Work

__all__ = ["Branch", "CheckpointGoneError", "Engine", "Ran", "Segment", "Work"]
