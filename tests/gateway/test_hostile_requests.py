"""Requests that mean harm: what they may cost, and what they must not get."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.errors import MainspringError
from mainspring.fleet.errors import FleetTimeoutError
from mainspring.gateway import body as bodies
from mainspring.gateway.app import build_app
from mainspring.gateway.config import GatewayConfig, GatewayLimits
from mainspring.gateway.errors import status_of
from mainspring.gateway.front import _is_own
from mainspring.gateway.keys import Key, KeyFile, Keys, new_key, write_keys
from mainspring.gateway.schemas import SystemOneIn
from mainspring.gateway.service import Gateway
from mainspring.wire import messages as m
from support.dashboard import FakeFleet
from support.gateway import BEHAVIORS, SCORES, WAIT_S, ScriptedFleet, play, served, until

NOUL = {"type": "noul", "instructions": "it is so"}
SYSTEM = {"state": "a state", "questions": {"q": NOUL}}
DECISIONS = {"input": "a state", "questions": [{"type": "predicate", "instructions": "it is so"}]}
ITEMS = {"query": "a query", "items": ["one", "two"], "label_token_ids": [1, 2], "apply_softmax": True}
ROUTES = [("/v1/scores", SCORES), ("/v1/systemone", SYSTEM), ("/v1/decisions", DECISIONS), ("/v1/score", ITEMS),
          ("/v1/generative_scoring", ITEMS)]  # fmt: skip


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "//", "http://localhost:1:2"])
def test_an_origin_that_is_none_is_refused_like_any_other(origin: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES, origin=origin)
            assert (reply.status, reply.json["reason"]) == (403, "origin_not_allowed")
            assert "a fault of ours" not in caplog.text

    play(scene())


def test_no_origin_is_that_of_no_host() -> None:
    assert _is_own("http://one:8000", "ONE:8000")
    assert not _is_own("http://one:8000", "one")
    assert not _is_own("null", "")


def test_a_length_of_many_digits_is_a_length() -> None:
    async def scene() -> None:
        async with served() as s:
            data = json.dumps(SCORES).encode()
            for zeros in (0, 5000):
                lines = (
                    f"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {'0' * zeros}"
                )
                assert (await s.raw(f"{lines}{len(data)}\r\n\r\n".encode() + data)).status == 200

    play(scene())


def test_a_preflight_has_no_body_and_no_length() -> None:
    async def scene() -> None:
        async with served(cors=("https://page.example",)) as s:
            reply = await s.request("OPTIONS", "/v1/scores", origin="https://page.example")
            assert reply.status == 204
            assert {"content-length", "transfer-encoding"} & set(reply.headers) == set()
            assert "idempotent-replayed" in reply.headers["access-control-expose-headers"]

    play(scene())


def test_looking_for_the_wrong_question_does_not_read_the_state_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = msgspec.convert

    def convert(value: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(msgspec.json.encode(value)))
        return real(value, *args, **options)

    monkeypatch.setattr(bodies.msgspec, "convert", convert)
    asked = {"state": [0] * 10_000, "model": "embedded", "questions": {**{str(n): NOUL for n in range(50)}, "z": {}}}
    with pytest.raises(MainspringError) as caught:
        bodies.decoded(json.dumps(asked).encode(), msgspec.json.Decoder(SystemOneIn))
    assert caught.value.param == "questions.z"
    assert len(sizes) == 51
    assert max(sizes) < 200


def test_values_count_as_what_they_become() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet, limits=GatewayLimits(buffered_mib=1)) as s:
            many = SCORES | {"respan_params": {"metadata": [[]] * 9000}}
            reply = await s.post("/v1/scores", SCORES | {"respan_params": {"metadata": [[]] * 12_000}})
            assert (reply.status, reply.json["reason"], reply.json["param"]) == (413, "too_large", "body")
            assert "limits.buffered_mib" in reply.json["detail"]
            first = asyncio.create_task(s.post("/v1/scores", many))
            await until(lambda: len(fleet.submits) == 1)
            second = await s.post("/v1/scores", many)
            assert (second.status, second.json["reason"]) == (429, "gateway_busy")
            assert fleet.hold is not None
            fleet.hold.set()
            assert (await first).status == 200
            await until(lambda: s.gateway.counts.buffered_bytes == 0)

    play(scene())


def test_watchers_that_come_at_once_are_counted_too() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(listeners=3)) as s:
            request = b"GET /status/events HTTP/1.1\r\nhost: localhost\r\n\r\n"

            async def watch() -> tuple[bytes, asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
                writer.write(request)
                return await asyncio.wait_for(reader.readline(), WAIT_S), writer

            found = await asyncio.gather(*(watch() for _ in range(40)))
            assert sum(b" 200 " in line for line, _ in found) == 3
            assert sum(b" 429 " in line for line, _ in found) == 37
            assert s.gateway.counts.listeners == 3
            for _line, writer in found:
                writer.close()
            await until(lambda: s.gateway.counts.listeners == 0)

    play(scene())


def test_watchers_within_one_turn_of_the_loop_are_counted_too() -> None:
    async def scene() -> None:
        async with Gateway(GatewayConfig(limits=GatewayLimits(listeners=1)), FakeFleet()) as gateway:
            app, statuses = build_app(gateway), []
            gone = asyncio.Event()

            async def receive() -> Any:
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])

            scope = {"type": "http", "method": "GET", "path": "/status/events", "query_string": b"", "root_path": "",
                     "headers": [(b"host", b"localhost")]}  # fmt: skip
            tasks = [asyncio.create_task(app(dict(scope), receive, send)) for _ in range(5)]
            await until(lambda: len(statuses) == 5)
            assert sorted(statuses) == [200, 429, 429, 429, 429]
            gone.set()
            await asyncio.gather(*tasks)

    play(scene())


def test_a_watcher_that_can_not_be_shown_anything_is_not_counted() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(listeners=1)) as s:
            sound = s.gateway.ready
            s.gateway.ready = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
            assert (await s.get("/status/events")).status == 500
            s.gateway.ready = sound  # type: ignore[method-assign]
            assert s.gateway.counts.listeners == 0

    play(scene())


class SilentFleet(ScriptedFleet):
    """The router says nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.speak = asyncio.Event()

    async def status(self, passes: int = 0) -> m.Status:
        await self.speak.wait()
        return await super().status(passes)


