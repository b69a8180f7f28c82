"""Dialling a listener of this process: `memory` under a real event loop. Frames and link are those of the other
transports; what TLS would protect never leaves the process."""

import asyncio

from mainspring.wire.memory import MemoryConnection, Network, connect
from mainspring.wire.transport import Accept, Identity


class InProcess:
    """What a dialer is given in a transport's place. `accept` is the listener's; `dialer`, `listener`: who is who."""

    def __init__(self, dialer: Identity, listener: Identity, accept: Accept) -> None:
        self._dialer, self._listener, self._accept = dialer, listener, accept

    async def dial(self, _host: str, _port: int, accept: Accept) -> MemoryConnection:
        """A listener that won't have the dialer closes it, as on every transport."""
        left, _ = connect(
            Network(asyncio.get_running_loop().call_later), self._dialer, self._listener, accept, self._accept
        )
        return left
