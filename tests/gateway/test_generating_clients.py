"""The `openai` and `anthropic` clients as people use them, with a loop of tool calls, against a scripted fleet."""

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest

from mainspring.fleet.errors import RequestRefusedError
from mainspring.wire import messages as m
from support.gateway import Served, play, served, until
from support.writing import ids_of, prompt_of, writer

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ANTHROPIC_TOOL = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": TOOL["function"]["parameters"],
}  # type: ignore[index]
CALL = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"


def tool_user(submit: m.Submit) -> list[int]:
    """A model that asks for the weather until it is told."""
    if "21 degrees" in prompt_of(submit):
        return ids_of("</think>\n\nIt is 21 degrees in Paris.<|im_end|>")
    return ids_of(f"I need the weather.\n</think>\n\nLet me look.\n\n{CALL}<|im_end|>")


def openai_of(s: Served, **fields: Any) -> openai.AsyncOpenAI:
    given: dict[str, Any] = {"max_retries": 0, "api_key": "sk-x", **fields}
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", **given)


def anthropic_of(s: Served, **fields: Any) -> anthropic.AsyncAnthropic:
    given: dict[str, Any] = {"max_retries": 0, "api_key": "sk-x", **fields}
    return anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{s.port}", **given)


@pytest.mark.parametrize("stream", [False, True])
def test_openai_goes_round_with_tools(stream: bool) -> None:
    async def turn(client: openai.AsyncOpenAI, messages: list[Any]) -> Any:
        if not stream:
            return (await client.chat.completions.create(model="writer", messages=messages, tools=[TOOL])).choices[0]  # type: ignore[list-item]
        async with client.chat.completions.stream(model="writer", messages=messages, tools=[TOOL]) as events:  # type: ignore[list-item]
            async for _ in events:
                pass
            return (await events.get_final_completion()).choices[0]

    async def scene() -> None:
        async with served(writer(tool_user)) as s, openai_of(s) as client:
            messages: list[Any] = [{"role": "user", "content": "How warm is it in Paris?"}]
            turns = 0
            while True:
                choice = await turn(client, messages)
                turns += 1
                if choice.finish_reason != "tool_calls":
                    break
                messages.append(choice.message.model_dump(exclude_none=True))
                for call in choice.message.tool_calls:
                    assert call.function.name == "weather"
                    city = json.loads(call.function.arguments)["city"]
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{city}: 21 degrees"})
            assert turns == 2
            assert choice.message.content == "It is 21 degrees in Paris."
            assert messages[1]["content"] == "Let me look."
            assert messages[1]["reasoning_content"] == "I need the weather."

    play(scene())


def test_openai_streams_with_usage_logprobs_and_several_choices() -> None:
    async def scene() -> None:
        async with served(writer("</think>One two.<|im_end|>", cached=4)) as s, openai_of(s) as client:
            texts, usage, entries = ["", ""], None, 0
            stream = await client.chat.completions.create(
                model="writer", messages=[{"role": "user", "content": "Count."}], stream=True, n=2, logprobs=True,
                stream_options={"include_usage": True}, extra_body={"top_k": 5, "ignore_eos": False},
            )  # fmt: skip
            async for chunk in stream:
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
                    if choice.logprobs and choice.logprobs.content:
                        entries += len(choice.logprobs.content)
                usage = chunk.usage or usage
            assert texts == ["One two."] * 2
            assert usage is not None
            assert usage.completion_tokens == entries == 2 * len(ids_of("</think>One two.<|im_end|>"))
            assert usage.prompt_tokens_details is not None
            assert usage.prompt_tokens_details.cached_tokens == 4
            assert usage.completion_tokens_details is not None
            assert usage.completion_tokens_details.accepted_prediction_tokens

    play(scene())


