"""System One, decisions, query and items, models, and the surfaces of errors."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from mainspring.fleet.admission import MAX_LABELS
from mainspring.fleet.errors import RequestRefusedError
from mainspring.gateway.keys import Key
from mainspring.gateway.routes._questions import confidence, expected
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m
from support.fleet import expected as logits_of
from support.gateway import CHAT, ScriptedFleet, model_status, node_status, packed, play, served, until

NOUL = {"type": "noul", "instructions": "The customer is unhappy", "criteria": {"true": "complains", "false": "thanks"}}
CHOICE = {
    "type": "choice",
    "instructions": "What is it about?",
    "criteria": {"shipping": "late parcels", "price": None},
}
SCORE = {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]}
SYSTEM = {"state": "The parcel came late.", "questions": {"n": NOUL, "c": CHOICE, "s": SCORE}}


def test_system_one_answers_under_the_callers_ids() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/systemone", SYSTEM)
            assert reply.status == 200
            answers = reply.json["answers"]
            assert list(answers) == ["n", "c", "s"]
            assert set(answers["n"]) == {"type", "noul"}
            assert set(answers["c"]) == {"type", "choice", "probabilities", "confidence"}
            assert set(answers["s"]) == {"type", "score", "probabilities", "legend", "confidence"}
            assert answers["c"]["choice"] == max(answers["c"]["probabilities"], key=answers["c"]["probabilities"].get)
            assert answers["s"]["legend"] == {"0": "calm", "1": "cross", "2": "furious"}
            for name in ("c", "s"):
                assert math.isclose(sum(answers[name]["probabilities"].values()), 1.0)
            mean = sum(int(level) * share for level, share in answers["s"]["probabilities"].items())
            assert math.isclose(answers["s"]["score"], mean)

    play(scene())


def test_without_a_trained_head_each_option_is_a_branch_and_p_present_is_normalised() -> None:
    """The embedded bundle calibrates behaviors alone: 1 + 2 + 3 branches with three labels each."""

    async def scene() -> None:
        bundle = Bundle.unpack(packed()[1])
        async with served() as s:
            answers = (await s.post("/v1/systemone", SYSTEM)).json["answers"]
            (submit,) = s.fleet.submits
            assert m.u32(submit.label_counts).tolist() == [3] * 6
            table = bundle.probabilities(np.frombuffer(logits_of(submit), "<f4").reshape(6, 3), "behavior")
            assert math.isclose(answers["n"]["noul"], table[0, 0] / (table[0, 0] + table[0, 1]))
            shares = table[1:3, 0] / table[1:3, 0].sum()
            assert np.allclose([*answers["c"]["probabilities"].values()], shares)
            shares = table[3:6, 0] / table[3:6, 0].sum()
            assert np.allclose([*answers["s"]["probabilities"].values()], shares)

    play(scene())


def test_questions_do_not_change_each_other() -> None:
    async def scene() -> None:
        async with served() as s:
            together = (await s.post("/v1/systemone", SYSTEM)).json["answers"]
            for name, question in SYSTEM["questions"].items():  # type: ignore[attr-defined]
                alone = await s.post("/v1/systemone", SYSTEM | {"questions": {name: question}})
                assert alone.json["answers"][name] == together[name]

    play(scene())


@pytest.mark.parametrize("state", ["text", {"a": [1, {"b": None}]}, [1, 2, 3], {"messages": CHAT["input"]}, []])
def test_any_state_is_read(state: object) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/systemone", SYSTEM | {"state": state})
            assert reply.status == 200, reply.body

    play(scene())


@pytest.mark.parametrize(
    ("questions", "param"),
    [
        ({}, "questions"),
        ({"c": CHOICE | {"criteria": {}}}, "questions.c.criteria"),
        ({"c": CHOICE | {"criteria": {str(n): None for n in range(256)}}}, "questions.c.criteria"),
        ({"s": SCORE | {"criteria": ["one"]}}, "questions.s.criteria"),
        ({"s": SCORE | {"criteria": [str(n) for n in range(11)]}}, "questions.s.criteria"),
        ({"s": SCORE | {"criteria": ["same", "same"]}}, "questions.s.criteria"),
        ({"n": NOUL, "x": {"type": "maybe", "instructions": "eh"}}, "questions.x.type"),
        ({"n": NOUL | {"instructions": "x"}}, "questions.n.instructions"),
    ],
)  # fmt: skip
def test_system_one_refuses_by_name(questions: object, param: str) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/systemone", SYSTEM | {"questions": questions})
            assert (reply.status, reply.json["param"]) == (422, param), reply.body

    play(scene())


def test_one_option_is_certain_and_255_are_possible() -> None:
    async def scene() -> None:
        async with served() as s:
            one = await s.post("/v1/systemone", SYSTEM | {"questions": {"c": CHOICE | {"criteria": {"a": None}}}})
            assert one.json["answers"]["c"]["probabilities"] == {"a": 1.0}
            many = CHOICE | {"criteria": {f"option {n}": None for n in range(255)}}
            reply = await s.post("/v1/systemone", SYSTEM | {"questions": {"c": many}})
            assert len(reply.json["answers"]["c"]["probabilities"]) == 255

    play(scene())


def test_confidence_is_0_for_equal_shares_and_1_for_one() -> None:
    assert confidence(np.full(4, 0.25)) == 0.0
    assert confidence(np.array([0.0, 1.0, 0.0])) == 1.0
    assert math.isclose(confidence(np.array([0.75, 0.25])), 0.5)
    assert expected(np.array([0.0, 0.0, 1.0])) == 2.0


def test_decisions_answer_in_order() -> None:
    async def scene() -> None:
        asked = {
            "input": [
                {"role": "user", "content": "It broke."},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "done"},
            ],
            "questions": [
                {"type": "score", "name": "mood", "instructions": "How angry?",
                 "levels": [{"label": "calm"}, {"label": "cross", "description": "raises the voice"}]},
                {"type": "predicate", "instructions": "A refund was made"},
                {"type": "choice", "name": "kind", "instructions": "Which?",
                 "choices": [{"value": True, "description": "a complaint"}, {"value": "other"}]},
            ],
        }  # fmt: skip
        async with served() as s:
            reply = await s.post("/v1/decisions", asked)
            assert reply.status == 200, reply.body
            mood, refund, kind = reply.json["answers"]
            assert [mood["name"], kind["name"]] == ["mood", "kind"]
            assert "name" not in refund
            assert [each["label"] for each in mood["probabilities"]] == ["calm", "cross"]
            assert [each["value"] for each in mood["probabilities"]] == [0, 1]
            assert 0.0 <= refund["probability"] <= 1.0
            assert [each["value"] for each in kind["probabilities"]] == [True, "other"]
            assert kind["choice"] in (True, "other")
            bad = await s.post("/v1/decisions", asked | {"questions": [{"type": "choice", "instructions": "abc",
                                                                        "choices": [{"value": "a"}]}]})  # fmt: skip
            assert (bad.status, bad.json["param"]) == (422, "questions[0].choices")

    play(scene())


ITEMS = {"query": "Is this a fruit? ", "items": ["apple", [7, 8], "car"], "label_token_ids": [11, 12]}


def test_items_are_branches_of_one_query() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/score", ITEMS | {"apply_softmax": True})
            assert reply.status == 200, reply.body
            assert reply.json["object"] == "scoring"
            assert [len(row) for row in reply.json["scores"]] == [2, 2, 2]
            assert all(math.isclose(sum(row), 1.0) for row in reply.json["scores"])
            (submit,) = s.fleet.submits
            assert m.u32(submit.label_ids).tolist() == [11, 12] * 3
            single = await s.post("/v1/generative_scoring", ITEMS)
            assert [each["index"] for each in single.json["data"]] == [0, 1, 2]
            firsts = [row[0] for row in reply.json["scores"]]
            assert [each["score"] for each in single.json["data"]] == firsts

    play(scene())


@pytest.mark.parametrize("item_first", [False, True])
def test_without_softmax_scores_are_shares_of_the_whole_vocabulary(item_first: bool) -> None:
    """Every id of it is asked for, once; shares among the labels follow from these."""
    bundle = Bundle.unpack(packed()[1])
    size = bundle.tokenizer.vocab_size

    async def scene() -> None:
        async with served() as s:
            asked = ITEMS | {"item_first": item_first, "label_token_ids": [5, 3, size - 1]}
            reply = await s.post("/v1/score", asked)
            assert reply.status == 200, reply.body
            assert len(s.fleet.submits) == 3
            for submit, row in zip(s.fleet.submits, reply.json["scores"], strict=True):
                assert m.u32(submit.label_ids).tolist() == list(range(size))
                assert m.u32(submit.label_counts).max() <= MAX_LABELS
                logits = m.f32(logits_of(submit)).astype(np.float64)
                every = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
                assert row == pytest.approx(every[[5, 3, size - 1]].tolist(), rel=1e-9)
                assert sum(row) < 0.9
            first = await s.post("/v1/generative_scoring", asked | {"apply_softmax": False})
            assert [each["score"] for each in first.json["data"]] == [row[0] for row in reply.json["scores"]]
            tokens = sum(len(bundle.tokenizer.encode_text(each)) if isinstance(each, str) else 2
                         for each in ITEMS["items"])  # fmt: skip
            query = len(bundle.tokenizer.encode_text(ITEMS["query"]))
            wanted = tokens + query * (3 if item_first else 1)
            assert reply.json["usage"] == {"prompt_tokens": wanted, "total_tokens": wanted, "completion_tokens": 0}

    play(scene())


@pytest.mark.parametrize("item_first", [False, True])
@pytest.mark.parametrize("softmax", [False, True])
def test_a_quota_is_charged_what_usage_says_and_nothing_where_items_fail(*, item_first: bool, softmax: bool) -> None:
    """Without softmax an item is asked in many branches and requests: none of that is the caller's."""

    async def scene() -> None:
        async with served() as s:
            key = Key("", daily_tokens=10_000)
            s.gateway.keys.named = lambda _tenant: key  # type: ignore[method-assign]
            asked = ITEMS | {"item_first": item_first, "apply_softmax": softmax}
            usage = (await s.post("/v1/score", asked)).json["usage"]
            used = s.gateway.ledger.used(key, s.gateway.wall_s())
            assert used == usage["prompt_tokens"] == s.gateway.counts.input_tokens
            real, asks = s.fleet.score, [0]

            async def score(*arguments: Any) -> Any:
                asks[0] += 1
                if asks[0] > 1 or not (item_first or not softmax):
                    raise RequestRefusedError("contention", "full", status=429, retry_after_s=1.0)
                return await real(*arguments)

            s.fleet.score = score  # type: ignore[method-assign]
            assert (await s.post("/v1/score", asked)).status == 429
            assert s.gateway.ledger.used(key, s.gateway.wall_s()) == used

    play(scene())


