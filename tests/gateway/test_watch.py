"""A coroutine beside a task: what ends it is told once, in the turn after, and never after it was closed."""

import asyncio
from typing import Any

import pytest

from mainspring.gateway.watch import Watch
from support.gateway import play


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def ends(how: str) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if how == "cancelled":
        future.cancel()
    elif how == "failed":
        future.set_exception(OSError("gone"))
    else:
        future.set_result(1)
    return future


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
@pytest.mark.parametrize("later", [False, True])
def test_its_end_is_told_once_however_it_ended(how: str, later: bool) -> None:
    async def scene() -> None:
        told: list[int] = []

        async def work() -> None:
            if later:
                await asyncio.sleep(0)
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            await ends(how)

        watch = Watch(work(), lambda: told.append(1))
        assert told == []
        await asyncio.sleep(0.05)
        await turns()
        assert told == [1]
        watch.close()

    play(scene())


@pytest.mark.parametrize("before_turn", [True, False])
def test_nothing_is_told_once_it_is_closed(before_turn: bool) -> None:
    async def scene() -> None:
        told: list[int] = []
        end = asyncio.get_running_loop().create_future()
        left: list[int] = []

        async def work() -> None:
            try:
                await end
            finally:
                left.append(1)

        watch = Watch(work(), lambda: told.append(1))
        end.set_result(None)
        if not before_turn:
            await asyncio.sleep(0)  # the work has ended, and that is to be told in the next turn
        watch.close()
        await turns()
        assert (told, left) == ([], [1])

    play(scene())
