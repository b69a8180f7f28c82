"""`FleetClient` on a real loop: results, typed refusals, cancelling, streams, bundles, reconnecting."""

import asyncio
import gc
import hashlib
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from mainspring.core.cost import Cost
from mainspring.fleet import clients
from mainspring.fleet.bundles import BundleCache, Packed
from mainspring.fleet.client import FleetClient
from mainspring.fleet.errors import BundleError, FleetTimeoutError, LinkLostError, RequestRefusedError
from mainspring.fleet.settings import Settings
from mainspring.wire import messages as m
from mainspring.wire.link import Rules
from support.fleet import BUNDLE, Node, expected, generation, submit
from support.loop import Hub, LoopFleet
from support.packed import by_beginning, hash_of

Body = Callable[[FleetClient, Hub, Node], Awaitable[None]]


def play(body: Body, *, cost: Cost | None = None, settings: Settings | None = None, **client: object) -> None:
    """`body` with one client, one router and one virtual node."""

    async def scene() -> None:
        hub = Hub(settings)
        node = Node(LoopFleet(hub), "ant", cost=cost or Cost(0.002, 1e-6, 1e-6), back=0.05)  # type: ignore[arg-type]
        dial = hub.dialer("client", "gate")
        async with FleetClient(dial, "hub", 1, name="gate", chance=lambda: 0.1, **client) as fleet:  # type: ignore[arg-type]
            await until(lambda: bool(hub.shell.models.offers))
            await body(fleet, hub, node)
        await asyncio.sleep(0.01)
        assert not hub.shell.clients.open
        assert hub.shell.payloads.held_bytes == 0
        assert not hub.shell.tally.counts.get("faults")
        node.kill()

    asyncio.run(asyncio.wait_for(scene(), 30.0))