def test_openai_completions_and_models() -> None:
    async def scene() -> None:
        async with served(writer("and so on<|im_end|>")) as s, openai_of(s) as client:
            done = await client.completions.create(model="writer", prompt="Once", max_tokens=50, echo=True)
            assert (done.choices[0].text, done.choices[0].finish_reason) == ("Onceand so on", "stop")
            text = ""
            async for chunk in await client.completions.create(
                model="writer", prompt=[[39, 72], [40]], stream=True, n=2
            ):
                text += chunk.choices[0].text
            assert text.replace(" ", "") == "andsoon" * 4 or len(text) == 4 * len("and so on")
            assert [each.id async for each in client.models.list()] == ["writer"]

    play(scene())


def test_openai_leaving_a_stream_takes_it_back() -> None:
    async def scene() -> None:
        fleet = writer("</think>" + "word " * 200, gate=asyncio.Event(), gate_after=2, block=1)
        async with served(fleet) as s, openai_of(s) as client:
            stream = await client.chat.completions.create(
                model="writer", messages=[{"role": "user", "content": "Go on."}], stream=True
            )
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()
            await until(lambda: fleet.taken_back == 1)
            assert fleet.sent <= 3

    play(scene())


def test_openai_knows_our_refusals_and_faults() -> None:
    async def scene() -> None:
        fleet = writer("</think>" + "word " * 30, breaks_after=2)
        async with served(fleet) as s, openai_of(s) as client:
            ask: dict[str, Any] = {"model": "writer", "messages": [{"role": "user", "content": "Hi"}]}
            with pytest.raises(openai.APIError, match="broke off"):
                async for _ in await client.chat.completions.create(**ask, stream=True):
                    pass
            with pytest.raises(openai.BadRequestError, match="maximum context length is 4096 tokens"):
                await client.chat.completions.create(**ask, max_tokens=5000)
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(**ask | {"model": "nobody"})
            fleet.error = RequestRefusedError("contention", "later", status=429, retry_after_s=0.05)
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(**ask, stream=True)
            before = len(fleet.submits)
            with pytest.raises(openai.RateLimitError):
                await client.with_options(max_retries=2).chat.completions.create(**ask)
            assert len(fleet.submits) == before + 3

    play(scene())


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_goes_round_with_tools(stream: bool) -> None:
    async def turn(client: anthropic.AsyncAnthropic, messages: list[Any]) -> Any:
        asked: dict[str, Any] = {
            "model": "writer", "max_tokens": 200, "messages": messages, "tools": [ANTHROPIC_TOOL],
            "system": "You tell the weather.", "thinking": {"type": "enabled", "budget_tokens": 1024},
        }  # fmt: skip
        if not stream:
            return await client.messages.create(**asked)
        async with client.messages.stream(**asked) as events:
            async for _ in events:
                pass
            return await events.get_final_message()

    async def scene() -> None:
        async with served(writer(tool_user, cached=5)) as s, anthropic_of(s) as client:
            messages: list[Any] = [{"role": "user", "content": "How warm is it in Paris?"}]
            first = await turn(client, messages)
            assert first.stop_reason == "tool_use"
            assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
            assert first.content[0].thinking == "I need the weather."
            assert first.content[1].text == "Let me look."
            call = first.content[2]
            assert (call.name, call.input) == ("weather", {"city": "Paris"})
            usage = first.usage
            prompt = len(m.u32(s.fleet.submits[0].view_tokens))
            assert (usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens) == (prompt, 5)
            assert usage.output_tokens == len(tool_user(s.fleet.submits[0]))
            messages += [
                {"role": "assistant", "content": [block.model_dump() for block in first.content]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": call.id,
                     "content": [{"type": "text", "text": "21 degrees"}]},
                    {"type": "text", "text": "Well?"}]},
            ]  # fmt: skip
            second = await turn(client, messages)
            assert second.stop_reason == "end_turn"
            assert second.content[-1].text == "It is 21 degrees in Paris."
            shown = prompt_of(s.fleet.submits[1])
            assert shown.startswith("<|im_start|>system\n")
            assert "You tell the weather." in shown
            assert "<tool_response>\n21 degrees\n</tool_response>" in shown
            assert shown.index("21 degrees") < shown.index("Well?")

    play(scene())