def test_item_first_makes_each_item_a_view() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/generative_scoring", ITEMS | {"item_first": True})
            assert reply.status == 200, reply.body
            assert len(s.fleet.submits) == 3
            assert len({submit.request for submit in s.fleet.submits}) == 3
            assert len({submit.branch_tokens for submit in s.fleet.submits}) == 1

    play(scene())


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"apply_softmax": False, "items": ["a"] * 65}, "items"),
        ({"label_token_ids": []}, "label_token_ids"),
        ({"label_token_ids": [10**8]}, "label_token_ids[0]"),
        ({"items": []}, "items"),
        ({"items": ["a", ""]}, "items[1]"),
        ({"items": ["a", [-1]]}, "items[1][0]"),
        ({"query": ""}, "query"),
        ({"items": ["a"] * 65, "item_first": True}, "items"),
    ],
)  # fmt: skip
def test_items_refused_by_name(change: dict[str, object], param: str) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.post("/v1/score", {"apply_softmax": True} | ITEMS | change)
            assert (reply.status, reply.json["param"]) == (422, param), reply.body

    play(scene())


def test_one_failed_view_fails_the_request_and_takes_the_rest_back() -> None:
    """Not a group of exceptions, but the first error itself."""

    async def scene() -> None:
        from mainspring.fleet.errors import RequestRefusedError

        async with served(ScriptedFleet(error=RequestRefusedError("contention", "full", status=429,
                                                                  retry_after_s=1.0))) as s:  # fmt: skip
            reply = await s.post("/v1/generative_scoring", ITEMS | {"item_first": True})
            assert (reply.status, reply.json["reason"]) == (429, "contention")

    play(scene())


