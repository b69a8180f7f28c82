"""Clients that people have: openai's retries on our refusals, a span of OpenTelemetry's scored, and ours."""

import asyncio
import json
from typing import Any

import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id

from mainspring.client import AsyncClient, Client, RequestError, Retries, evaluation_events
from mainspring.fleet.errors import RequestRefusedError
from support.gateway import BEHAVIORS, CHAT, SCORES, ScriptedFleet, Served, play, served


class Refusing(ScriptedFleet):
    """Refuses so many requests, then answers."""

    def __init__(self, times: int, retry_after_s: float | None, status: int = 429) -> None:
        super().__init__()
        self._left, self._retry_after_s, self._status = times, retry_after_s, status
        self.at_s: list[float] = []

    async def score(self, submit: Any, accepted: Any = None) -> Any:
        self.at_s.append(asyncio.get_running_loop().time())
        if len(self.at_s) <= self._left:
            self.submits.append(submit)
            raise RequestRefusedError(
                "contention", "it would miss its target", status=self._status, retry_after_s=self._retry_after_s
            )
        return await super().score(submit, accepted)


async def by_openai(s: Served, retries: int) -> Any:
    """As people call a route that the library does not know."""
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{s.port}/v1", api_key="sk-x", max_retries=retries
    ) as client:
        return await client.post("/scores", cast_to=object, body=SCORES)


def test_openai_comes_back_when_it_is_told_to() -> None:
    """429 with `retry-after-ms`: it waits that long, not its own half second, and gets its answer."""

    async def scene() -> None:
        fleet = Refusing(2, 0.05)
        async with served(fleet) as s:
            found = await by_openai(s, retries=2)
            assert [each["id"] for each in found["results"]] == ["url", "sorry"]
            assert len(fleet.at_s) == 3
            waits = [later - earlier for earlier, later in zip(fleet.at_s, fleet.at_s[1:], strict=False)]
            assert min(waits) >= 0.05

    play(scene())


def test_openai_gives_up_where_no_retry_can_help() -> None:
    async def scene() -> None:
        fleet = Refusing(9, None)
        async with served(fleet) as s:
            with pytest.raises(openai.RateLimitError) as error:
                await by_openai(s, retries=5)
            assert len(fleet.at_s) == 1
            assert error.value.response.headers["x-should-retry"] == "false"
            assert error.value.response.json()["reason"] == "contention"

    play(scene())


def test_openai_gives_up_after_its_own_number_of_tries() -> None:
    async def scene() -> None:
        fleet = Refusing(9, 0.01, status=503)
        async with served(fleet) as s:
            with pytest.raises(openai.InternalServerError):
                await by_openai(s, retries=1)
            assert len(fleet.at_s) == 2

    play(scene())


def test_openai_knows_our_errors_by_their_kind() -> None:
    async def scene() -> None:
        async with (
            served() as s,
            openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="k", max_retries=0) as client,
        ):
            assert [each.id async for each in client.models.list()] == ["embedded"]
            with pytest.raises(openai.NotFoundError) as error:
                await client.models.retrieve("nobody")
            assert isinstance(error.value.body, dict)
            assert error.value.code
            with pytest.raises(openai.UnprocessableEntityError):
                await client.post("/scores", cast_to=object, body={**SCORES, "behaviors": []})

    play(scene())