@pytest.mark.parametrize(("path", "value"), ROUTES)
def test_a_ceiling_holds_before_the_router_was_heard(tmp_path: Path, path: str, value: Any) -> None:
    async def scene() -> None:
        fleet, (given, digest) = SilentFleet(), new_key()
        file = tmp_path / "keys.toml"
        write_keys(file, KeyFile("a" * 64, (Key("alice", digest, ceiling="standard"),)))
        async with served(fleet, keys=Keys.read(file), heard=False) as s:
            asked = {
                slo: asyncio.create_task(s.post(path, value, x_slo_class=slo, authorization=f"Bearer {given}"))
                for slo in ("interactive", "nonsense", "standard")
            }
            await until(lambda: s.gateway.counts.open == 3)
            fleet.speak.set()
            replies = {slo: await task for slo, task in asked.items()}
            assert {slo: reply.status for slo, reply in replies.items()} == {
                "interactive": 403, "nonsense": 422, "standard": 200,
            }  # fmt: skip
            assert {submit.slo for submit in fleet.submits} == {"standard"}

    play(scene())


def test_a_ceiling_that_is_no_class_lets_nothing_through(tmp_path: Path) -> None:
    async def scene() -> None:
        given, digest = new_key()
        file = tmp_path / "keys.toml"
        write_keys(file, KeyFile("a" * 64, (Key("alice", digest, ceiling="standart"),)))
        async with served(keys=Keys.read(file)) as s:
            reply = await s.post("/v1/scores", SCORES, authorization=f"Bearer {given}")
            assert (reply.status, reply.json["reason"]) == (403, "class_not_allowed")
            assert s.fleet.submits == []

    play(scene())


