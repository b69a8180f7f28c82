"""The stream of status: what each watcher gets, how many there may be, how it ends."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Message

from mainspring.gateway.app import build_app
from mainspring.gateway.config import GatewayConfig, GatewayLimits
from mainspring.gateway.dashboard.feed import Feed
from mainspring.gateway.dashboard.stream import StatusStream
from mainspring.gateway.service import Gateway
from support.dashboard import FakeFleet

Body = Callable[[Gateway], Awaitable[None]]


def play(body: Body, **limits: int) -> None:
    async def scene() -> None:
        config = GatewayConfig(limits=GatewayLimits(**limits))  # type: ignore[arg-type]
        async with Gateway(config, FakeFleet()) as gateway:
            await gateway._polled.wait()
            await body(gateway)

    asyncio.run(asyncio.wait_for(scene(), 30.0))


class Watcher:
    """A client of `/status/events` without a socket. `read` False: it takes nothing."""

    def __init__(self, app: Any, *, reads: bool = True) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.events: list[tuple[str, Any]] = []
        self.body = b""
        self.over = False
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self._news = asyncio.Event()
        if reads:
            self.reads.set()
        scope = {"type": "http", "method": "GET", "path": "/status/events", "raw_path": b"/status/events",
                 "query_string": b"", "headers": [(b"host", b"localhost")], "root_path": "", "scheme": "http",
                 "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            await self.reads.wait()
            self.body += message["body"]
            self.over = not message.get("more_body", False)
            if self.status == 200 and message["body"]:
                lines = dict(line.split(": ", 1) for line in message["body"].decode().strip().split("\n"))
                self.events.append((lines["event"], json.loads(lines["data"])))
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20.0)


def test_a_watcher_gets_the_past_then_snapshots() -> None:
    async def body(gateway: Gateway) -> None:
        watcher = Watcher(build_app(gateway))
        await watcher.until(lambda: len(watcher.events) >= 3)
        assert watcher.status == 200
        assert watcher.headers["content-type"].startswith("text/event-stream")
        assert watcher.headers["cache-control"] == "no-store"
        assert "content-length" not in watcher.headers
        names = [name for name, _ in watcher.events[:3]]
        assert names == ["history", "snapshot", "snapshot"]
        shot = watcher.events[1][1]
        assert [each["name"] for each in shot["nodes"]] == ["ant", "bee"]
        assert gateway.counts.listeners == 1
        watcher.gone.set()
        await watcher.task
        assert gateway.counts.listeners == 0
        assert gateway.counts.open == 0

    play(body)


def test_one_too_many_is_told_the_limit_and_room_is_given_back() -> None:
    async def body(gateway: Gateway) -> None:
        app = build_app(gateway)
        first, second = Watcher(app), Watcher(app)
        await first.until(lambda: bool(first.events))
        await second.until(lambda: bool(second.events))
        third = Watcher(app)
        await third.task
        assert third.status == 429
        assert "limits.listeners" in third.body.decode()
        assert third.headers["retry-after"] == "1"
        first.gone.set()
        await first.task
        fourth = Watcher(app)
        await fourth.until(lambda: bool(fourth.events))
        for watcher in (second, fourth):
            watcher.gone.set()
            await watcher.task

    play(body, listeners=2)


def test_a_slow_reader_skips_to_the_latest() -> None:
    def up_s(event: tuple[str, Any]) -> float:
        return float(event[1]["gateway"]["uptime_s"])

    async def body(gateway: Gateway) -> None:
        feed = Feed(gateway, every_s=0.01)
        slow, fast = Watcher(StatusStream(feed)), Watcher(StatusStream(feed))
        await slow.until(lambda: len(slow.events) > 3)
        slow.reads.clear()
        seen, known = len(fast.events), len(slow.events)
        await fast.until(lambda: len(fast.events) > seen + 30)
        latest_s = up_s(fast.events[-1])
        slow.reads.set()
        await slow.until(lambda: len(slow.events) > known + 1)
        in_flight, after = slow.events[known : known + 2]
        assert up_s(in_flight) < latest_s
        assert up_s(after) >= latest_s
        for watcher in (slow, fast):
            watcher.gone.set()
            await watcher.task

    play(body)


def test_a_drain_ends_every_stream_with_a_closing_event() -> None:
    async def body(gateway: Gateway) -> None:
        app = build_app(gateway)
        watchers = [Watcher(app) for _ in range(3)]
        for watcher in watchers:
            await watcher.until(lambda watcher=watcher: bool(watcher.events))  # type: ignore[misc]
        gateway.closing.set()
        for watcher in watchers:
            await watcher.task
            assert watcher.events[-1] == ("closing", {})
            assert watcher.over
        late = Watcher(app)
        await late.task
        assert late.status == 503
        assert gateway.counts.open == 0

    play(body)


def test_a_stream_ends_after_its_time() -> None:
    async def body(gateway: Gateway) -> None:
        watcher = Watcher(StatusStream(Feed(gateway), longest_s=0.05))
        await watcher.task
        assert watcher.over
        assert gateway.counts.listeners == 0

    play(body)


def test_a_look_that_fails_is_logged_and_the_next_comes(caplog: pytest.LogCaptureFixture) -> None:
    async def body(gateway: Gateway) -> None:
        feed = Feed(gateway, every_s=0.01)
        watcher = Watcher(StatusStream(feed))
        await watcher.until(lambda: len(watcher.events) > 3)
        sound = gateway.ready
        gateway.ready = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        while "no snapshot for the dashboard" not in caplog.text:
            await asyncio.sleep(0.01)
        gateway.ready = sound  # type: ignore[method-assign]
        seen = len(watcher.events)
        await watcher.until(lambda: len(watcher.events) > seen + 2)
        watcher.gone.set()
        await watcher.task

    play(body)


def test_the_past_is_kept_before_anybody_watches() -> None:
    async def body(gateway: Gateway) -> None:
        app = build_app(gateway)
        await asyncio.sleep(2.3)
        watcher = Watcher(app)
        await watcher.until(lambda: bool(watcher.events))
        name, points = watcher.events[0]
        assert name == "history"
        assert len(points) >= 2
        assert points[-1]["answered"] == 0.0
        watcher.gone.set()
        await watcher.task

    play(body)
