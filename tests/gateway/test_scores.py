"""`/v1/scores` in the shape its clients speak, through a real socket."""

import asyncio
import json
import threading
from typing import Any

import msgspec
import numpy as np
import pytest

from mainspring.fleet.errors import LinkLostError, RequestRefusedError
from mainspring.gateway.config import GatewayLimits
from mainspring.gateway.routes.scores import FAMILIAR_MOST
from mainspring.text.bundle import Bundle
from mainspring.text.formats import read_span
from mainspring.text.question import Behavior
from mainspring.wire import messages as m
from support.fleet import expected
from support.gateway import BEHAVIORS, CHAT, SCORES, ScriptedFleet, model_status, packed, play, served, until


def test_reply_is_exactly_the_shape() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES, x_request_id="abc-1")
            assert reply.status == 200
            assert set(reply.json) == {"model", "results", "usage"}
            assert reply.json["model"] == "embedded"
            assert [row["id"] for row in reply.json["results"]] == ["url", "sorry"]
            for row in reply.json["results"]:
                assert set(row) == {"id", "p_present", "p_absent", "p_not_observable"}
                assert abs(row["p_present"] + row["p_absent"] + row["p_not_observable"] - 1.0) < 1e-9
            assert set(reply.json["usage"]) == {"input_tokens"}
            assert reply.headers["x-request-id"] == "abc-1"
            assert reply.headers["x-slo-class"] == "standard"
            assert reply.headers["x-predicted-ms"] == "50.0"
            assert "device;dur=10.00" in reply.headers["server-timing"]
            for path in ("/api/v1/scores", "/scores"):
                assert (await s.post(path, SCORES)).json == reply.json

    play(scene())


def test_what_is_submitted_and_how_it_is_read() -> None:
    """Tokens are the bundle's, probabilities the bundle's of the logits of those tokens, row by row."""

    async def scene() -> None:
        bundle = Bundle.unpack(packed()[1])
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES)
            (submit,) = s.fleet.submits
            view = bundle.view(read_span({"span": CHAT}).span)
            branches = bundle.branches([Behavior(each["id"], each["definition"]) for each in BEHAVIORS])
            assert m.u32(submit.view_tokens).tolist() == view.tokens.tolist()
            assert m.u32(submit.branch_tokens).tolist() == [t for each in branches for t in each.tokens.tolist()]
            assert m.u32(submit.branch_lengths).tolist() == [len(each.tokens) for each in branches]
            table = bundle.probabilities(np.frombuffer(expected(submit), "<f4").reshape(2, 3), "behavior")
            got = [[row["p_present"], row["p_absent"], row["p_not_observable"]] for row in reply.json["results"]]
            assert got == table.tolist()
            assert reply.json["usage"]["input_tokens"] == len(view.tokens) + sum(len(b.tokens) for b in branches)

    play(scene())


def test_metadata_never_reaches_the_model() -> None:
    async def scene() -> None:
        async with served() as s:
            await s.post("/v1/scores", SCORES)
            extra = {"respan_params": {"customer_identifier": "zebra", "metadata": {"zebra": "zebra"}}, "zebra": 1}
            reply = await s.post("/v1/scores", SCORES | extra)
            assert reply.status == 200
            one, other = s.fleet.submits
            assert (one.view_tokens, one.branch_tokens) == (other.view_tokens, other.branch_tokens)

    play(scene())


def test_thousands_of_behaviors_keep_their_order() -> None:
    async def scene() -> None:
        behaviors = [{"id": f"b{n}", "definition": f"the assistant says number {n}"} for n in range(3000)]
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES | {"behaviors": behaviors})
            assert reply.status == 200
            assert [row["id"] for row in reply.json["results"]] == [each["id"] for each in behaviors]
            alone = await s.post("/v1/scores", SCORES | {"behaviors": behaviors[1234:1235]})
            assert alone.json["results"][0] == reply.json["results"][1234]

    play(scene())