def exported() -> tuple[dict[str, Any], str, Any, InMemorySpanExporter]:
    """A chat span as an instrumented program exports it: its JSON, its trace id, its tracer and exporter."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("an instrumented program")
    said = [{"role": "user", "parts": [{"type": "text", "content": "Where are the docs?"}]}]
    text = {"type": "text", "content": "At https://docs.example.com/v9."}
    answered = [{"role": "assistant", "parts": [text], "finish_reason": "stop"}]
    with tracer.start_as_current_span("chat tiny") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.input.messages", json.dumps(said))
        span.set_attribute("gen_ai.output.messages", json.dumps(answered))
    (finished,) = exporter.get_finished_spans()
    document = json.loads(finished.to_json())
    return document, format_trace_id(finished.context.trace_id), tracer, exporter


def test_an_exported_span_is_scored_from_its_attributes_and_gets_its_results_back() -> None:
    async def scene() -> None:
        document, trace, tracer, exporter = exported()
        async with served() as s, AsyncClient(f"http://127.0.0.1:{s.port}") as client:
            parent = f"00-{trace}-{document['context']['span_id'].removeprefix('0x')}-01"
            for sent in (document, {"attributes": document["attributes"]}):
                scores = await client.score(sent, BEHAVIORS, traceparent=parent)
            plain = await client.score(CHAT, BEHAVIORS)
            assert [list(each.__struct_fields__) for each in scores] == [list(each.__struct_fields__) for each in plain]
            # The same conversation, whichever way it came: the same tokens reach the fleet, with the caller's trace.
            assert len({submit.view_tokens for submit in s.fleet.submits}) == 1
            assert s.fleet.submits[0].trace == parent
        with tracer.start_as_current_span("evaluate") as span:
            for event in evaluation_events(scores):
                span.add_event(event.name, event.attributes)
        told = exporter.get_finished_spans()[-1].events
        assert [event.name for event in told] == ["gen_ai.evaluation.result"] * 2
        for event, result in zip(told, plain, strict=True):
            assert event.attributes is not None
            assert event.attributes["gen_ai.evaluation.name"] == result.id
            assert event.attributes["gen_ai.evaluation.score.value"] == pytest.approx(result.p_present, abs=1e-12)
            assert event.attributes["gen_ai.evaluation.score.label"] == result.label

    play(scene())


def test_our_clients_wait_and_retry() -> None:
    async def scene() -> None:
        fleet = Refusing(1, 0.05)
        async with served(fleet) as s:
            async with AsyncClient(f"http://127.0.0.1:{s.port}/v1") as client:
                scores = await client.score(CHAT, BEHAVIORS, slo_class="batch", deadline_s=30.0)
                assert (scores.received.attempts, scores.received.slo_class) == (2, "batch")
                assert scores.received.predicted_ms == pytest.approx(50.0)
                assert "fleet;dur=" in scores.received.server_timing
                assert scores.received.request_id
                assert await client.models() == ["embedded"]
                assert "version" in await client.version()
            assert fleet.submits[-1].slo == "batch"
            assert fleet.submits[-1].deadline_s is not None
            assert 20.0 < fleet.submits[-1].deadline_s < 30.0

    play(scene())


def test_the_blocking_client() -> None:
    def calls(port: int) -> None:
        with Client(f"http://127.0.0.1:{port}", retries=Retries(attempts=1)) as client:
            scores = client.score(CHAT, BEHAVIORS)
            assert [each.id for each in scores] == ["url", "sorry"]
            assert sum((scores[0].p_present, scores[0].p_absent, scores[0].p_not_observable)) == pytest.approx(1.0)
            answers = client.ask("The parcel came late.", {"late": {"type": "noul", "instructions": "Was it late?"}})
            assert answers.answers["late"]["type"] == "noul"
            with pytest.raises(RequestError) as error:
                client.score(CHAT, ["ab"])
            assert (error.value.status, error.value.reason) == (422, "validation")

    async def scene() -> None:
        async with served() as s:
            s.fleet.error = None
            await asyncio.to_thread(calls, s.port)

    play(scene())


def test_a_retry_after_a_lost_answer_is_the_same_work() -> None:
    """The connection breaks while the request runs; the second try joins it by its idempotency key."""

    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s, AsyncClient(f"http://127.0.0.1:{s.port}") as client:
            first = asyncio.create_task(client.score(CHAT, BEHAVIORS, idempotency_key="k1"))
            while not fleet.submits:
                await asyncio.sleep(0.005)
            second = asyncio.create_task(client.score(CHAT, BEHAVIORS, idempotency_key="k1"))
            while s.gateway.counts.open < 2:
                await asyncio.sleep(0.005)
            first.cancel()
            assert fleet.hold is not None
            fleet.hold.set()
            assert len(await second) == 2
            assert len(fleet.submits) == 1

    play(scene())
