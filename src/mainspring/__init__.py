"""Mainspring serves hybrid linear-attention language models on hardware its users own.

`from mainspring import Scorer, Generator` is the in-process API, `Client` and `AsyncClient` speak to a service.
Importing the package alone loads nothing heavy.
"""

from typing import TYPE_CHECKING, Any

from mainspring.version import __version__

if TYPE_CHECKING:
    from mainspring.client import AsyncClient as AsyncClient
    from mainspring.client import Client as Client
    from mainspring.generator import Generator as Generator
    from mainspring.scorer import Scorer as Scorer

__all__ = ["AsyncClient", "Client", "Generator", "Scorer", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client"):
        from mainspring import client

        return getattr(client, name)
    if name == "Scorer":
        from mainspring.scorer import Scorer

        return Scorer
    if name == "Generator":
        from mainspring.generator import Generator

        return Generator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
