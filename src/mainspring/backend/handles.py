"""Integer handles for what a backend keeps. No number is used twice: a stale handle can't reach another state."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Handles(Generic[T]):
    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._next = 0

    def add(self, item: T) -> int:
        handle, self._next = self._next, self._next + 1
        self._items[handle] = item
        return handle

    def __getitem__(self, handle: int) -> T:
        try:
            return self._items[handle]
        except KeyError:
            raise ValueError(f"no state has handle {handle}") from None

    def replace(self, handle: int, item: T) -> None:
        self[handle]
        self._items[handle] = item

    def remove(self, handle: int) -> None:
        self[handle]
        del self._items[handle]

    def __len__(self) -> int:
        return len(self._items)
