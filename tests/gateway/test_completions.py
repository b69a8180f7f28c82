"""`/v1/completions`, `/tokenize`, `/detokenize`: texts and ids as they are, no template, no reading of tags."""

from typing import Any

import pytest

from mainspring.text.tokenizer import Tokenizer
from mainspring.wire import messages as m
from support.gateway import Served, play, served
from support.writing import CONTEXT, bundle, events_of, ids_of, prompt_of, unchunked, writer

PATH = "/v1/completions"


async def asked(s: Served, **fields: Any) -> Any:
    reply = await s.post(PATH, {"prompt": "Once", **fields})
    assert reply.status == 200, reply.body
    return reply.json


def test_text_is_gone_on_with_as_it_is() -> None:
    async def scene() -> None:
        text = " <think>no\n</think>\n <tool_call>tag \n"
        async with served(writer(text + "<|im_end|>")) as s:
            found = await asked(s, max_tokens=1000, prompt="Once<|im_end|>")
            assert (found["choices"][0]["text"], found["choices"][0]["finish_reason"]) == (text, "stop")
            assert found["object"] == "text_completion"
            assert bundle().tokenizer.control["<|im_end|>"] not in m.u32(s.fleet.submits[0].view_tokens)
            assert prompt_of(s.fleet.submits[0]) == "Once<|im_end|>"

    play(scene())


def test_sixteen_tokens_where_nothing_is_said() -> None:
    async def scene() -> None:
        async with served(writer("word " * 40)) as s:
            found = await asked(s)
            assert (found["usage"]["completion_tokens"], found["choices"][0]["finish_reason"]) == (16, "length")
            await asked(s, min_tokens=20)
            assert s.fleet.submits[-1].max_tokens == 20

    play(scene())


def test_a_list_of_prompts_each_with_its_choices() -> None:
    async def scene() -> None:
        async with served(writer(lambda submit: [*m.u32(submit.view_tokens).tolist(), *ids_of("<|im_end|>")])) as s:
            found = await asked(s, prompt=["Yes", "No", ids_of("AA")], n=2, echo=True)
            texts = [choice["text"] for choice in found["choices"]]
            assert texts == ["YesYes", "YesYes", "NoNo", "NoNo", "AAAA", "AAAA"]
            assert [choice["index"] for choice in found["choices"]] == list(range(6))
            prompts = sum(len(ids_of(text)) for text in ("Yes", "No", "AA"))
            assert found["usage"]["prompt_tokens"] == prompts
            reply = await s.post(PATH, {"prompt": ["Yes", "No"], "stream": True, "echo": True,
                                        "stream_options": {"include_usage": True}})  # fmt: skip
            events = [data for _, data in events_of(unchunked(reply.body))]
            assert events[-1] == "[DONE]"
            assert events[-2]["usage"]["prompt_tokens"] == len(ids_of("Yes")) + len(ids_of("No"))
            for index, text in enumerate(("YesYes", "NoNo")):
                own = [event["choices"][0] for event in events[:-2] if event["choices"][0]["index"] == index]
                assert "".join(choice["text"] for choice in own) == text
                assert [choice["finish_reason"] for choice in own][-1] == "stop"

    play(scene())


def test_ids_are_made_text_for_an_echo_alone_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_ids, decoded, decode = ids_of("Once"), [], Tokenizer.decode

    def counted(self: Tokenizer, ids: Any) -> str:
        decoded.append(tuple(ids))
        return decode(self, ids)

    async def scene() -> None:
        async with served(writer("word<|im_end|>")) as s:
            monkeypatch.setattr(Tokenizer, "decode", counted)
            await asked(s, prompt=asked_ids)
            assert tuple(asked_ids) not in decoded
            found = await asked(s, prompt=asked_ids, echo=True, n=3)
            assert [choice["text"] for choice in found["choices"]] == ["Onceword"] * 3
            assert decoded.count(tuple(asked_ids)) == 1

    play(scene())


@pytest.mark.parametrize(
    ("prompt", "param"),
    [([], "prompt"), ([True], "prompt[0]"), ([1.0], "prompt[0]"), ([1, -1], "prompt[1]"), ([2**64], "prompt[0]"),
     ([1, 2**32], "prompt[1]"), ([[]], "prompt[0]"), ([[1], [2.5]], "prompt[1]"), ([[1], [2, 2**200]], "prompt[1][1]")],
)  # fmt: skip
def test_ids_that_are_none_are_named(prompt: list[Any], param: str) -> None:
    async def scene() -> None:
        async with served(writer("word<|im_end|>")) as s:
            reply = await s.post(PATH, {"prompt": prompt, "echo": True})
            assert (reply.status, reply.json["error"]["param"]) == (400, param)
            assert not s.fleet.submits

    play(scene())


def test_logprobs_with_offsets_of_characters() -> None:
    async def scene() -> None:
        async with served(writer("The quick fox<|im_end|>", block=2)) as s:
            logprobs = (await asked(s, logprobs=1))["choices"][0]["logprobs"]
            tokens = ids_of("The quick fox<|im_end|>")
            assert "".join(logprobs["tokens"]) == "The quick fox<|im_end|>"
            assert logprobs["token_logprobs"] == pytest.approx([-token / 1000 for token in tokens])
            assert [len(each) for each in logprobs["top_logprobs"]] == [1] * len(tokens)
            starts = [sum(len(text) for text in logprobs["tokens"][:n]) for n in range(len(tokens))]
            assert logprobs["text_offset"] == starts

    play(scene())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": ["a", 3]}, "prompt[1]"),
        ({"prompt": [99999]}, "prompt[0]"), ({"prompt": ["a", [1, 99999]]}, "prompt[1][1]"),
        ({"prompt": [True]}, "prompt"),
        ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"prompt": ["a"] * 17}, "n"), ({"logprobs": 21}, "logprobs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_400_by_name(fields: dict[str, Any], param: str) -> None:
    async def scene() -> None:
        async with served(writer()) as s:
            reply = await s.post(PATH, {"prompt": "Once", **fields})
            assert reply.status == 400, reply.body
            assert reply.json["error"]["param"].startswith(param), reply.body
            assert not s.fleet.submits

    play(scene())


def test_tokens_there_and_back() -> None:
    async def scene() -> None:
        async with served(writer()) as s:
            text = "The quick \U0001f642 <|im_end|>"
            found = (await s.post("/tokenize", {"prompt": text, "return_token_strs": True})).json
            assert found["tokens"] == bundle().tokenizer.encode_text(text).tolist()
            assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), CONTEXT)
            assert len(found["token_strs"]) == found["count"]
            back = (await s.post("/detokenize", {"tokens": found["tokens"]})).json
            assert back == {"prompt": text}
            chat = (await s.post("/v1/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})).json
            await s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
            assert chat["tokens"] == m.u32(s.fleet.submits[-1].view_tokens).tolist()
            for path, body, param in (
                ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": "a", "messages": []}, "messages"),
                ("/detokenize", {"tokens": [99999]}, "tokens[0]"), ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
            ):  # fmt: skip
                reply = await s.post(path, body)
                assert (reply.status, reply.json["error"]["param"]) == (400, param), reply.body

    play(scene())
