"""A few threads for work on text, and a bound on what waits for them.

The tokenizer lets go of the interpreter, so the loop goes on; what is pure Python there costs the loop its share.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from mainspring.gateway.errors import RETRY_S, BusyError

T = TypeVar("T")


class Pool:
    """Use from one loop. `outstanding` counts what runs and what waits."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="text")
        self._most = threads + waiting
        self._waiting = waiting
        self.outstanding = 0

    async def run(self, work: Callable[[], T]) -> T:
        """BusyError where as much waits as may. Cancelled: what waits is taken back, what runs is left to end."""
        if self.outstanding >= self._most:
            raise BusyError(
                f"limits.assembling: {self._waiting} requests wait to be tokenised already",
                retry_after_s=RETRY_S, limit=self._waiting, actual=self._waiting + 1,
            )  # fmt: skip
        loop = asyncio.get_running_loop()
        self.outstanding += 1
        job: Future[T] = self._threads.submit(work)
        job.add_done_callback(lambda _: _back(loop, self._less))
        return await asyncio.wrap_future(job)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _less(self) -> None:
        self.outstanding -= 1


def _back(loop: asyncio.AbstractEventLoop, do: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(do)
