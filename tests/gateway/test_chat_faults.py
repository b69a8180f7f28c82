"""`/v1/chat/completions` gone wrong: what is refused by name, faults on the way, who hangs up or waits."""

import asyncio
import json
from typing import Any

import pytest

from mainspring.fleet.errors import LinkLostError, RequestRefusedError
from mainspring.wire import messages as m
from support.chats import HI, PATH, WEATHER, merged, streamed
from support.gateway import play, served, until
from support.writing import CONTEXT, events_of, ids_of, unchunked, writer


def test_a_refusal_is_an_answer_and_all_choices_are_taken_back() -> None:
    async def scene() -> None:
        fleet = writer(gate=asyncio.Event())

        def refuse(submit: m.Submit) -> Exception | None:
            if submit.request.endswith(".1"):
                return RequestRefusedError("contention", "it would miss its target", status=429, retry_after_s=2.5)
            return None

        fleet.refuse = refuse
        async with served(fleet) as s:
            for stream in (False, True):
                reply = await s.post(PATH, {"messages": HI, "n": 2, "stream": stream})
                assert reply.status == 429
                assert reply.json["error"] == {"message": "it would miss its target", "type": "rate_limit_error",
                                               "param": None, "code": "contention"}  # fmt: skip
                assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("3", "2500")
            await until(lambda: fleet.taken_back == 2)
            assert s.gateway.counts.streams == 0

    play(scene())


def test_a_fault_on_the_way_is_an_event_and_never_a_good_end() -> None:
    async def scene() -> None:
        async with served(writer("</think>" + "word " * 20, breaks_after=3)) as s:
            chunks = await streamed(s)
            assert chunks[-1]["error"]["code"] == "generation_failed"
            assert "not_finite" in chunks[-1]["error"]["message"]
            assert merged(chunks[:-1])["finish"] is None
            reply = await s.post(PATH, {"messages": HI})
            assert (reply.status, reply.json["error"]["code"]) == (500, "generation_failed")
            assert s.gateway.counts.refused["generation_failed"] == 2
            s.fleet.error = LinkLostError("the link is gone")
            assert (await s.post(PATH, {"messages": HI})).status == 503

    play(scene())


def test_who_hangs_up_frees_the_slot() -> None:
    async def scene() -> None:
        fleet = writer("</think>" + "word " * 500, gate=asyncio.Event())
        async with served(fleet) as s:
            for stream in (True, False):
                task = asyncio.create_task(s.post(PATH, {"messages": HI, "stream": stream}))
                await until(lambda: s.gateway.counts.streams == 1)
                task.cancel()
                await until(lambda: s.gateway.counts.streams == 0)
            await until(lambda: fleet.taken_back == 2)
            assert fleet.sent == 0

    play(scene())


def test_who_hangs_up_while_text_is_held_back_or_before_it_was_taken() -> None:
    async def scene() -> None:
        held = ids_of("</think>STOPST")
        fleet = writer(lambda _submit: [*held, *held], block=1, before_accept=asyncio.Event())
        async with served(fleet) as s:
            task = asyncio.create_task(s.post(PATH, {"messages": HI, "stream": True}))
            await until(lambda: len(fleet.submits) == 1)
            task.cancel()
            await until(lambda: s.gateway.counts.open == 0)
            fleet.before_accept, fleet.gate, fleet.gate_after = None, asyncio.Event(), len(held)
            task = asyncio.create_task(s.post(PATH, {"messages": HI, "stream": True, "stop": ["STOPSTOPSTOP"]}))
            await until(lambda: fleet.sent == len(held))
            task.cancel()
            await until(lambda: fleet.taken_back == 1)
            assert s.gateway.counts.streams == 0
            assert s.gateway.counts.output_tokens == len(held)

    play(scene())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"), ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"min_p": 2}, "min_p"),
        ({"n": 0}, "n"), ({"n": 17}, "n"), ({"stop": ["a"] * 17}, "stop"), ({"stop": [""]}, "stop[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"), ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"), ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"top_logprobs": 3}, "top_logprobs"), ({"functions": [{}]}, "functions"),
        ({"tools": [WEATHER, WEATHER]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
         "tool_choice.function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"tools": [WEATHER], "response_format": {"type": "json_object"}}, "response_format"),
        ({"stream_options": {"include_usage": True}}, "stream_options"), ({"priority": 5}, "priority"),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"mood": "<|im_end|>"}}, "chat_template_kwargs.mood"),
        ({"guided_json": {}, "guided_regex": "a"}, "guided_regex"), ({"drafter": "magic"}, "drafter"),
        ({"messages": [*HI, {"role": "system", "content": "late"}]}, "messages"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_400_by_name(fields: dict[str, Any], param: str) -> None:
    async def scene() -> None:
        async with served(writer()) as s:
            reply = await s.post(PATH, {"messages": HI, **fields})
            assert reply.status == 400, reply.body
            error = reply.json["error"]
            assert error["type"] == "invalid_request_error"
            assert error["param"].startswith(param), error
            assert isinstance(error["code"], str)
            assert not s.fleet.submits
            assert s.gateway.counts.streams == 0

    play(scene())


@pytest.mark.parametrize("depth", [200, 900, 5000])
def test_depth_is_refused_or_answered_and_never_a_fault(depth: int) -> None:
    deep = '{"properties":{"a":' * depth + "{}" + "}}" * depth
    fields = [
        '"tools":[{"type":"function","function":{"name":"f","parameters":' + deep + "}}]",
        '"response_format":{"type":"json_schema","json_schema":{"schema":' + deep + "}}",
        '"chat_template_kwargs":' + deep,
        '"metadata":' + deep,
    ]

    async def scene() -> None:
        async with served(writer()) as s:
            for field in fields:
                body = f'{{"messages":{json.dumps(HI)},{field}}}'.encode()
                reply = await s.post(PATH, body)
                assert reply.status in (200, 400), (field[:40], reply.status, reply.body[:300])

    play(scene())


def test_over_length_says_the_words_that_clients_look_for() -> None:
    async def scene() -> None:
        async with served(writer()) as s:
            long = [{"role": "user", "content": "word " * CONTEXT}]
            for fields in ({"messages": long}, {"max_tokens": CONTEXT}):
                reply = await s.post(PATH, {"messages": HI, **fields})
                assert reply.status == 400
                assert reply.json["error"]["code"] == "context_length_exceeded"
                assert f"maximum context length is {CONTEXT} tokens" in reply.json["error"]["message"]
                assert reply.json["error"]["limit"] == CONTEXT

    play(scene())


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_node_says_of_a_schema_comes_under_the_callers_field(*, stream: bool) -> None:
    schema = {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}

    async def scene() -> None:
        async with served(writer()) as s:
            for told, shown in (("grammar", "response_format.json_schema.schema"), ("sampling.top_k", "top_k"),
                                ("stop_ids", "stop_token_ids")):  # fmt: skip
                s.fleet.error = RequestRefusedError("bad_grammar", "unknown type", status=400, param=told)
                reply = await s.post(PATH, {"messages": HI, "stream": stream, **schema})
                error = reply.json["error"]
                assert (reply.status, error["code"], error["param"]) == (400, "bad_grammar", shown)
                assert error["message"] == f"{shown}: unknown type"

    play(scene())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tools": [WEATHER]}, "tools"), ({"chat_template_kwargs": {"enable_thinking": True}}, "thinking"),
        ({"reasoning_effort": "high"}, "thinking"),
    ],
)  # fmt: skip
def test_a_schema_beside_tools_or_reasoning_is_refused_with_the_reason(fields: dict[str, Any], why: str) -> None:
    async def scene() -> None:
        async with served(writer()) as s:
            reply = await s.post(PATH, {"messages": HI, "response_format": {"type": "json_object"}, **fields})
            error = reply.json["error"]
            assert (reply.status, error["param"]) == (400, "response_format")
            assert f"not together with {why}" in error["message"]
            assert not s.fleet.submits

    play(scene())


