"""Which of the router's keys prefix checkpoints are kept under, as the device's thread told it last. Pure.

The engine's own keys are of tokens; these are the names that the router chose, of beginnings of prompts.
"""

from collections.abc import Iterable


class PrefixKeys:
    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._touched: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def changed(self) -> bool:
        return bool(self._touched)

    def note(self, gained: Iterable[tuple[str, int]], dropped: Iterable[str]) -> None:
        for key, tokens in gained:
            self._held[key] = tokens
            self._touched[key] = None
        for key in dropped:
            self._held.pop(key, None)
            self._touched[key] = None

    def changes(self, limit: int) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """(gained with tokens, dropped) since the last call, by what is true now, at most `limit` keys; the rest comes
        with the next call."""
        touched = list(self._touched)[: max(0, limit)]
        for key in touched:
            del self._touched[key]
        gained = tuple((key, self._held[key]) for key in touched if key in self._held)
        return gained, tuple(key for key in touched if key not in self._held)

    def all(self) -> tuple[tuple[str, int], ...]:
        """Everything, for a router that knows nothing: changes so far are said with it."""
        self._touched.clear()
        return tuple(self._held.items())
