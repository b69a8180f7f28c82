"""One text a turn of the loop, and what stands in line for it."""

import asyncio
import json

import pytest

from mainspring.gateway.front import Front
from mainspring.gateway.speed import FIRST_S, LEAST_CHARS, ON_LOOP_S, TextSpeed
from mainspring.gateway.turnstile import APART, Turnstile
from support.gateway import SCORES, ScriptedFleet, play, served, until


async def passed(turnstile: Turnstile, number: int, order: list[str]) -> None:
    await turnstile.enter()
    order.append(f"text {number}")


def test_of_a_burst_one_passes_a_turn_and_others_have_turns_between() -> None:
    async def scene() -> None:
        turnstile, order = Turnstile(), []
        tasks = [asyncio.create_task(passed(turnstile, number, order)) for number in range(5)]
        while not all(task.done() for task in tasks):
            order.append("turn")
            await asyncio.sleep(0)
        texts = [each for each in order if each != "turn"]
        assert texts == [f"text {number}" for number in range(5)]
        gaps = "".join("." if each == "turn" else "T" for each in order).strip(".").split("T")[1:-1]
        assert all(len(gap) >= 1 for gap in gaps)
        assert all(len(gap) >= APART for gap in gaps[1:])

    play(scene())


def test_who_comes_alone_does_not_wait() -> None:
    async def scene() -> None:
        turnstile = Turnstile()
        for _ in range(3):
            entering = turnstile.enter()
            with pytest.raises(StopIteration):
                entering.send(None)
            await asyncio.sleep(0)
        assert turnstile.waiting == 0

    play(scene())


def test_a_place_in_the_line_is_given_up_by_cancelling() -> None:
    async def scene() -> None:
        turnstile, order = Turnstile(), []
        first, second, third = (asyncio.create_task(passed(turnstile, number, order)) for number in range(3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert order == ["text 0", "text 2"]

    play(scene())


def test_a_request_stands_in_line_before_it_is_decoded() -> None:
    async def scene() -> None:
        async with served() as s:
            await s.post("/v1/scores", SCORES)
            turnstile, pressure = s.gateway.turnstile, s.gateway.pressure
            turnstile._taken = True  # somebody passes, and his turn does not end
            asked = asyncio.create_task(s.post("/v1/scores", SCORES))
            wrong = asyncio.create_task(s.post("/v1/scores", b"no JSON"))
            await until(lambda: turnstile.waiting == 2)
            assert pressure.line == 2
            assert len(s.fleet.submits) == 1
            turnstile._next()
            assert (await asked).status == 200
            assert (await wrong).status == 400
            assert pressure.line == 0

    play(scene())


def test_a_retry_that_joins_is_not_in_line() -> None:
    """It waits for a node, not for this process: else everybody behind it would be told so."""

    async def scene() -> None:
        async with served() as s:
            s.fleet.hold = asyncio.Event()
            asked = [asyncio.create_task(s.post("/v1/scores", SCORES, idempotency_key="k")) for _ in range(3)]
            await until(lambda: s.gateway.counts.open == 3 and len(s.fleet.submits) == 1)
            await until(lambda: s.gateway.pressure.line == 0)
            s.fleet.hold.set()
            assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
            assert s.gateway.pressure.line == 0

    play(scene())


def test_the_work_is_the_handlers_own_task() -> None:
    """A task of its own would cost four turns of the loop, each as long as a text."""

    class Seen(ScriptedFleet):
        async def score(self, submit, accepted=None):  # type: ignore[no-untyped-def]
            tasks.append(asyncio.current_task() in apps[0]._tasks)
            return await super().score(submit, accepted)

    tasks: list[bool] = []

    async def scene() -> None:
        async with served(Seen()) as s:
            apps.append(s.server.app)
            assert (await s.post("/v1/scores", SCORES)).status == 200
        assert tasks == [True]

    apps: list[Front] = []
    play(scene())


def test_what_is_quick_is_by_what_a_character_took() -> None:
    speed = TextSpeed()
    chars = 20_000
    assert not speed.is_quick(chars)  # unknown: a slow tokenizer's
    assert speed.is_quick(LEAST_CHARS)
    for _ in range(100):
        speed.note(chars, chars * 2e-8)
    assert speed.is_quick(chars)
    assert not speed.is_quick(int(ON_LOOP_S / 1.5e-8))
    for _ in range(100):
        speed.note(chars, chars * FIRST_S)
    assert not speed.is_quick(chars)
    before = speed.a_char_s
    speed.note(10, 1.0)  # too little to tell
    speed.note(chars, 0.0)  # a clock that is too coarse
    assert speed.a_char_s == before


def test_who_hangs_up_in_line_costs_no_text_and_no_node() -> None:
    async def scene() -> None:
        body = json.dumps(SCORES).encode()
        head = b"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        async with served() as s:
            await s.post("/v1/scores", SCORES)
            s.gateway.turnstile._taken = True  # somebody passes, and his turn does not end
            clients = [await asyncio.open_connection("127.0.0.1", s.port) for _ in range(2)]
            for _, writer in clients:
                writer.write(head + body)
            await until(lambda: s.gateway.pressure.line == 2)
            for _, writer in clients:
                writer.close()
            await until(lambda: not s.server_connections())
            s.gateway.turnstile._next()
            await until(lambda: s.gateway.counts.open == 0)
            assert len(s.fleet.submits) == 1
            assert s.gateway.counts.finished["/v1/scores", 499] == 2
            assert s.gateway.pressure.line == 0

    play(scene())