def test_a_template_without_a_place_for_tools_refuses_them() -> None:
    from support.tiny_tokenizer import CHATML

    async def scene() -> None:
        async with served(writer(template=CHATML)) as s:
            reply = await s.post(PATH, {"messages": HI, "tools": [WEATHER]})
            assert (reply.status, reply.json["error"]["param"]) == (400, "tools")

    play(scene())


def test_a_stream_whose_drain_is_over_says_so() -> None:
    async def scene() -> None:
        fleet = writer("</think>" + "word " * 50, gate=asyncio.Event())
        async with served(fleet) as s:
            task = asyncio.create_task(s.post(PATH, {"messages": HI, "stream": True}))
            await until(lambda: s.gateway.counts.streams == 1)
            s.server.stop()
            s.server.stop()
            reply = await task
            (event,) = events_of(unchunked(reply.body))
            assert event[1]["error"]["code"] == "draining"
            assert fleet.taken_back == 1

    play(scene())


def test_a_quiet_stream_is_kept_alive_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    from mainspring.gateway.generation import events

    monkeypatch.setattr(events.EventStream.__init__, "__kwdefaults__", {"keep_alive_s": 0.02})

    async def scene() -> None:
        fleet = writer("</think>Yes<|im_end|>", gate=asyncio.Event())
        async with served(fleet) as s:
            reader, pen = await asyncio.open_connection("127.0.0.1", s.port)
            body = json.dumps({"messages": HI, "stream": True}).encode()
            head = (
                f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            pen.write(head.encode() + body)
            await reader.readuntil(b": keepalive\n\n")
            await reader.readuntil(b": keepalive\n\n")
            assert fleet.gate is not None
            fleet.gate.set()
            rest = await reader.read()
            assert b"[DONE]" in rest
            assert b'"content":"Yes"' in rest
            pen.close()

    play(scene())


@pytest.mark.parametrize("stream", [False, True])
def test_who_is_being_written_for_does_not_stand_in_line(stream: bool) -> None:
    """Else a few dozen open replies would count as texts that wait, and everybody else be refused for minutes."""

    async def scene() -> None:
        fleet = writer(gate=asyncio.Event())
        assert fleet.gate is not None
        async with served(fleet) as s:
            tasks = []
            for number in range(5):
                s.gateway.pressure.each_s = 0.1  # three in line are more than `line_s`
                tasks.append(asyncio.create_task(s.post(PATH, {"messages": HI, "stream": stream})))
                await until(lambda wanted=number + 1: s.gateway.counts.streams == wanted or tasks[-1].done())
            assert s.gateway.counts.streams == 5
            assert s.gateway.pressure.line == 0
            fleet.gate.set()
            assert [reply.status for reply in await asyncio.gather(*tasks)] == [200] * 5

    play(scene())
