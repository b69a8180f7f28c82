"""A limit of time around a coroutine that is begun before there is a timer."""

import asyncio

import pytest

from mainspring.gateway.within import within


def test_what_waits_for_nothing_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once() -> int:
        return 3

    def never(_limit_s: float) -> None:
        raise AssertionError("a timer was set")

    monkeypatch.setattr(asyncio, "timeout", never)
    assert asyncio.run(within(1.0, at_once())) == 3


def test_what_waits_goes_on_where_it_was() -> None:
    steps: list[int] = []

    async def work() -> str:
        for step in range(3):
            steps.append(step)
            await asyncio.sleep(0.001 * step)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        loop.call_soon(future.set_result, "done")
        return await future

    assert asyncio.run(within(5.0, work())) == "done"
    assert steps == [0, 1, 2]


def test_what_takes_too_long_is_cancelled_at_its_wait() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(TimeoutError):
        asyncio.run(within(0.01, slow()))
    assert ended == ["cancelled"]


def test_faults_of_the_work_come_out_before_and_after_its_first_wait() -> None:
    async def faulty(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0.0)
        raise KeyError("lost")

    for waits in (False, True):
        with pytest.raises(KeyError):
            asyncio.run(within(1.0, faulty(waits)))


def test_a_cancel_from_without_reaches_the_work() -> None:
    ended: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("over")

    async def main() -> None:
        task = asyncio.create_task(within(5.0, waiting()))
        await asyncio.sleep(0.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["over"]
