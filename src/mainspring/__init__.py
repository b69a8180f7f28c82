"""Mainspring serves hybrid linear-attention language models on hardware its users own.

`from mainspring import Scorer` is the in-process API; importing the package alone loads nothing heavy.
"""

from typing import TYPE_CHECKING, Any

from mainspring.version import __version__

if TYPE_CHECKING:
    from mainspring.scorer import Scorer as Scorer

__all__ = ["Scorer", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Scorer":
        from mainspring.scorer import Scorer

        return Scorer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
