"""A limit of time that costs no timer where nothing has to be waited for.

Bodies are mostly here before anybody reads them and answers go out at once: a timer of the loop for each of them, set
and taken back, is a tenth of a millisecond a request where the loop's code is not in the processor's caches.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def within(limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. TimeoutError after `limit_s`, counted from its first wait; what `work` raises."""
    try:
        awaited = work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    async with asyncio.timeout(limit_s):
        rest: T = await _Rest(work, awaited)
        return rest


class _Rest:
    """A coroutine that was begun by hand and now waits for `awaited`."""

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work, self._awaited = work, awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = self._awaited
        try:
            while True:
                try:
                    sent = yield awaited
                except GeneratorExit:
                    self._work.close()
                    raise
                except BaseException as error:
                    awaited = self._work.throw(error)
                else:
                    awaited = self._work.send(sent)
        except StopIteration as ended:
            return ended.value
