"""Devices behind one protocol. `open_backend` is the factory; importing this package loads no device library."""

from mainspring.backend.protocol import Backend, Limits, PackedPass, PassResult, open_backend

__all__ = ["Backend", "Limits", "PackedPass", "PassResult", "open_backend"]
