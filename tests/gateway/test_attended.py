"""Work that is given up when its client leaves, and the turns in which both end at once."""

import asyncio
import gc
from typing import Any, cast

import pytest
from starlette.requests import Request

from mainspring.fleet.errors import RequestRefusedError
from mainspring.gateway.body import attended
from mainspring.gateway.calls import ScoreCall
from mainspring.gateway.errors import HangUpError
from support.gateway import SCORES, ScriptedFleet, play, served

LEAVES = {"type": "http.disconnect"}


class Line:
    """A request whose body was read: what `receive` waits for is its end."""

    def __init__(self) -> None:
        self.end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def receive(self) -> Any:
        return await self.end


async def answered(line: Line, work: "asyncio.Future[int]") -> int:
    async def waited() -> int:
        return await work

    found = await attended(cast(Request, line), waited())
    for _ in range(4):  # the answer is sent: nothing may be cancelled here any more
        await asyncio.sleep(0)
    return found


@pytest.mark.parametrize("first", ["client", "work"])
def test_a_client_that_leaves_as_the_work_ends_cancels_nothing_behind_it(first: str) -> None:
    async def scene() -> None:
        line, work = Line(), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(answered(line, work))
        await asyncio.sleep(0.01)
        ends = [lambda: line.end.set_result(LEAVES), lambda: work.set_result(7)]
        for end in ends if first == "client" else reversed(ends):
            end()
        assert await task == 7
        assert task.cancelling() == 0

    play(scene())


def test_a_client_that_leaves_before_ends_the_work() -> None:
    async def scene() -> None:
        line, work = Line(), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(answered(line, work))
        await asyncio.sleep(0)
        line.end.set_result(LEAVES)
        with pytest.raises(HangUpError):
            await task
        assert work.cancelled()
        assert task.cancelling() == 0

    play(scene())


@pytest.mark.parametrize("key", [False, True])
def test_a_refusal_keeps_no_text_until_the_collector_comes(key: bool) -> None:
    """Its traceback holds the frames, with the texts in them, and a frame may hold what holds it."""

    async def scene() -> None:
        fleet = ScriptedFleet()
        async with served(fleet) as s:
            await s.post("/v1/scores", SCORES)
            fleet.error = RequestRefusedError("contention", "late", status=429, retry_after_s=1.0)
            gc.collect()
            gc.disable()
            try:
                for number in range(3):
                    named = {"idempotency_key": str(number)} if key else {}
                    assert (await s.post("/v1/scores", SCORES, **named)).status == 429
                fleet.error = None  # it is ours, and holds them as well
                await asyncio.sleep(0.01)
                gc.set_debug(gc.DEBUG_SAVEALL)
                gc.collect()
                assert [each for each in gc.garbage if isinstance(each, ScoreCall)] == []
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()

    play(scene())
