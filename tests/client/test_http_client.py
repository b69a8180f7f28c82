"""Both clients against a scripted service on real sockets."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import mainspring
from mainspring.client import (
    AsyncClient,
    BusyError,
    Client,
    NoReplyError,
    ReplyError,
    RequestError,
    Retries,
    Scores,
    TimedOutError,
    evaluation_events,
)
from mainspring.client.records import BehaviorScore
from mainspring.client.requests import VIEW, Where
from mainspring.errors import BehaviorError, InputError
from support.http_service import Heard, Service, Told, scored, service

SPAN = {"input": [{"role": "user", "content": "Hi"}], "output": {"role": "assistant", "content": "Hello."}}
QUICK = Retries(attempts=3, total_s=30.0)
Score = Callable[..., Scores]


def blocking(url: str, *arguments: Any, client: dict[str, Any] | None = None, **options: Any) -> Scores:
    with Client(url, **{"retries": QUICK, **(client or {})}) as made:
        return made.score(*arguments, **options)


def awaited(url: str, *arguments: Any, client: dict[str, Any] | None = None, **options: Any) -> Scores:
    async def run() -> Scores:
        async with AsyncClient(url, **{"retries": QUICK, **(client or {})}) as made:
            return await made.score(*arguments, **options)

    return asyncio.run(run())


@pytest.fixture(params=[blocking, awaited])
def score(request: pytest.FixtureRequest) -> Score:
    return request.param  # type: ignore[no-any-return]


def test_a_score_is_asked_and_read(score: Score) -> None:
    with service(lambda _n, heard: scored(heard)) as there:
        behaviors = ["is rude", {"id": "b", "definition": "made up a URL"}]
        scores = score(
            f"{there.url}/v1/", SPAN, behaviors, model="tiny", slo_class="batch", deadline_s=9.0,
            traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01", client={"api_key": "secret"},
        )  # fmt: skip
    assert [each.id for each in scores] == ["is rude", "b"]
    assert (scores[0].p_present, scores[0].label, scores.input_tokens, scores.model) == (0.5, "present", 12, "tiny")
    assert (scores.received.request_id, scores.received.predicted_ms) == ("r-1", 41.5)
    (heard,) = there.heard
    assert (heard.method, heard.path) == ("POST", "/v1/scores")
    assert heard.json == {
        "model": "tiny", "span": SPAN,
        "behaviors": [{"id": "is rude", "definition": "is rude"}, {"id": "b", "definition": "made up a URL"}],
    }  # fmt: skip
    told = heard.headers
    assert (told["authorization"], told["x-slo-class"]) == ("Bearer secret", "batch")
    assert 8000 < int(told["x-deadline-ms"]) <= 9000
    assert told["traceparent"].startswith("00-111")
    assert len(told["idempotency-key"]) == 32


def test_a_refusal_is_waited_out_under_one_idempotency_key(score: Score) -> None:
    def told(number: int, heard: Heard) -> Told:
        return scored(heard) if number == 2 else Told(429, {"detail": "later"}, {"retry-after-ms": "20"})

    with service(told) as there:
        scores = score(there.url, SPAN, ["is rude"])
    assert scores.received.attempts == 3
    assert len({heard.headers["idempotency-key"] for heard in there.heard}) == 1
    assert len({heard.body for heard in there.heard}) == 1


def test_the_last_refusal_is_the_error(score: Score) -> None:
    body = {"detail": "no room for 1.2 s", "reason": "contention", "limit": 3}
    later = Told(429, body, {"retry-after-ms": "10"})
    with service(lambda _n, _h: later) as there, pytest.raises(BusyError, match="no room") as error:
        score(there.url, SPAN, ["is rude"])
    found = error.value
    assert (found.status, found.reason, found.limit, found.retry_after_s) == (429, "contention", 3.0, 0.01)
    assert len(there.heard) == found.attempts == 3


def test_what_is_wrong_is_told_at_once(score: Score) -> None:
    body = {"detail": "behaviors[0].definition: 2 characters", "param": "behaviors[0].definition"}
    with service(lambda _n, _h: Told(422, body)) as there, pytest.raises(RequestError) as error:
        score(there.url, SPAN, ["ab"])
    assert error.value.param == "behaviors[0].definition"
    assert len(there.heard) == 1


def test_a_connection_that_breaks_midway_is_tried_again(score: Score) -> None:
    with service(lambda n, h: scored(h) if n else Told(200, b"{", cut=True)) as there:
        assert score(there.url, SPAN, ["is rude"]).received.attempts == 2


def test_nobody_there(score: Score) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, nobody listens
        with pytest.raises(NoReplyError, match=r"127\.0\.0\.1") as error:
            score(f"http://127.0.0.1:{taken.getsockname()[1]}", SPAN, ["is rude"])
    assert error.value.attempts == 3


def test_silence_ends_with_the_timeout(score: Score) -> None:
    late = Told(200, b"", after_s=1.0)
    with service(lambda _n, _h: late) as there, pytest.raises(TimedOutError, match="no answer"):
        score(there.url, SPAN, ["is rude"], client={"timeout_s": 0.2})
    assert len(there.heard) == 1


@pytest.mark.parametrize(
    "body",
    [b"{", {"model": "m"}, {"model": "m", "results": []},
     {"model": "m", "results": [{"id": "other", "p_present": 1.0, "p_absent": 0.0, "p_not_observable": 0.0}]}],
)  # fmt: skip
def test_an_answer_to_something_else_is_refused(score: Score, body: Any) -> None:
    with service(lambda _n, _h: Told(200, body)) as there, pytest.raises(ReplyError):
        score(there.url, SPAN, ["is rude"])


def test_behaviors_without_text_never_leave(score: Score) -> None:
    with service(lambda _n, h: scored(h)) as there:
        with pytest.raises(BehaviorError, match=r"behaviors\[1\].definition"):
            score(there.url, SPAN, ["is rude", {"id": "b"}])
        with pytest.raises(InputError, match="JSON"):
            score(there.url, {"input": object()}, ["is rude"])
    assert not there.heard


def test_the_hash_of_a_view_is_the_spans_alone(score: Score) -> None:
    with service(lambda _n, h: scored(h)) as there:
        score(there.url, SPAN, ["is rude"])
        score(there.url, SPAN, ["is polite", "is short"])
        score(there.url, {**SPAN, "input": []}, ["is rude"])
    first, second, other = (heard.headers[VIEW] for heard in there.heard)
    assert first == second != other


def test_connections_are_used_again_and_replaced_when_closed() -> None:
    with service(lambda _n, h: scored(h)) as there, Client(there.url) as client:
        for _ in range(3):
            client.score(SPAN, ["is rude"])
        assert len({heard.peer for heard in there.heard}) == 1
        (idle,) = client._idle
        idle.sock.shutdown(socket.SHUT_RDWR)  # as when the other side closed it meanwhile
        assert client.score(SPAN, ["is rude"]).received.attempts == 1


def test_an_answer_that_ends_the_connection() -> None:
    def told(_n: int, heard: Heard) -> Told:
        return Told(body=scored(heard).body, close=True)

    with service(told) as there, Client(there.url) as client:
        for _ in range(2):
            client.score(SPAN, ["is rude"])
    assert len({heard.peer for heard in there.heard}) == 2


def test_threads_may_share_a_client() -> None:
    with service(lambda _n, h: scored(h)) as there, Client(there.url) as client, ThreadPoolExecutor(8) as pool:
        names = [f"behavior {n}" for n in range(64)]
        found = list(pool.map(lambda name: client.score(SPAN, [name])[0].id, names))
    assert found == names


def test_cancelling_hangs_up() -> None:
    async def run(there: Service) -> None:
        async with AsyncClient(there.url) as client:
            task = asyncio.create_task(client.score(SPAN, ["is rude"]))
            while not there.heard:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with service(lambda _n, _h: Told(200, b"", after_s=0.5)) as there:
        asyncio.run(run(there))
    assert len(there.heard) == 1


def test_the_other_calls() -> None:
    def told(_n: int, heard: Heard) -> Told:
        if heard.path == "/v1/systemone":
            answers = {key: {"type": "noul", "noul": True} for key in heard.json["questions"]}
            return Told(body={"model": "tiny", "answers": answers, "usage": {"input_tokens": 3}})
        return Told(body={"/v1/models": {"data": [{"id": "tiny"}]}, "/version": {"version": "1"}}.get(heard.path, {}))

    async def run(url: str) -> tuple[object, ...]:
        async with AsyncClient(url) as client:
            answers = await client.ask("text", {"q": {"type": "noul", "instructions": "Is it so?"}})
            return answers, await client.models(), await client.version(), await client.status()

    with service(told) as there, Client(there.url) as client:
        answers = client.ask("text", {"q": {"type": "noul", "instructions": "Is it so?"}})
        assert answers.answers == {"q": {"type": "noul", "noul": True}}
        assert (client.models(), client.version(), client.status()) == (["tiny"], {"version": "1"}, {})
        assert asyncio.run(run(there.url)) == (answers, ["tiny"], {"version": "1"}, {})


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8000", "http://", "http://h/?q=1", "http://u:p@h", "http://h:x"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match="url"):
        Client(url)


def test_addresses() -> None:
    assert Where.of("https://h/v1") == Where("https", "h", 443, "")
    assert Where.of("http://[::1]:9/cell/v1/") == Where("http", "::1", 9, "/cell")


def test_keys_are_header_values() -> None:
    with pytest.raises(InputError, match="api_key"):
        Client(api_key="a\r\nx-evil: 1")


def test_results_as_events() -> None:
    (event,) = evaluation_events([BehaviorScore("rude", 0.1, 0.2, 0.7)])
    assert event.name == "gen_ai.evaluation.result"
    assert event.attributes["gen_ai.evaluation.score.value"] == 0.1
    assert event.attributes["gen_ai.evaluation.score.label"] == "not_observable"


def test_the_packages_own_names() -> None:
    assert mainspring.Client is Client
    assert mainspring.AsyncClient is AsyncClient
