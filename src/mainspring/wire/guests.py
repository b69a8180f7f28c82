"""How many connections there are: open handshakes and members, in all and by address. Decides, opens nothing."""

import logging
from collections import Counter

HANDSHAKES = 256
HANDSHAKES_OF_ADDRESS = 32
CONNECTIONS = 4096


class Guests:
    """`enter` at the first byte, `join` when the peer was verified, `leave` at the end, once for each that entered."""

    def __init__(
        self, handshakes: int = HANDSHAKES, of_address: int = HANDSHAKES_OF_ADDRESS, connections: int = CONNECTIONS
    ) -> None:
        self.handshakes, self.of_address, self.connections = handshakes, of_address, connections
        self.members = 0
        self.turned_away = 0
        self._open: Counter[str] = Counter()

    @property
    def open_handshakes(self) -> int:
        return self._open.total()

    def enter(self, address: str) -> str | None:
        """None where it may, else why not."""
        if self.members + self._open.total() >= self.connections:
            return f"{self.connections} connections are open"
        if self._open.total() >= self.handshakes:
            return f"{self.handshakes} handshakes are open"
        if self._open[address] >= self.of_address:
            return f"{self.of_address} handshakes of this address are open"
        self._open[address] += 1
        return None

    def turn_away(self, log: logging.Logger, address: str, why: str) -> None:
        """Said in the log the first, second, fourth ... time: a flood must not fill the disk."""
        self.turned_away += 1
        if self.turned_away & (self.turned_away - 1) == 0:
            log.warning("turned away %s (the %d. so far): %s", address, self.turned_away, why)

    def join(self, address: str) -> None:
        self._close(address)
        self.members += 1

    def leave(self, address: str, *, joined: bool) -> None:
        if joined:
            self.members -= 1
        else:
            self._close(address)

    def _close(self, address: str) -> None:
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
