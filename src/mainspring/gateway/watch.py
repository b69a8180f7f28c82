"""A coroutine that runs beside a task, from the callbacks of what it waits for.

A task of its own costs an object, a context and three turns of the loop, begun and cancelled for each request, though
nearly every one of them waits once and for nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Watch:
    """Begins `work` at once. `ended()` is called in the turn after its end, whatever that was; not after `close`.
    `work` must need no current task: a limit of time of its own, for instance."""

    def __init__(self, work: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        self._work, self._ended = work, ended
        self._awaited: asyncio.Future[Any] | None = None
        self._closed = False
        self._step()

    def close(self) -> None:
        self._closed = True
        if self._awaited is not None:
            self._awaited.remove_done_callback(self._step)
        self._work.close()

    def _step(self, _awaited: object = None) -> None:
        if self._closed:
            return
        try:
            awaited = self._awaited = self._work.send(None)
        except (Exception, asyncio.CancelledError):  # who can't be watched any more has ended too
            self._awaited = None
            asyncio.get_running_loop().call_soon(self._over)
            return
        if awaited is None:  # `sleep(0)`
            asyncio.get_running_loop().call_soon(self._step)
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._step)

    def _over(self) -> None:
        if not self._closed:
            self._ended()
