"""The end: readiness first, nothing new, what is open finishes or is told."""

import asyncio
import contextlib

from mainspring.gateway.drain import Ending
from support.gateway import SCORES, ScriptedFleet, play, served, until


def test_ending() -> None:
    ending = Ending(30.0)
    assert not ending.over(0.0, 0)
    ending.begin(10.0)
    assert ending.over(10.0, 0)
    assert not ending.over(39.9, 1)
    assert ending.over(40.0, 1)
    ending = Ending(30.0)
    ending.begin(10.0)
    ending.begin(11.0)
    assert ending.over(11.0, 5)


def test_what_is_open_finishes_and_nothing_new_is_taken() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            open_request = asyncio.create_task(s.post("/v1/scores", SCORES))
            await until(lambda: len(fleet.submits) == 1)
            s.server.stop()
            ready = await s.get("/health/ready")
            assert (ready.status, ready.json["reason"]) == (503, "draining")
            assert (await s.get("/health")).status == 200
            refused = await s.post("/v1/scores", SCORES)
            assert (refused.status, refused.json["reason"]) == (503, "draining")
            assert refused.headers["retry-after"] == "1"
            assert not s.task.done()
            assert fleet.hold is not None
            fleet.hold.set()
            assert (await open_request).status == 200
            await s.task
            with contextlib.suppress(ConnectionError):
                await asyncio.open_connection("127.0.0.1", s.port)
                raise AssertionError("the port is still open")

    play(scene())


def test_after_the_time_the_rest_is_told_and_taken_back() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            asked = [asyncio.create_task(s.post("/v1/scores", SCORES)) for _ in range(3)]
            await until(lambda: len(fleet.submits) == 3)
            s.server.stop()
            s.server.stop()
            replies = await asyncio.gather(*asked)
            assert [(reply.status, reply.json["reason"]) for reply in replies] == [(503, "draining")] * 3
            await s.task
            assert fleet.cancelled == 3
            assert s.gateway.counts.open == 0

    play(scene())
