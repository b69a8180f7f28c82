"""Host logic on ints and numpy, the same for every device: work in, packed passes out, kept views looked after."""

from mainspring.engine.engine import Engine
from mainspring.engine.work import Branch, Work

__all__ = ["Branch", "Engine", "Work"]