@pytest.mark.parametrize(
    ("change", "status", "reason", "param"),
    [
        ({"span": {"input": [], "output": {"role": "user", "content": "x"}}}, 422, "bad_span", "output.role"),
        ({"span": {"nothing": 1}}, 422, "unknown_format", "span"),
        ({"behaviors": []}, 422, "validation", "behaviors"),
        ({"behaviors": [{"id": "a", "definition": "xy"}]}, 422, "validation", "behaviors[0].definition"),
        ({"behaviors": [{"id": "a", "definition": "   x   "}]}, 422, "bad_behavior", "behaviors[0].definition"),
        ({"behaviors": [{"id": "a"}]}, 422, "validation", "behaviors[0]"),
        ({"behaviors": [BEHAVIORS[0], {"id": 7, "definition": "xyz"}]}, 422, "validation", "behaviors[1].id"),
        ({"behaviors": [BEHAVIORS[0], BEHAVIORS[0]]}, 422, "validation", "behaviors[1].id"),
        ({"behaviors": "x"}, 422, "validation", "behaviors"),
        ({"model": 7}, 422, "validation", "model"),
        ({"model": "nobody"}, 404, "unknown_model", "model"),
        ({"span": {"input": "word " * 9000, "output": "x"}}, 413, "too_large", "span"),
        ({"on_overflow": "maybe"}, 422, "validation", "on_overflow"),
    ],
)  # fmt: skip
def test_refusals_name_the_field(change: dict[str, object], status: int, reason: str, param: str | None) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES | change)
            assert (reply.status, reply.json["reason"], reply.json.get("param")) == (status, reason, param)
            assert isinstance(reply.json["detail"], str)
            assert s.fleet.submits == []
            assert (await s.post("/v1/scores", SCORES)).status == 200

    play(scene())


def test_the_one_sentence_that_clients_match() -> None:
    async def scene() -> None:
        async with served() as s:
            span = {"input": CHAT["input"], "output": {"role": "user", "content": "x"}}
            reply = await s.post("/v1/scores", SCORES | {"span": span})
            assert reply.json["detail"] == "bad span: span output must be an assistant message"

    play(scene())


def test_too_large_gives_both_figures() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES | {"span": {"input": "word " * 9000, "output": "x"}})
            assert reply.json["limit"] == 4096
            assert reply.json["actual"] > 4096
            cut = await s.post(
                "/v1/scores", SCORES | {"span": {"input": "word " * 9000, "output": "x"}, "on_overflow": "cut"}
            )
            assert cut.status == 200
            assert len(s.fleet.submits[-1].view_tokens) // 4 <= 4096

    play(scene())


@pytest.mark.parametrize("body", [b"", b"}", b"\xff\xfe", b'{"a": [1,2', b'{"span": NaN}', b'{"span":' + b"[" * 10**5])
def test_what_is_no_json_is_400(body: bytes) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", body)
            assert (reply.status, reply.json["reason"]) == (400, "malformed")

    play(scene())


@pytest.mark.parametrize(
    ("error", "status", "after", "ms", "retry"),
    [
        (RequestRefusedError("contention", "full", status=429, retry_after_s=2.3), 429, "3", "2300", "true"),
        (RequestRefusedError("contention", "full", status=429, retry_after_s=0.02), 429, "1", "20", "true"),
        (RequestRefusedError("contention", "full", status=429, retry_after_s=500.0), 429, "60", "60000", "false"),
        (RequestRefusedError("deadline_passed", "late", status=429), 429, None, None, "false"),
        (RequestRefusedError("expired", "late", status=429, retry_after_s=1.0), 504, "1", "1000", "true"),
        (RequestRefusedError("no_node", "gone", status=503), 503, "1", "1000", "true"),
        (RequestRefusedError("condemned", "killed two", status=500), 500, None, None, None),
        (RequestRefusedError("unknown_model", "gone", status=404), 503, "5", "5000", "true"),
        (LinkLostError("cut"), 503, "1", "1000", "true"),
    ],
)  # fmt: skip
def test_the_routers_refusals(
    error: Exception, status: int, after: str | None, ms: str | None, retry: str | None
) -> None:  # fmt: skip
    async def scene() -> None:
        async with served(ScriptedFleet(error=error)) as s:
            reply = await s.post("/v1/scores", SCORES)
            assert reply.status == status
            assert reply.headers.get("retry-after") == after
            assert reply.headers.get("retry-after-ms") == ms
            assert reply.headers.get("x-should-retry") == retry
            assert reply.json["reason"]

    play(scene())


def test_a_client_that_hangs_up_cancels_its_work() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            _reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            body = json.dumps(SCORES).encode()
            head = f"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await until(lambda: len(fleet.submits) == 1)
            writer.close()
            await until(lambda: fleet.cancelled == 1)
            await until(lambda: s.gateway.counts.finished[("/v1/scores", 499)] == 1)
            assert s.gateway.counts.open == 0

    play(scene())