def test_models_and_version() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(models=(model_status(aliases=("a", "owner/b")),))
        async with served(fleet) as s:
            listed = (await s.get("/v1/models")).json
            assert listed["object"] == "list"
            assert [each["id"] for each in listed["data"]] == ["a", "owner/b"]
            assert (await s.get("/models")).json == (await s.get("/v1/models/")).json == listed
            assert (await s.get("/v1/models/owner/b")).json["id"] == "owner/b"
            missing = await s.get("/v1/models/nothing")
            assert missing.status == 404
            assert set(missing.json["error"]) == {"message", "type", "param", "code"}
            assert isinstance((await s.get("/version")).json["version"], str)

    play(scene())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"), ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/nothing", 404, "not_found"),
    ],
)  # fmt: skip
def test_404_and_405_are_json_too(method: str, path: str, status: int, code: str) -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.request(method, path)
            assert reply.status == status, reply.body
            assert reply.json["error"]["code"] == code
            assert reply.headers["x-request-id"].startswith("req-")

    play(scene())


def test_readiness_follows_what_nodes_did_lately() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet()
        async with served(fleet, ready_s=30.0) as s:
            assert (await s.get("/health/ready")).status == 200
            for nodes, reason in (
                ((), "no_node"), ((node_status(state="failing"),), "no_node"),
                ((node_status(state="late"),), "no_node"),
                ((node_status(idle_s=31.0),), "no_recent_pass"),
            ):  # fmt: skip
                fleet.nodes = nodes
                await until(lambda nodes=nodes: s.gateway.router.nodes == nodes)  # type: ignore[misc]
                reply = await s.get("/health/ready")
                assert (reply.status, reply.json["reason"]) == (503, reason)
                assert (await s.get("/health")).status == 200

    play(scene())


def test_metrics_and_status_count_what_happened() -> None:
    async def scene() -> None:
        async with served() as s:
            await asyncio.gather(*(s.post("/v1/systemone", SYSTEM) for _ in range(3)))
            await s.post("/v1/systemone", SYSTEM | {"model": "never"})
            status = (await s.get("/status")).json
            assert status["gateway"]["requests"] == {"open": 1, "begun": 5, "2xx": 3, "4xx": 1}
            assert status["gateway"]["refused"] == {"unknown_model": 1}
            assert status["nodes"][0]["name"] == "ant"
            page = (await s.get("/metrics")).body.decode()
            assert 'mainspring_requests_total{route="/v1/systemone",status="200"} 3.0' in page
            assert 'mainspring_refusals_total{reason="unknown_model"} 1.0' in page
            assert 'gen_ai_server_request_duration_seconds_count{operation="score"' in page
            assert "mainspring_stage_seconds_bucket" in page
            assert "mainspring_ready 1.0" in page
            assert 'mainspring_nodes{state="ready"} 1.0' in page

    play(scene())
