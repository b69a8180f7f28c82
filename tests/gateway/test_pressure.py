"""What a gateway takes when it is itself behind: pure, in virtual time, and through the whole application."""

import asyncio
import json
from itertools import pairwise

import pytest

from mainspring.gateway.errors import BusyError
from mainspring.gateway.pressure import BEATS, LEAST_OPEN, MOST_RETRY_S, Pressure
from support.gateway import SCORES, ScriptedFleet, play, served, until


def beats(pressure: Pressure, *late_s: float) -> None:
    for late in late_s:
        pressure.beat(1.0, 1.0 + late)


def test_a_standing_lateness_sheds_and_one_long_turn_does_not() -> None:
    pressure = Pressure(late_s=0.05, line_s=0.5)
    beats(pressure, 0.0, 0.9, 0.001, 0.002, 0.001)
    pressure.check(1.0, LEAST_OPEN)
    beats(pressure, *[0.06] * BEATS)
    with pytest.raises(BusyError) as refused:
        pressure.check(1.0, LEAST_OPEN)
    assert refused.value.limit == 0.05
    assert "limits.late_s" in refused.value.message
    beats(pressure, *[0.0] * BEATS)
    pressure.check(1.0, LEAST_OPEN)
    beats(pressure, *[0.9] * BEATS)
    pressure.check(1.0, LEAST_OPEN - 1)  # it is others that hold the core
    assert pressure.shed == 1


def test_a_clock_that_went_back_is_no_lateness() -> None:
    pressure = Pressure(late_s=0.05, line_s=0.5)
    beats(pressure, *[-5.0] * BEATS)
    assert pressure.late_s == 0.0


def test_the_line_is_texts_times_what_one_took() -> None:
    pressure = Pressure(late_s=0.05, line_s=0.5)
    now_s = 0.0
    for _ in range(100):
        pressure.enter(now_s)
        now_s += 0.02
        pressure.leave(now_s)
    assert pressure.each_s == pytest.approx(0.02, rel=0.01)
    for _ in range(25):
        pressure.check(now_s, LEAST_OPEN)
        pressure.enter(now_s)
    pressure.enter(now_s)
    with pytest.raises(BusyError) as refused:
        pressure.check(now_s, LEAST_OPEN)
    assert "limits.line_s" in refused.value.message
    assert refused.value.actual == pytest.approx(0.52, rel=0.01)


def test_a_pause_between_texts_is_not_what_one_takes() -> None:
    pressure = Pressure(late_s=0.05, line_s=0.5)
    before_s = pressure.each_s
    pressure.enter(0.0)
    pressure.leave(500.0)
    assert pressure.each_s == before_s


def test_the_wait_for_a_bundle_is_not_what_a_text_takes() -> None:
    """Else the first request of a process would have its followers refused."""

    class Slow(ScriptedFleet):
        async def bundle(self, name: str) -> bytes:
            waits.append(name)
            await asyncio.sleep(0.05)
            return await super().bundle(name)

    waits: list[str] = []

    async def scene() -> None:
        async with served(Slow()) as s:
            told: list[float] = []
            waited = s.gateway.pressure.waited
            s.gateway.pressure.waited = lambda now_s: (told.append(now_s), waited(now_s))[1]  # type: ignore[method-assign]
            await s.post("/v1/scores", SCORES)
            assert (len(waits), len(told)) == (1, 1)

    play(scene())
    pressure = Pressure(late_s=0.05, line_s=0.5)
    pressure.enter(0.0)
    pressure.waited(0.9)
    pressure.leave(0.901)
    assert pressure.each_s == pytest.approx(0.001)