def test_idempotency_key_computes_once() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            asked = [asyncio.create_task(s.post("/v1/scores", SCORES, idempotency_key="k")) for _ in range(3)]
            await until(lambda: len(fleet.submits) == 1 and s.gateway.counts.open == 3)
            assert fleet.hold is not None
            fleet.hold.set()
            replies = await asyncio.gather(*asked)
            again = await s.post("/v1/scores", SCORES, idempotency_key="k")
            assert len({reply.body for reply in [*replies, again]}) == 1
            assert again.headers["idempotent-replayed"] == "true"
            assert len(fleet.submits) == 1
            other = await s.post("/v1/scores", SCORES | {"behaviors": BEHAVIORS[:1]}, idempotency_key="k")
            assert (other.status, other.json["reason"]) == (422, "idempotency_conflict")

    play(scene())


def test_a_retry_after_the_first_hung_up_still_gets_an_answer() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            body = json.dumps(SCORES).encode()
            head = f"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\nidempotency-key: k\r\ncontent-length: {len(body)}"
            _reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head.encode() + b"\r\n\r\n" + body)
            await until(lambda: len(fleet.submits) == 1)
            retry = asyncio.create_task(s.post("/v1/scores", SCORES, idempotency_key="k"))
            await until(lambda: s.gateway.counts.open == 2)
            writer.close()
            await until(lambda: s.gateway.counts.open == 1)
            assert fleet.cancelled == 0
            assert fleet.hold is not None
            fleet.hold.set()
            assert (await retry).status == 200
            assert len(fleet.submits) == 1

    play(scene())


def test_class_and_deadline_reach_the_router() -> None:
    async def scene() -> None:
        async with served() as s:
            trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            reply = await s.post(
                "/v1/scores", SCORES, x_slo_class="interactive", x_deadline_ms="5000", traceparent=trace
            )
            assert reply.headers["x-slo-class"] == "interactive"
            (submit,) = s.fleet.submits
            assert submit.slo == "interactive"
            assert submit.trace == trace
            assert submit.deadline_s is not None
            assert 0.0 < submit.deadline_s < 5.0
            for headers, param in (
                ({"x_slo_class": "best"}, "x-slo-class"), ({"x_deadline_ms": "-1"}, "x-deadline-ms"),
                ({"x_deadline_ms": "soon"}, "x-deadline-ms"), ({"x_deadline_ms": "nan"}, "x-deadline-ms"),
            ):  # fmt: skip
                reply = await s.post("/v1/scores", SCORES, **headers)
                assert (reply.status, reply.json["param"]) == (422, param)
            late = await s.post("/v1/scores", SCORES, x_deadline_ms="0.001")
            assert (late.status, late.json["reason"]) == (429, "deadline_passed")
            assert late.headers["x-should-retry"] == "false"
            assert len(s.fleet.submits) == 1

    play(scene())


def test_no_answer_within_the_limit_is_504_and_taken_back() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet, limits=GatewayLimits(request_s=0.05)) as s:
            reply = await s.post("/v1/scores", SCORES)
            assert (reply.status, reply.json["reason"], reply.json["limit"]) == (504, "timeout", 0.05)
            assert fleet.cancelled == 1

    play(scene())


def test_a_model_whose_nodes_are_gone_is_503_and_an_unknown_one_404() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet()
        async with served(fleet) as s:
            fleet.models = (model_status(aliases=("other",), model="e" * 64),)
            await until(lambda: s.gateway.catalogue.models == fleet.models)
            gone = await s.post("/v1/scores", SCORES)
            assert (gone.status, gone.json["reason"]) == (503, "no_node")
            assert (await s.post("/v1/scores", SCORES | {"model": "never"})).status == 404
            assert (await s.post("/v1/scores", SCORES | {"model": ""})).status == 200

    play(scene())


def test_a_bundle_that_is_not_the_one_it_should_be_is_not_used_and_fetched_again() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(models=(model_status(bundle="0" * 64),))
        async with served(fleet) as s:
            for _ in range(2):
                reply = await s.post("/v1/scores", SCORES)
                assert (reply.status, reply.json["reason"]) == (503, "bundle")
            assert fleet.submits == []
            fleet.models = (model_status(),)
            await until(lambda: s.gateway.catalogue.models == fleet.models)
            assert (await s.post("/v1/scores", SCORES)).status == 200
            assert (await s.post("/v1/scores", SCORES)).status == 200
            assert fleet.fetched == ["0" * 64, "0" * 64, packed()[0]]

    play(scene())