async def until(what: Callable[[], bool], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not what():
            await asyncio.sleep(0.005)


def test_many_scores_at_once_get_their_own_answers() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        asked = [submit(100 + i, 3, seed=i, slo="batch") for i in range(40)]
        predicted: list[float] = []
        results = await asyncio.gather(*(fleet.score(each, predicted.append) for each in asked))
        assert [result.logits for result in results] == [expected(each) for each in asked]
        assert len(predicted) == 40

    play(body)


def test_a_refusal_is_a_typed_error() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        with pytest.raises(RequestRefusedError) as caught:
            await fleet.score(submit(model="nobody's"))
        assert (caught.value.code, caught.value.status, caught.value.param) == ("unknown_model", 404, "model")

    play(body)


def test_a_cancelled_task_cancels_its_request() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        tasks = [asyncio.create_task(fleet.score(submit(seed=i, slo="batch"))) for i in range(6)]
        await until(lambda: len(hub.shell.clients.open) == 6)
        for task in tasks[1:]:
            task.cancel()
        await until(lambda: len(hub.shell.clients.open) <= 1)
        assert (await tasks[0]).logits == expected(submit(seed=0))
        assert hub.shell.core.counters.cancelled == 5

    play(body, cost=Cost(0.2, 1e-6, 1e-6))


def test_a_generation_streams_and_leaving_it_cancels_it() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        got = [message async for message in fleet.generate(generation(20, 35))]
        assert isinstance(got[-1], m.LeaseEnded)
        tokens = b"".join(each.tokens for each in got if isinstance(each, m.Rounds))
        assert m.u32(tokens).tolist() == list(range(35))
        async with aclosing(fleet.generate(generation(20, 10_000))) as stream:
            async for _ in stream:
                break
        await until(lambda: not node.leases and not hub.shell.clients.open)

    play(body)


def test_bundles_are_checked_shared_and_kept(tmp_path: Path) -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        status = await fleet.status()
        name = status.models[0].bundle
        first, second = await asyncio.gather(fleet.bundle(name), fleet.bundle(name))
        assert first == second == BUNDLE
        hub.down = True
        hub.restart()
        assert await fleet.bundle(name) == BUNDLE, "from the cache"
        again = BundleCache(tmp_path).load(name)
        assert again is not None
        assert again.data == BUNDLE
        [path] = tmp_path.glob("*.bundle")
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        assert BundleCache(tmp_path).load(name) is None, "damaged"
        assert not path.exists()

    play(body, bundles=BundleCache(tmp_path, check=by_beginning))


def test_a_bundle_nobody_has_is_an_error_and_a_wrong_one_is_not_kept() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        with pytest.raises(BundleError, match="nobody"):
            await fleet.bundle("unheard-of")

    play(body)


def test_a_cache_takes_nothing_but_what_was_promised_and_has_the_hash(tmp_path: Path) -> None:
    cache = BundleCache(tmp_path, check=by_beginning)
    with pytest.raises(BundleError, match="differ"):
        cache.admit("a", b"abc", size=3, sha256=hashlib.sha256(b"abd").hexdigest())
    with pytest.raises(BundleError, match="67,108,864"):
        cache.admit("a", bytes((64 << 20) + 1), size=(64 << 20) + 1, sha256="")
    with pytest.raises(BundleError, match="another hash"):
        cache.admit("a", b"abc", size=3, sha256=hashlib.sha256(b"abc").hexdigest())
    assert not [*tmp_path.iterdir()]
    name = hash_of(b"abc")
    cache.keep(name, cache.admit(name, b"abc", size=3, sha256=hashlib.sha256(b"abc").hexdigest()))
    assert cache.peek(name) == cache.load(name)
    cache.forget(name)
    assert cache.peek(name) is None
    assert cache.load(name) is None


def test_the_least_used_bundle_goes_first(tmp_path: Path) -> None:
    cache = BundleCache(tmp_path, cap_bytes=250, check=lambda _name, _data: None)
    for name in "abc":
        data = name.encode() * 100
        cache.keep(name, cache.admit(name, data, size=100, sha256=hashlib.sha256(data).hexdigest()))
        cache.peek("a")
    assert (cache.held_bytes, cache._packed.keys()) == (200, {"a", "c"})


def test_a_lost_link_fails_what_was_open_and_comes_back() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        task = asyncio.create_task(fleet.score(submit(seed=1, slo="batch")))
        await until(lambda: bool(hub.shell.clients.open))
        hub.restart()
        with pytest.raises(LinkLostError, match="before the answer"):
            await task
        await until(lambda: bool(hub.shell.models.offers))
        assert (await fleet.score(submit(seed=2))).logits == expected(submit(seed=2))

    play(body, cost=Cost(0.3, 1e-6, 1e-6))


def test_without_a_router_asking_ends_in_time_and_says_why() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        hub.down = True
        hub.restart()
        await until(lambda: not fleet.connected)
        with pytest.raises(LinkLostError, match=r"within 0\.2 s: "):
            await fleet.score(submit())

    play(body, connect_s=0.2)


def test_more_open_requests_than_the_router_allows_are_refused_here() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        tasks = [asyncio.create_task(fleet.score(submit(seed=i, slo="batch"))) for i in range(12)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [each for each in done if isinstance(each, RequestRefusedError)]
        assert {(each.code, each.status) for each in refused} == {("too_many_open", 429)}
        assert len(refused) == 12 - 8

    play(body, settings=Settings(rules=Rules(streams=8)))


def test_a_closed_client_answers_nothing() -> None:
    async def scene() -> None:
        hub = Hub()
        fleet = FleetClient(hub.dialer("client", "gate"), "hub", 1, name="gate")
        with pytest.raises(LinkLostError, match="not open"):
            await fleet.status()
        async with fleet:
            await fleet.status()
        with pytest.raises(LinkLostError, match="not open"):
            await fleet.status()

    asyncio.run(scene())


def test_a_router_that_lives_and_does_not_answer_is_waited_for_no_longer_than_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(hub.shell.clients, "hear", lambda *_anything: None)
            for asking, what in (
                (fleet.status(within_s=0.05), "a status"),
                (fleet.bundle("b", within_s=0.05), "a bundle"),
                (fleet.score(submit(), within_s=0.05), "a score"),
                (anext(fleet.generate(generation(), within_s=0.05)), "a generation"),
            ):
                with pytest.raises(FleetTimeoutError, match=rf"did not answer {what} within 0\.05 s"):
                    await asking
        assert fleet.connected
        assert (await fleet.score(submit())).logits == expected(submit())

    play(body)


def test_a_timeout_of_the_caller_s_own_stays_what_it_is() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await fleet.score(submit(slo="batch"))

        with pytest.raises(TimeoutError, match="the callback's"):
            await fleet.score(submit(slo="batch"), raise_timeout)

    play(body, cost=Cost(0.5, 1e-6, 1e-6))


def raise_timeout(_predicted_s: float) -> None:
    raise TimeoutError("the callback's")


def test_a_status_that_could_not_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(clients, "status_of_router", lambda *_anything: 1 / 0)
            with pytest.raises(RequestRefusedError, match="no status: internal fault"):
                await fleet.status()
        assert (await fleet.status()).fault == ""
        assert hub.shell.tally.counts.pop("faults") == 1

    play(body)


def test_a_router_that_gives_another_bundle_is_not_believed_and_may_be_asked_again() -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        name = hash_of(BUNDLE)
        rubbish = b"rubbish"
        hub.shell.bundles.keep(name, Packed(rubbish, hashlib.sha256(rubbish).hexdigest()))
        with pytest.raises(BundleError, match="another hash"):
            await fleet.bundle(name)
        hub.shell.bundles.keep(name, Packed(BUNDLE, hashlib.sha256(BUNDLE).hexdigest()))
        assert await fleet.bundle(name) == BUNDLE

    play(body, bundles=BundleCache(check=by_beginning))


def test_a_bundle_that_is_forgotten_is_fetched_again(tmp_path: Path) -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        name = hash_of(BUNDLE)
        await fleet.bundle(name)
        fleet.forget_bundle(name)
        assert not [*tmp_path.iterdir()]
        assert await fleet.bundle(name) == BUNDLE
        assert len([*tmp_path.iterdir()]) == 1

    play(body, bundles=BundleCache(tmp_path, check=by_beginning))


def test_the_loop_goes_on_while_a_bundle_is_judged() -> None:
    """A check of a second must not hold up a score."""
    judged = threading.Event()

    def slow(_name: str, _data: bytes) -> None:
        assert judged.wait(10.0), "the score came first"

    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        fetch = asyncio.create_task(fleet.bundle(hash_of(BUNDLE)))
        assert (await fleet.score(submit())).logits == expected(submit())
        assert not fetch.done()
        judged.set()
        assert await fetch == BUNDLE

    play(body, bundles=BundleCache(check=slow))


def test_whoever_waits_for_a_bundle_when_the_client_closes_is_told_so() -> None:
    """Not that his own task was cancelled."""

    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        hub.shell.bundles, node.gives_bundles = BundleCache(check=by_beginning), False
        async with FleetClient(hub.dialer("client", "other"), "hub", 1, name="other") as closing:
            waits = [asyncio.create_task(closing.bundle(hash_of(BUNDLE))) for _ in range(3)]
            await until(lambda: node.fetched == 2)
            waits[0].cancel()
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError, LinkLostError, LinkLostError]

    play(body, bundles=BundleCache(check=by_beginning))


def test_each_of_those_who_share_a_fetch_waits_for_as_long_as_he_said(caplog: pytest.LogCaptureFixture) -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        hub.shell.bundles, node.gives_bundles = BundleCache(check=by_beginning), False
        short = asyncio.create_task(fleet.bundle(hash_of(BUNDLE), within_s=0.2))
        await asyncio.sleep(0.0)
        long = asyncio.create_task(fleet.bundle(hash_of(BUNDLE), within_s=20.0))
        await asyncio.sleep(0.0)
        shorter = asyncio.create_task(fleet.bundle(hash_of(BUNDLE), within_s=0.1))
        for each, seconds in ((shorter, "0.1"), (short, "0.2")):
            with pytest.raises(FleetTimeoutError, match=f"within {seconds} s"):
                await each
        assert not long.done()
        node.leave()
        with pytest.raises(BundleError):
            await long

    play(body, bundles=BundleCache(check=by_beginning))


def test_a_fetch_that_nobody_waits_for_any_more_fails_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        hub.shell.bundles, node.gives_bundles = BundleCache(check=by_beginning), False
        with pytest.raises(FleetTimeoutError):
            await fleet.bundle(hash_of(BUNDLE), within_s=0.05)
        node.leave()
        await until(lambda: not fleet._fetches)
        gc.collect()
        assert "never retrieved" not in caplog.text

    play(body, bundles=BundleCache(check=by_beginning))


def test_a_bundle_that_can_not_be_checked_here_is_a_bundle_error() -> None:
    def broken(_name: str, _data: bytes) -> None:
        raise OSError("no process can be started")

    async def body(fleet: FleetClient, hub: Hub, node: Node) -> None:
        with pytest.raises(BundleError, match="no process can be started"):
            await fleet.bundle(hash_of(BUNDLE))

    play(body, bundles=BundleCache(check=broken))