def test_who_is_refused_has_a_turn_of_its_own_and_finds_room_then() -> None:
    """A line that drains at its pace: whoever comes when it was told to is taken, and no two are told the same."""
    pressure, now_s = Pressure(late_s=0.05, line_s=0.1), 0.0
    while pressure.line * pressure.each_s <= 0.1:
        pressure.enter(now_s)
    told = []
    for _ in range(50):
        with pytest.raises(BusyError) as refused:
            pressure.check(now_s, LEAST_OPEN)
        assert refused.value.retry_after_s is not None
        told.append(refused.value.retry_after_s)
    assert all(later - sooner >= 0.9 * pressure.each_s for sooner, later in pairwise(told))
    each_s = pressure.each_s
    while pressure.line:
        now_s += each_s
        pressure.leave(now_s)
    assert told[0] >= now_s
    for due_s in told:
        pressure.check(due_s, LEAST_OPEN)


def test_the_time_to_come_back_is_bounded() -> None:
    pressure = Pressure(late_s=0.05, line_s=0.1)
    pressure.each_s = 0.005
    beats(pressure, *[1.0] * BEATS)
    for _ in range(20_000):
        with pytest.raises(BusyError) as refused:
            pressure.check(5.0, LEAST_OPEN)
    assert refused.value.retry_after_s == pytest.approx(MOST_RETRY_S)


def test_a_gateway_that_is_behind_answers_429_before_it_reads_a_body() -> None:
    async def scene() -> None:
        async with served() as s:
            s.fleet.hold = asyncio.Event()
            held = [asyncio.create_task(s.post("/v1/scores", SCORES)) for _ in range(LEAST_OPEN)]
            await until(lambda: len(s.fleet.submits) == LEAST_OPEN)
            s.gateway.beat.stop()
            beats(s.gateway.pressure, *[0.2] * BEATS)
            reply = await s.post("/v1/scores", b"never decoded")
            assert reply.status == 429, reply.body
            assert reply.json["reason"] == "gateway_busy"
            assert reply.headers["x-should-retry"] == "true"
            assert 200 <= int(reply.headers["retry-after-ms"]) < 1000
            assert (await s.get("/health")).status == 200
            assert b"mainspring_shed_total 1.0" in (await s.get("/metrics")).body
            counted = b'mainspring_requests_total{route="/v1/scores",status="429"} 1.0'
            assert counted in (await s.get("/metrics")).body
            s.fleet.hold.set()
            assert {reply.status for reply in await asyncio.gather(*held)} == {200}
            assert (await s.post("/v1/scores", SCORES)).status == 200  # nobody else is open
            beats(s.gateway.pressure, *[0.0] * BEATS)
            assert s.gateway.pressure.shed == 1

    play(scene())


def test_a_burst_that_was_let_in_before_its_bodies_came_does_not_fill_the_line() -> None:
    """All heads are there before the first body: the line was empty for each of them."""

    async def scene() -> None:
        body = json.dumps(SCORES).encode()
        head = (
            b"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        async with served() as s:
            s.gateway.turnstile._taken = True  # somebody passes, and his turn does not end
            s.gateway.pressure.each_s = 0.1
            burst = [await asyncio.open_connection("127.0.0.1", s.port) for _ in range(8)]
            for _, writer in burst:
                writer.write(head)
            await until(lambda: s.gateway.counts.open == len(burst))
            for _, writer in burst:
                writer.write(body)
            await until(lambda: s.gateway.counts.open == s.gateway.pressure.line == 3)
            s.gateway.turnstile._next()
            replies = [await reader.read() for reader, _ in burst]
            for _, writer in burst:
                writer.close()
            statuses = sorted(reply.split(maxsplit=2)[1] for reply in replies)
            assert statuses == [b"200"] * 3 + [b"429"] * 5
            assert all(b"limits.line_s" in reply for reply in replies if b" 429 " in reply)
            assert s.gateway.pressure.line == 0

    play(scene())


def test_a_blocked_loop_is_noticed() -> None:
    """The timer's own way: nobody else tells of lateness."""

    async def scene() -> None:
        async with served() as s:
            await asyncio.sleep(0)
            for _ in range(BEATS):
                s.gateway.beat.stop()
                s.gateway.beat.came(s.gateway.now_s() - 0.3)
            assert s.gateway.pressure.late_s >= 0.3

    play(scene())