def test_anthropic_stops_counts_begins_and_forces() -> None:
    async def scene() -> None:
        async with served(writer("one, two, three<|im_end|>", block=50)) as s, anthropic_of(s) as client:
            hi: Any = [{"role": "user", "content": "Count."}]
            found = await client.messages.create(
                model="writer", max_tokens=50, messages=hi, stop_sequences=["two"], extra_body={"temperature": 0.0}
            )
            assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", "two")
            assert found.content[0].text == "one, "  # type: ignore[union-attr]
            found = await client.messages.create(model="writer", max_tokens=2, messages=hi)
            assert found.stop_reason == "max_tokens"
            counted = await client.messages.count_tokens(model="writer", messages=hi)
            assert counted.input_tokens == len(m.u32(s.fleet.submits[0].view_tokens))
            await client.messages.create(
                model="writer", max_tokens=9, messages=[*hi, {"role": "assistant", "content": "zero, "}]
            )
            assert prompt_of(s.fleet.submits[-1]).endswith("</think>\n\nzero,")
            s.fleet.reply = "<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call><|im_end|>"
            forced = await client.messages.create(
                model="writer", max_tokens=90, messages=hi, tools=[ANTHROPIC_TOOL],  # type: ignore[list-item]
                tool_choice={"type": "tool", "name": "weather"},
            )  # fmt: skip
            assert forced.stop_reason == "tool_use"
            assert forced.content[0].input == {"city": "Rome"}  # type: ignore[union-attr]

    play(scene())


def test_anthropic_knows_our_errors() -> None:
    async def read(client: anthropic.AsyncAnthropic, messages: Any) -> None:
        async with client.messages.stream(model="writer", max_tokens=90, messages=messages) as events:
            async for _ in events:
                pass

    async def scene() -> None:
        fleet = writer("</think>" + "word " * 30, breaks_after=2)
        async with served(fleet) as s, anthropic_of(s) as client:
            hi: Any = [{"role": "user", "content": "Hi"}]
            with pytest.raises(anthropic.APIStatusError, match="broke off"):
                await read(client, hi)
            with pytest.raises(anthropic.NotFoundError):
                await client.messages.create(model="nobody", max_tokens=9, messages=hi)
            image = {"type": "image", "source": {"type": "url", "url": "http://example.com"}}
            with pytest.raises(anthropic.BadRequestError, match="text blocks"):
                await client.messages.create(
                    model="writer",
                    max_tokens=9,
                    messages=[{"role": "user", "content": [image]}],  # type: ignore[typeddict-item, list-item]
                )
            fleet.error = RequestRefusedError("contention", "later", status=429, retry_after_s=0.05)
            with pytest.raises(anthropic.RateLimitError) as error:
                await client.messages.create(model="writer", max_tokens=9, messages=hi)
            assert error.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]

    play(scene())


def test_both_clients_bring_their_keys() -> None:
    import hashlib
    from pathlib import Path

    from mainspring.gateway.keys import Key, KeyFile, Keys

    async def scene() -> None:
        digest = hashlib.sha256(b"ms-secret").hexdigest()
        keys = Keys(Path("keys.toml"), KeyFile("0" * 64, (Key("alice", digest),)))
        keys.refresh = lambda _now: False  # type: ignore[method-assign]
        async with served(writer("</think>Yes<|im_end|>"), keys=keys) as s:
            hi: Any = [{"role": "user", "content": "Hi"}]
            async with anthropic_of(s, api_key="ms-secret") as client:
                await client.messages.create(model="writer", max_tokens=9, messages=hi)
            async with anthropic_of(s) as client:
                with pytest.raises(anthropic.AuthenticationError):
                    await client.messages.create(model="writer", max_tokens=9, messages=hi)
            async with openai_of(s, api_key="ms-secret") as other:
                await other.chat.completions.create(model="writer", messages=hi)

    play(scene())