def test_a_key_file_is_taken_up_when_its_mode_is_put_right(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    write_keys(file, KeyFile("a" * 64, (Key("a", "1" * 64),)))
    keys = Keys.read(file)
    write_keys(file, KeyFile("a" * 64, (Key("b", "2" * 64),)))
    file.chmod(0o644)
    assert not keys.refresh(10.0)
    assert keys.names == {"a"}
    file.chmod(0o600)
    assert keys.refresh(20.0)
    assert keys.names == {"b"}


def test_a_key_file_that_changes_while_it_is_first_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.toml"
    write_keys(file, KeyFile("a" * 64, (Key("a", "1" * 64),)))
    real = Path.read_text

    def read_text(path: Path, *args: Any, **options: Any) -> str:
        text = real(path, *args, **options)
        if "1111" in text:
            write_keys(file, KeyFile("a" * 64, (Key("bb", "2" * 64),)))
        return text

    monkeypatch.setattr(Path, "read_text", read_text)
    keys = Keys.read(file)
    assert keys.refresh(10.0)
    assert keys.names == {"bb"}


def test_a_key_file_is_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four megabytes take seconds."""

    async def scene() -> None:
        file = tmp_path / "keys.toml"
        write_keys(file, KeyFile("a" * 64, (Key("a", "1" * 64),)))
        readers: list[int] = []

        def refresh(_keys: Keys, _now_s: float) -> bool:
            readers.append(threading.get_ident())
            return False

        monkeypatch.setattr(Keys, "refresh", refresh)
        async with served(keys=Keys.read(file)):
            await until(lambda: bool(readers))
            assert threading.get_ident() not in readers

    play(scene())


@pytest.mark.parametrize(("path", "value"), ROUTES)
def test_every_scoring_route_knows_idempotency_keys(path: str, value: dict[str, Any]) -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            asked = [asyncio.create_task(s.post(path, value, idempotency_key="k")) for _ in range(3)]
            await until(lambda: len(fleet.submits) == 1 and s.gateway.counts.open == 3)
            assert fleet.hold is not None
            fleet.hold.set()
            replies = [await each for each in asked] + [await s.post(path, value, idempotency_key="k")]
            assert {reply.status for reply in replies} == {200}
            assert len({reply.body for reply in replies}) == 1
            assert [reply.headers.get("idempotent-replayed") for reply in replies].count("true") == 3
            assert len(fleet.submits) == 1
            other = await s.post(path, value | {"more": 1}, idempotency_key="k")
            assert (other.status, other.json["reason"]) == (422, "idempotency_conflict")

    play(scene())


def test_an_idempotency_key_belongs_to_a_route() -> None:
    async def scene() -> None:
        async with served() as s:
            for path, value in ROUTES:
                reply = await s.post(path, value, idempotency_key="k")
                assert reply.status == 200
                assert "idempotent-replayed" not in reply.headers

    play(scene())


def test_a_long_idempotency_key_is_refused_and_not_cut() -> None:
    async def scene() -> None:
        async with served() as s:
            assert (await s.post("/v1/scores", SCORES, idempotency_key="k" * 255)).status == 200
            reply = await s.post("/v1/scores", SCORES, idempotency_key="k" * 256)
            assert (reply.status, reply.json["param"]) == (422, "idempotency-key")
            assert (reply.json["limit"], reply.json["actual"]) == (255, 256)

    play(scene())


def test_stages_are_measured_once_for_a_request_with_a_key() -> None:
    async def scene() -> None:
        async with served() as s:
            for _ in range(3):
                await s.post("/v1/scores", SCORES, idempotency_key="k")
            await s.post("/v1/scores", SCORES | {"behaviors": BEHAVIORS[:1]})
            text = (await s.get("/metrics")).body.decode()
            assert 'mainspring_stage_seconds_count{stage="fleet"} 2.0' in text

    play(scene())


def test_a_router_that_is_too_slow_is_no_fault_of_ours() -> None:
    assert status_of(FleetTimeoutError("no answer")) == 504
