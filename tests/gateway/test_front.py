"""Who may and who may not: hosts, origins, keys, classes, rates, quotas, room; and what gets into logs."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from mainspring.gateway.config import GatewayLimits
from mainspring.gateway.keys import Key, KeyFile, Keys, new_key, write_keys
from mainspring.gateway.logs import JsonFormatter
from support.gateway import BEHAVIORS, SCORES, ScriptedFleet, play, served, until

ALICE, HASH_A = new_key()
BOB, HASH_B = new_key()


def keys(folder: Path, **alice: Any) -> Keys:
    path = folder / "keys.toml"
    write_keys(path, KeyFile("ab" * 32, (Key("alice", HASH_A, **alice), Key("bob", HASH_B))))
    return Keys.read(path)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("gate.example", 200),
        ("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("127.0.0.1.evil.example:80", 421),
    ],
)  # fmt: skip
def test_host_is_checked(host: str, status: int) -> None:
    async def scene() -> None:
        async with served(hosts=("gate.example",)) as s:
            assert (await s.get("/version", host=host)).status == status
            assert (await s.post("/v1/scores", SCORES, host=host)).status == status
            assert (await s.get("/health", host=host)).status == 200  # probes ask by address

    play(scene())


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://app.example", 200), ("http://localhost", 200), ("https://evil.example", 403), ("null", 403)],
)
def test_pages_of_other_origins_are_refused_unless_listed(origin: str, status: int) -> None:
    async def scene() -> None:
        async with served(cors=("https://app.example",)) as s:
            reply = await s.post("/v1/scores", SCORES, origin=origin, host="localhost")
            assert reply.status == status
            allowed = origin == "https://app.example"
            assert reply.headers.get("access-control-allow-origin") == (origin if allowed else None)
            before = await s.request(
                "OPTIONS", "/v1/scores", origin=origin, host="localhost", access_control_request_method="POST"
            )
            assert before.status == (204 if status == 200 else 403)
            assert ("access-control-allow-headers" in before.headers) == allowed

    play(scene())


def test_cors_is_off_unless_listed() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.get("/v1/models", origin="https://app.example")
            assert not [name for name in reply.headers if name.startswith("access-control")]
            assert (await s.post("/v1/scores", SCORES, origin="https://app.example")).status == 403

    play(scene())


def test_a_key_is_needed_where_there_are_keys(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served(keys=keys(tmp_path)) as s:
            for headers in ({}, bearer("ms-wrong"), {"authorization": f"Basic {ALICE}"}, bearer(""), bearer(HASH_A)):
                reply = await s.post("/v1/scores", SCORES, **headers)
                assert (reply.status, reply.json["reason"]) == (401, "bad_key")
                assert reply.headers["www-authenticate"] == "Bearer"
            for path in ("/v1/models", "/status", "/metrics"):
                assert (await s.get(path)).status == 401
                assert (await s.get(path, **bearer(ALICE))).status == 200
            for path in ("/health", "/health/ready", "/version", "/openapi.json"):
                assert (await s.get(path)).status == 200
            assert (await s.post("/v1/scores", SCORES, **bearer(ALICE))).status == 200

    play(scene())


def test_tenants_have_cache_keys_of_their_own_and_gateways_agree(tmp_path: Path) -> None:
    async def scene() -> None:
        seen: list[list[str]] = []
        for _ in range(2):
            async with served(keys=keys(tmp_path)) as s:
                for key in (ALICE, ALICE, BOB):
                    await s.post("/v1/scores", SCORES, **bearer(key))
                seen.append([submit.view_key for submit in s.fleet.submits])
        first, again, other = seen[0]
        assert first == again != other
        assert seen[0] == seen[1]

    play(scene())


def test_idempotency_keys_are_a_tenants_own(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served(keys=keys(tmp_path)) as s:
            await s.post("/v1/scores", SCORES, idempotency_key="k", **bearer(ALICE))
            other = await s.post("/v1/scores", SCORES | {"behaviors": BEHAVIORS[:1]}, idempotency_key="k",
                                 **bearer(BOB))  # fmt: skip
            assert other.status == 200

    play(scene())


def test_class_of_a_key(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served(keys=keys(tmp_path, ceiling="standard", default="batch")) as s:
            assert (await s.post("/v1/scores", SCORES, **bearer(ALICE))).headers["x-slo-class"] == "batch"
            reply = await s.post("/v1/scores", SCORES, x_slo_class="standard", **bearer(ALICE))
            assert reply.headers["x-slo-class"] == "standard"
            reply = await s.post("/v1/scores", SCORES, x_slo_class="interactive", **bearer(ALICE))
            assert (reply.status, reply.json["reason"]) == (403, "class_not_allowed")
            assert (await s.post("/v1/scores", SCORES, x_slo_class="interactive", **bearer(BOB))).status == 200

    play(scene())


def test_rate_and_quota(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served(keys=keys(tmp_path, rate=0.1, burst=2.0)) as s:
            statuses = [(await s.post("/v1/scores", SCORES, **bearer(ALICE))).status for _ in range(3)]
            assert statuses == [200, 200, 429]
            reply = await s.post("/v1/scores", SCORES, **bearer(ALICE))
            assert reply.json["reason"] == "rate_limited"
            assert 1 <= int(reply.headers["retry-after"]) <= 10
            assert (await s.get("/v1/models", **bearer(ALICE))).status == 200
            assert (await s.post("/v1/scores", SCORES, **bearer(BOB))).status == 200
        async with served(keys=keys(tmp_path, daily_tokens=60)) as s:
            first = await s.post("/v1/scores", SCORES, **bearer(ALICE))
            assert first.json["usage"]["input_tokens"] < 60
            second = await s.post("/v1/scores", SCORES, **bearer(ALICE))
            assert (second.status, second.json["reason"]) == (429, "quota_exhausted")
            assert second.headers["retry-after"]
            assert len(s.fleet.submits) == 1

    play(scene())


def test_what_was_not_answered_is_not_charged(tmp_path: Path) -> None:
    async def scene() -> None:
        from mainspring.fleet.errors import RequestRefusedError

        fleet = ScriptedFleet(error=RequestRefusedError("contention", "full", status=429, retry_after_s=1.0))
        async with served(fleet, keys=keys(tmp_path, daily_tokens=60)) as s:
            for _ in range(3):
                assert (await s.post("/v1/scores", SCORES, **bearer(ALICE))).json["reason"] == "contention"
            fleet.error = None
            assert (await s.post("/v1/scores", SCORES, **bearer(ALICE))).status == 200

    play(scene())


def test_room_of_the_gateway_and_of_one_key(tmp_path: Path) -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet, keys=keys(tmp_path, concurrent=1), limits=GatewayLimits(concurrent=2)) as s:
            one = asyncio.create_task(s.post("/v1/scores", SCORES, **bearer(ALICE)))
            await until(lambda: len(fleet.submits) == 1)
            mine = await s.post("/v1/scores", SCORES, **bearer(ALICE))
            assert (mine.status, mine.json["reason"], mine.json["limit"]) == (429, "gateway_busy", 1)
            two = asyncio.create_task(s.post("/v1/scores", SCORES, **bearer(BOB)))
            await until(lambda: len(fleet.submits) == 2)
            full = await s.post("/v1/scores", SCORES, **bearer(BOB))
            assert (full.status, full.json["limit"]) == (429, 2)
            assert "limits.concurrent" in full.json["detail"]
            assert (await s.get("/health")).status == 200
            assert fleet.hold is not None
            fleet.hold.set()
            assert [reply.status for reply in await asyncio.gather(one, two)] == [200, 200]
            assert (await s.post("/v1/scores", SCORES, **bearer(ALICE))).status == 200

    play(scene())


@pytest.mark.parametrize("given", ["a" * 129, "with space", "\x7f", ""])
def test_a_request_id_that_can_not_be_used_is_replaced(given: str) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.get("/version", x_request_id=given)
            assert reply.headers.get("x-request-id", "").startswith("req-") or reply.status == 400

    play(scene())


def test_logs_hold_no_text_and_one_line_a_request(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of what was scored, nor of what was refused, nor of what made our own code fail."""
    word = "xylophone"

    async def scene() -> None:
        fleet = ScriptedFleet()
        async with served(fleet) as s:
            span = {"input": word, "output": word}
            behaviors = [{"id": "a", "definition": f"the assistant says {word}"}]
            asked = {"model": "embedded", "span": span, "behaviors": behaviors}
            assert (await s.post("/v1/scores", asked, x_request_id="r1")).status == 200
            for bad in ({"span": {word: word}}, {"behaviors": [{"id": "a", "definition": word[:2]}]},
                        {"span": {"input": [{"role": word, "content": word}], "output": word}}):  # fmt: skip
                reply = await s.post("/v1/scores", asked | bad)
                assert reply.status == 422
            await s.post("/v1/scores", f'{{"span": "{word}'.encode())
            fleet.error = KeyError(word)
            broken = await s.post("/v1/scores", asked)
            assert (broken.status, broken.json) == (500, {"detail": "internal fault", "reason": "internal"})

    with caplog.at_level(logging.DEBUG):
        play(scene())
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert word not in json.dumps(lines)
    mine = [line for line in lines if line["message"] == "request"]
    assert len(mine) == 6
    assert mine[0]["request_id"] == "r1"
    assert (mine[0]["route"], mine[0]["status"], mine[0]["class"]) == ("/v1/scores", 200, "standard")
    assert any(line["message"] == "a fault of ours" and "KeyError" in line["at"] for line in lines)


def test_who_reads_has_a_line_too_and_probes_only_where_they_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with served() as s:
            for path in ("/v1/models", "/status", "/secret-path", "/health", "/health/ready", "/metrics"):
                await s.get(path)
            assert (await s.get("/metrics", host="elsewhere.example")).status == 421

    with caplog.at_level(logging.INFO):
        play(scene())
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    mine = [(line["method"], line["route"], line["status"]) for line in lines if line["message"] == "request"]
    assert mine == [("GET", "/v1/models", 200), ("GET", "/status", 200), ("GET", "other", 404), ("GET", "other", 421)]
    assert "secret-path" not in json.dumps(lines)


def test_a_line_of_the_log_is_one_line() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "a\nb\x1b[31m", None, None)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "\x1b" not in text
    assert json.loads(text)["message"] == "a\nb\x1b[31m"