def test_more_requests_than_may_wait_for_a_thread() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(assembling=1, threads=1)) as s:
            await s.post("/v1/scores", SCORES)
            unseen = {"behaviors": [{"id": "n", "definition": "Questions that are new go to the pool."}]}
            block = threading.Event()
            blocked = asyncio.create_task(s.gateway.pool.run(block.wait))
            await until(lambda: s.gateway.pool.outstanding == 1)
            waiting = asyncio.create_task(s.post("/v1/scores", SCORES | unseen))
            await until(lambda: s.gateway.pool.outstanding == 2)
            refused = await s.post("/v1/scores", SCORES | unseen)
            assert (refused.status, refused.json["reason"]) == (429, "gateway_busy")
            assert "limits.assembling" in refused.json["detail"]
            block.set()
            await blocked
            assert (await waiting).status == 200

    play(scene())


def test_many_small_turns_are_not_rendered_on_the_loop() -> None:
    """A tenth of a second for 200 KB of them, in which nobody else would be answered."""

    async def scene() -> None:
        turns = [{"role": "user", "content": "a"}] * 3000
        long = [{"role": "user", "content": "a long turn " * 8000}]
        async with served() as s:
            await s.post("/v1/scores", SCORES)
            threads: list[bool] = []
            assembler = await s.gateway.catalogue.assembler(s.gateway.catalogue.find("").bundle)
            prepare = assembler.prepare

            def noted(call: Any, salt: bytes) -> Any:
                threads.append(threading.current_thread() is threading.main_thread())
                return prepare(call, salt)

            assembler.prepare = noted  # type: ignore[method-assign]
            for said in (long, turns):
                await s.post("/v1/scores", SCORES | {"span": {"input": said, "output": "b"}})
            assert threads == [True, False]

    play(scene())


def test_the_view_comes_where_it_is_asked_for() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES | {"include_view": True})
            assert "Where are the docs?" in "".join(piece["text"] for piece in reply.json["view"])
            assert reply.json["format"] == "span-01"
            assert reply.json["notes"] == []

    play(scene())


def test_turns_that_came_before_change_no_score_and_are_kept_by_tenant() -> None:
    """The second request is rendered on the loop and finds its turns; its tokens are those of the first."""

    async def scene() -> None:
        turns = [{"role": "assistant" if at % 2 else "user", "content": f"Turn {at}. " * 20} for at in range(6)]
        asked = SCORES | {"span": {"input": turns[:-1], "output": turns[-1]}}
        async with served() as s:
            first, second = [(await s.post("/v1/scores", asked)).json for _ in range(2)]
            assert first == second
            assert s.fleet.submits[0].view_tokens == s.fleet.submits[1].view_tokens
            model = s.gateway.catalogue.find("")
            cache = (await s.gateway.catalogue.assembler(model.bundle)).segments
            assert cache.hits > 500
            texts = [text for part in cache._parts for salt, text in part.kept if salt == s.gateway.keys.salt("")]
            assert len(texts) == len(cache) > 4
            assert not cache.find(b"another tenant's", texts)

    play(scene())


def test_familiarity_is_there_where_it_is_asked_for_as_the_scorer_has_it() -> None:
    bundle = Bundle.unpack(packed()[1])
    known = bundle.familiarity
    assert known is not None

    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/scores", SCORES | {"include_familiarity": True})
            assert reply.status == 200, reply.body
            branches = bundle.branches([Behavior(each["id"], each["definition"]) for each in BEHAVIORS])
            found = [row["familiarity"] for row in reply.json["results"]]
            assert found == [known(branch.tokens) for branch in branches]
            assert len(set(found)) == 2
            assert "familiarity" not in (await s.post("/v1/scores", SCORES)).json["results"][0]
            many = [{"id": str(n), "definition": "the assistant lies"} for n in range(FAMILIAR_MOST + 1)]
            reply = await s.post("/v1/scores", SCORES | {"include_familiarity": True, "behaviors": many})
            assert (reply.status, reply.json["param"], reply.json["limit"]) == (422, "include_familiarity", 256)

    play(scene())


def test_a_bundle_that_can_not_tell_says_nothing_of_familiarity() -> None:
    data = packed()[1]
    files = msgspec.structs.replace(Bundle.unpack(data).files, familiarity=b"")
    plain = Bundle.of_files(files)
    assert plain.hash != packed()[0]

    class Plain(ScriptedFleet):
        async def bundle(self, name: str) -> bytes:  # noqa: ARG002 - there is one
            return plain.pack()

    async def scene() -> None:
        async with served(Plain(models=(model_status(bundle=plain.hash),))) as s:
            reply = await s.post("/v1/scores", SCORES | {"include_familiarity": True})
            assert reply.status == 200, reply.body
            assert "familiarity" not in reply.json["results"][0]

    play(scene())
