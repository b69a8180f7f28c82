"""Generation as people run it: `mainspring serve FOLDER`, real processes, clients' own libraries, random weights."""

import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from mainspring.generator import Generator
from support.chat_templates import QWEN_STYLE
from support.folders import write_tiny_model
from support.machines import WAIT_S
from support.processes import Process

URL = re.compile(r"serves at http://([\d.]+):(\d+)")
CONTEXT = 8192


class Serving:
    def __init__(self, process: Process, port: int, folder: Path) -> None:
        self.process, self.port, self.folder = process, port, folder
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=5, timeout=WAIT_S)

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        return self.process.ask(self.port, "POST", path, value)

    def node(self) -> Any:
        return self.process.ask(self.port, "GET", "/status")[1]["nodes"][0]  # type: ignore[index]

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=WAIT_S) as reply:
            return str(reply.read().decode())

    def until(self, wanted: Any) -> None:
        until = time.monotonic() + WAIT_S
        while not wanted():
            assert time.monotonic() < until, self.process.out.read_text()[-3000:]
            time.sleep(0.05)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("serve")
    model = write_tiny_model(folder / "writer", chat_template=QWEN_STYLE, max_position_embeddings=CONTEXT)
    process = Process(folder, "serve", "serve", str(model), "--port", "0", "--threads", "1")
    try:
        yield Serving(process, int(process.wait_for(URL)[2]), model)
    finally:
        process.end()


@pytest.fixture(scope="module")
def generator(serving: Serving) -> Generator:
    return Generator.from_pretrained(serving.folder, threads=1)


def test_greedy_text_is_that_of_the_process_alone_and_a_repeat_reads_nothing(
    serving: Serving, generator: Generator
) -> None:
    expected = generator.generate("What do bees do in winter?", max_tokens=40)
    asked = {
        "prompt": generator.prompt("What do bees do in winter?").tolist(), "max_tokens": 40, "temperature": 0,
        "skip_special_tokens": False, "logprobs": 0,
    }  # fmt: skip
    for cached in (False, True):
        status, found = serving.post("/v1/completions", asked)
        assert status == 200, found
        assert found["choices"][0]["text"].startswith(expected.text)
        assert len(found["choices"][0]["logprobs"]["tokens"]) == found["usage"]["completion_tokens"]
        assert len(expected.tokens) == found["usage"]["completion_tokens"]
        details = found["usage"]["prompt_tokens_details"]
        if cached:
            assert details["cached_tokens"] == found["usage"]["prompt_tokens"] == expected.prompt_tokens
    assert found["usage"]["rounds"] <= found["usage"]["completion_tokens"]


def test_a_second_turn_reads_what_is_new(serving: Serving) -> None:
    turns: list[Any] = [{"role": "user", "content": "word " * 300}]
    first = serving.client.chat.completions.create(model="writer", messages=turns, max_tokens=8, temperature=0)
    turns += [{"role": "assistant", "content": "So."}, {"role": "user", "content": "And now?"}]
    second = serving.client.chat.completions.create(model="writer", messages=turns, max_tokens=8, temperature=0)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached > first.usage.prompt_tokens - 128  # on the grid, before the first turn's end
    assert cached < second.usage.prompt_tokens


def test_a_burst_of_greedy_and_sampled_replies_each_as_it_is_alone(serving: Serving) -> None:
    """More than there are slots; what does not get one at once is told when to come back and does."""

    def one(number: int) -> str:
        found = serving.client.completions.create(
            model="writer", prompt=f"Story {number}.", max_tokens=24, seed=number,
            temperature=0.0 if number % 2 else 1.0, extra_body={"ignore_eos": True},
        )  # fmt: skip
        assert found.usage is not None
        assert found.usage.completion_tokens == 24
        return found.choices[0].text

    alone = [one(number) for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        together = list(pool.map(one, range(10)))
    assert together == alone
    assert len(set(alone[::2])) == 5


def test_streams_end_at_a_stop_string_and_their_slots_are_free(serving: Serving) -> None:
    whole = serving.post("/v1/completions", {"prompt": "Go", "max_tokens": 60, "seed": 3, "ignore_eos": True})[1]
    text = whole["choices"][0]["text"]
    stop = text[len(text) // 2 :][:3]
    found, chunks = "", 0
    for chunk in serving.client.completions.create(
        model="writer", prompt="Go", max_tokens=60, seed=3, stop=[stop], stream=True, extra_body={"ignore_eos": True}
    ):
        found += chunk.choices[0].text
        chunks += 1
    assert found == text[: text.index(stop)]
    assert chunks > 1
    serving.until(lambda: serving.node()["slots_used"] == 0)


@pytest.mark.parametrize("prompt", [[39], [*range(40, 240)] * 25], ids=["in rounds", "early"])
def test_who_hangs_up_frees_the_slot(serving: Serving, prompt: list[int]) -> None:
    """Early: with thousands of tokens to read first."""
    serving.until(lambda: serving.node()["slots_used"] == 0)
    body = json.dumps({"prompt": prompt, "max_tokens": 3000, "ignore_eos": True, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", serving.port), timeout=WAIT_S) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-slo-class: batch\r\n"  # no rate is promised
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        if len(prompt) == 1:
            data = b""
            while data.count(b"data: ") < 3:
                data += connection.recv(65536)
        else:
            serving.until(lambda: "mainspring_streams 1.0" in serving.metrics())
    serving.until(lambda: "mainspring_streams 0.0" in serving.metrics())
    serving.until(lambda: serving.node()["slots_used"] == 0)
    assert serving.post("/v1/completions", {"prompt": "Go", "max_tokens": 3})[0] == 200


def test_a_reply_follows_its_schema(serving: Serving) -> None:
    pytest.importorskip("llguidance")
    schema = {
        "type": "object", "additionalProperties": False, "required": ["mood", "count"],
        "properties": {"mood": {"enum": ["good", "bad"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    }  # fmt: skip
    for seed in range(3):
        reply = serving.client.chat.completions.create(
            model="writer", messages=[{"role": "user", "content": "How is it?"}], max_tokens=200, seed=seed,
            response_format={"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}},
        )  # fmt: skip
        value = json.loads(reply.choices[0].message.content or "")
        assert value["mood"] in ("good", "bad")
        assert 0 <= value["count"] <= 99
        assert reply.choices[0].finish_reason == "stop"


def test_anthropic_streams(serving: Serving) -> None:
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{serving.port}", api_key="x", timeout=WAIT_S)
    with client.messages.stream(
        model="writer", max_tokens=24, messages=[{"role": "user", "content": "Tell me."}]
    ) as events:
        kinds = [event.type for event in events]
        message = events.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert message.usage.output_tokens <= 24
    assert message.stop_reason in ("end_turn", "max_tokens")


def test_what_does_not_fit_is_refused_before_it_starts(serving: Serving) -> None:
    with pytest.raises(openai.BadRequestError, match=f"maximum context length is {CONTEXT} tokens"):
        serving.client.completions.create(model="writer", prompt="word " * CONTEXT, max_tokens=5)


def test_metrics_and_status_tell_of_it(serving: Serving) -> None:
    status = serving.process.ask(serving.port, "GET", "/status")[1]
    assert status["nodes"][0]["slots"] >= 1  # type: ignore[index]
    import urllib.request

    page = urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/metrics").read().decode()
    assert re.search(r"mainspring_output_tokens_total [1-9]", page)
    assert re.search(r"mainspring_rounds_total [1-9]", page)
