"""One computation for all requests with the same idempotency key: a retry joins what runs, or gets what was answered.

Kept by tenant, route and key; a digest of the body tells another request under the same key. Errors are not kept: the
retry computes. The computation is cancelled when the last who waits for it is gone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mainspring.gateway.errors import BusyError, IdempotencyError

KEPT_BYTES = 256 << 10
T = TypeVar("T")
Name = tuple[str, str, str]


@dataclass(eq=False)
class Entry(Generic[T]):
    digest: bytes
    task: "asyncio.Task[T]"
    waiting: int = 0
    ended_s: float | None = None


def is_kept(answer: tuple[bytes, object]) -> bool:
    """A longer one is not kept for retries."""
    return len(answer[0]) <= KEPT_BYTES


class Shared(Generic[T]):
    """At most `most` entries; answered ones for `seconds`, the oldest of them dropped first. `kept(answer)` False: too
    large to be kept, a retry computes again."""

    def __init__(
        self, most: int, seconds: float, now_s: Callable[[], float], kept: Callable[[T], bool] = lambda _: True
    ) -> None:
        self._most, self._seconds, self._now_s, self._kept = most, seconds, now_s, kept
        self._entries: OrderedDict[Name, Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, name: Name) -> bool:
        """Who asks now would join it, or be told of another body."""
        return name in self._entries

    async def get(self, name: Name, digest: bytes, compute: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """(the answer, whether it was there or under way). IdempotencyError; what `compute` raises."""
        self._forget_old()
        entry = self._entries.get(name)
        if entry is not None and entry.digest != digest:
            raise IdempotencyError("this key came with another body before", param="idempotency-key")
        joined = entry is not None
        if entry is None:
            entry = self._begin(name, digest, compute)
        entry.waiting += 1
        try:
            return await asyncio.shield(entry.task), joined
        finally:
            entry.waiting -= 1
            if not entry.waiting and not entry.task.done():
                self._drop(name, entry)
                entry.task.cancel()
            # A refusal's traceback holds this frame, and the entry's task the refusal: a ring with the texts in it.
            del entry

    def _begin(self, name: Name, digest: bytes, compute: Callable[[], Awaitable[T]]) -> Entry[T]:
        while len(self._entries) >= self._most:
            done = next((name for name, entry in self._entries.items() if entry.ended_s is not None), None)
            if done is None:
                raise BusyError(f"limits.idempotent: {self._most} requests with an idempotency key are open",
                                retry_after_s=1.0, limit=self._most)  # fmt: skip
            del self._entries[done]

        async def run() -> T:
            return await compute()

        entry = self._entries[name] = Entry(digest, asyncio.create_task(run()))
        entry.task.add_done_callback(lambda task: self._ended(name, entry, task))
        return entry

    def _ended(self, name: Name, entry: Entry[T], task: "asyncio.Task[T]") -> None:
        if task.cancelled() or task.exception() is not None or not self._kept(task.result()):
            self._drop(name, entry)
        else:
            entry.ended_s = self._now_s()

    def _drop(self, name: Name, entry: Entry[T]) -> None:
        if self._entries.get(name) is entry:
            del self._entries[name]

    def _forget_old(self) -> None:
        before_s = self._now_s() - self._seconds
        for name in [
            name for name, entry in self._entries.items() if entry.ended_s is not None and entry.ended_s < before_s
        ]:
            del self._entries[name]
