"""Buckets, quotas, shared computations, headers, the pool: pure or nearly, in virtual time."""

import asyncio
import threading
from pathlib import Path

import pytest

from mainspring.core.refusals import ContentionError, UnknownModelError
from mainspring.errors import SpanError, TooLargeError
from mainspring.fleet.errors import ConfigError, InternalError
from mainspring.gateway.config import GatewayConfig, read_gateway_config
from mainspring.gateway.errors import (
    BusyError,
    IdempotencyError,
    QuotaError,
    RateError,
    body_of,
    headers_of,
    status_of,
    surface_of,
)
from mainspring.gateway.headers import deadline_of, request_id_of, trace_of
from mainspring.gateway.idempotency import Shared
from mainspring.gateway.keys import ANONYMOUS, Key, KeyFile, Keys, read_keys, write_keys
from mainspring.gateway.limits import DAY_S, Bucket, Ledger
from mainspring.gateway.pool import Pool
from support.gateway import play, until


def test_a_bucket_fills_at_its_rate_and_tells_when() -> None:
    bucket = Bucket(2.0, 3.0, now_s=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0] * 3
    assert bucket.take(0.0) == pytest.approx(0.5)
    assert bucket.take(0.4) == pytest.approx(0.1)
    assert bucket.take(0.5) == 0.0
    assert bucket.take(0.4) > 0.0  # a clock that went back gives nothing
    assert [bucket.take(1000.0) for _ in range(3)] == [0.0] * 3
    assert bucket.take(1000.0) > 0.0


def test_a_retry_after_the_told_time_is_taken() -> None:
    ledger, key = Ledger(10, 1.0), Key("a", rate=4.0, burst=1.0)
    ledger.enter(key, 0.0)
    with pytest.raises(RateError) as refused:
        ledger.enter(key, 0.1)
    assert refused.value.retry_after_s is not None
    ledger.enter(key, 0.1 + refused.value.retry_after_s)


def test_quota_is_a_days_and_a_share_of_it() -> None:
    ledger, key, other = Ledger(10, 0.5), Key("a", daily_tokens=100), Key("b", daily_tokens=100)
    ledger.charge(key, 50, 10.0)
    with pytest.raises(QuotaError) as refused:
        ledger.charge(key, 1, DAY_S - 100.0)
    assert refused.value.retry_after_s == pytest.approx(100.0)
    ledger.charge(other, 50, 10.0)
    ledger.give_back(key, 20, 20.0)
    ledger.charge(key, 20, 20.0)
    ledger.charge(key, 50, DAY_S + 1.0)
    ledger.give_back(key, 10, 10.0)  # of a day that is over: nothing
    assert ledger.used(key, DAY_S + 1.0) == 50
    with pytest.raises(QuotaError):
        ledger.charge(key, 51, 3 * DAY_S)


def test_room_is_given_back() -> None:
    ledger, key = Ledger(2, 1.0), Key("a")
    for _ in range(5):
        ledger.enter(key, 0.0)
        ledger.enter(key, 0.0)
        with pytest.raises(BusyError):
            ledger.enter(key, 0.0)
        ledger.leave(key)
        ledger.leave(key)


def test_without_keys_the_gateways_own_limit_holds() -> None:
    ledger = Ledger(1, 1.0)
    for _ in range(5):
        ledger.enter(ANONYMOUS, 0.0)


def test_keys_that_are_gone_leave_nothing_behind() -> None:
    ledger, key = Ledger(2, 1.0), Key("a", rate=1.0, daily_tokens=10)
    ledger.enter(key, 0.0)
    ledger.charge(key, 5, 0.0)
    ledger.forget({"b"})
    assert ledger.used(key, 0.0) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("secret = 1", "secret"), ('secret = "zz"', "secret"), ("not toml", "TOML"), ("", "secret"),
        (f'secret = "{"a" * 64}"\n[[key]]\nname = "a"\nsha256 = "{"b" * 64}"\nrat = 1', "rat"),
        (f'secret = "{"a" * 64}"\n' + f'[[key]]\nname = "a"\nsha256 = "{"b" * 64}"\n' * 2, "at most once"),
        (f'secret = "{"a" * 64}"\n[[key]]\nname = ""\nsha256 = "{"b" * 64}"', "name"),
    ],
)  # fmt: skip
def test_a_key_file_that_is_wrong_says_where(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=words) as refused:
        read_keys(path)
    assert "b" * 64 not in str(refused.value)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    write_keys(path, KeyFile("a" * 64))
    assert path.stat().st_mode & 0o077 == 0
    read_keys(path)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod"):
        read_keys(path)


def test_a_changed_key_file_is_taken_up_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    write_keys(path, KeyFile("a" * 64, (Key("a", "1" * 64),)))
    keys = Keys.read(path)
    assert not keys.refresh(0.0)
    write_keys(path, KeyFile("a" * 64, (Key("a", "1" * 64), Key('b\n"', "2" * 64))))
    assert not keys.refresh(1.0)
    assert keys.refresh(10.0)
    assert keys.names == {"a", 'b\n"'}
    path.write_text("rubbish")
    assert not keys.refresh(20.0)
    assert keys.names == {"a", 'b\n"'}


def test_shared_is_cancelled_with_the_last_who_waits_and_errors_are_not_kept() -> None:
    async def scene() -> None:
        shared: Shared[int] = Shared(2, 100.0, lambda: 0.0)
        began, ended = 0, 0

        async def slow() -> int:
            nonlocal began, ended
            began += 1
            try:
                await asyncio.sleep(1000.0)
            finally:
                ended += 1
            return 1

        first = asyncio.create_task(shared.get(("", "", "k"), b"1", slow))
        second = asyncio.create_task(shared.get(("", "", "k"), b"1", slow))
        await until(lambda: began == 1)
        first.cancel()
        await asyncio.sleep(0.01)
        assert ended == 0
        second.cancel()
        await until(lambda: ended == 1)
        assert len(shared) == 0
        assert began == 1

        async def fails() -> int:
            raise BusyError("no")

        for _ in range(2):
            with pytest.raises(BusyError):
                await shared.get(("", "", "k"), b"1", fails)
        assert len(shared) == 0

    play(scene())


def test_shared_is_bounded_in_number_time_and_size() -> None:
    async def scene() -> None:
        now_s = 0.0
        shared: Shared[int] = Shared(2, 10.0, lambda: now_s, kept=lambda value: value < 100)
        made: list[int] = []

        def value(number: int) -> "asyncio.Task[tuple[int, bool]]":
            async def compute() -> int:
                made.append(number)
                return number

            return asyncio.create_task(shared.get(("", "", str(number)), b"", compute))

        assert await value(1) == (1, False)
        assert await value(1) == (1, True)
        now_s = 11.0
        assert await value(1) == (1, False)
        assert await value(2) == (2, False)
        assert await value(3) == (3, False)
        assert len(shared) == 2
        assert await value(1) == (1, False)
        assert await value(100) == (100, False)
        assert await value(100) == (100, False)
        with pytest.raises(IdempotencyError):
            await shared.get(("", "", "1"), b"other", lambda: asyncio.sleep(0, 5))
        hold = asyncio.Event()

        async def held() -> int:
            await hold.wait()
            return 5

        open_ones = [asyncio.create_task(shared.get(("", "", f"h{n}"), b"", held)) for n in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(BusyError, match=r"limits\.idempotent"):
            await value(9)
        hold.set()
        await asyncio.gather(*open_ones)

    play(scene())


def test_the_pool_is_bounded_and_counts_what_was_cancelled() -> None:
    async def scene() -> None:
        pool = Pool(1, 1)
        gate = threading.Event()
        running = asyncio.create_task(pool.run(gate.wait))
        await until(lambda: pool.outstanding == 1)
        waiting = asyncio.create_task(pool.run(lambda: 1))
        await until(lambda: pool.outstanding == 2)
        with pytest.raises(BusyError, match=r"limits\.assembling"):
            await pool.run(lambda: 2)
        waiting.cancel()
        await until(lambda: pool.outstanding == 1)
        running.cancel()
        await asyncio.sleep(0.01)
        assert pool.outstanding == 1  # a thread can't be stopped: it counts until it ends
        gate.set()
        await until(lambda: pool.outstanding == 0)
        assert await pool.run(lambda: 3) == 3
        pool.close()

    play(scene())


def test_the_one_table_of_errors() -> None:
    assert status_of(SpanError("x")) == 422
    assert status_of(TooLargeError("x", limit=1, actual=2)) == 413
    assert status_of(UnknownModelError("x")) == 404
    assert status_of(ContentionError("x", retry_after_s=1.0)) == 429
    assert status_of(InternalError("x")) == 500
    assert b"tells something" not in body_of(InternalError("tells something"), "openai")
    assert [surface_of(path) for path in ("/v1/scores", "/api/v1/scores", "/scores")] == ["scoring"] * 3
    assert surface_of("/v1/chat/completions") == surface_of("/v1/models") == "openai"


@pytest.mark.parametrize(
    ("retry_s", "after", "ms"), [(0.0, 1, 1), (0.9999, 1, 1000), (1.0001, 2, 1001), (61.0, 60, 60000)]
)  # fmt: skip
def test_retry_headers(retry_s: float, after: int, ms: int) -> None:
    found = dict(headers_of(ContentionError("x", retry_after_s=retry_s)))
    assert int(found[b"retry-after"]) == after
    assert int(found[b"retry-after-ms"]) == ms
    assert found[b"x-should-retry"] == (b"true" if retry_s <= 60.0 else b"false")


def test_headers_in() -> None:
    sound = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert trace_of([(b"traceparent", sound.encode())]) == sound
    for bad in ("", "00-xyz", "00-" + "0" * 32 + "-b7ad6b7169203331-01", sound.upper()):
        assert trace_of([(b"traceparent", bad.encode())]) == ""
    assert request_id_of([(b"x-request-id", b"mine")]) == "mine"
    assert request_id_of([]) != request_id_of([])
    assert deadline_of([(b"x-deadline-ms", b"250")]) == 0.25
    assert deadline_of([]) is None


def test_no_open_address_without_keys(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.5.5.5"):
        read_gateway_config(None, host=host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "gate.example"):  # noqa: S104 - refused
        with pytest.raises(ConfigError, match="key file"):
            read_gateway_config(None, host=host)
        read_gateway_config(None, host=host, keys="keys.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [("[gateway]\nprot = 1", "prot"), ("[gateway]\nport = -1", "port"), ("[gateway.limits]\nbody_mib = 0", "body_mib"),
     ("gateway = 1", "table"), ("[gateway", "TOML"), ('[gateway]\nshare = 0.0', "share")],
)  # fmt: skip
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as refused:
        read_gateway_config(path)
    assert "fleet.toml" in str(refused.value)


def test_flags_go_over_the_file_and_the_rest_is_the_routers(tmp_path: Path) -> None:
    from mainspring.fleet.config import read_config

    path = tmp_path / "fleet.toml"
    path.write_text('[gateway]\nport = 9000\nkeys = "keys.toml"\n[router]\nlisten = "127.0.0.1:7301"\n')
    config = read_gateway_config(path, port=9001)
    assert (config.port, config.keys) == (9001, str(tmp_path / "keys.toml"))
    assert read_config(path).router.listen == "127.0.0.1:7301"
    assert GatewayConfig().resolved().startswith("{")
