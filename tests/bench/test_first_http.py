"""Time to the first token through HTTP: what is sent, when the clock stops, what is read from the server's answers."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mainspring.hub import WRITER, model_folder
from mainspring.text.tokenizer import Tokenizer
from support.http_service import Heard, Told, service

BENCH = str(Path(__file__).parents[2] / "bench")
MODULES = ("first_http", "first_http_client", "random_model", "shapes")
USAGE = {"prompt_tokens": 8, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
EVENTS = (
    b": keepalive\n",
    b"\n",
    b'data: {"choices": [{"index": 0, "text": "a"}]}\n',
    b"\n",
    b'data: {"choices": [{"index": 0, "text": "b"}]}\n',
    b"\n",
    b'data: {"choices": [], "usage": ' + json.dumps(USAGE).encode() + b"}\n",
    b"\n",
    b"data: [DONE]\n",
)
METRICS = """\
gen_ai_server_time_to_first_token_seconds_count{slo_class="standard"} 2.0
gen_ai_server_time_to_first_token_seconds_sum{slo_class="batch"} 1.0
gen_ai_server_time_to_first_token_seconds_sum{slo_class="standard"} %s
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script's modules, which import their neighbours by name."""
    monkeypatch.syspath_prepend(BENCH)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import first_http
    import first_http_client

    yield SimpleNamespace(script=first_http, client=first_http_client)
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_clock_stops_at_the_first_event_with_a_token(bench: Any) -> None:
    times = iter(range(100))
    reply = bench.client.read_events(EVENTS, lambda: float(next(times)))
    assert reply.first_s == 2.0  # the third line; a comment is no token, later ones don't move it
    assert (reply.text, reply.usage) == ("ab", USAGE)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (EVENTS[:5], "ended before the reply"),
        (EVENTS[6:], "without a token"),
        (EVENTS[:5] + EVENTS[8:], "without its usage"),
        ((*EVENTS[:3], b'data: {"error": {"message": "lost"}}\n'), "lost"),
    ],
)
def test_a_reply_that_is_not_whole_is_no_figure(bench: Any, lines: tuple[bytes, ...], why: str) -> None:
    with pytest.raises(SystemExit, match=why):
        bench.client.read_events(lines, lambda: 0.0)


def test_a_request_and_its_parts(bench: Any) -> None:
    """The gateway's own time is the growth of its sum, over all classes."""
    sums = iter(("4.0", "4.25"))

    def told(_number: int, heard: Heard) -> Told:
        if heard.path == "/metrics":
            return Told(body=(METRICS % next(sums)).encode())
        headers = {"server-timing": "wait;dur=0.50, text;dur=1.25, queue;dur=0.00, device;dur=0.00, fleet;dur=0.00"}
        return Told(body=b"".join(EVENTS), headers=headers, after_s=0.05)

    with service(told) as there:
        server = bench.client.Server([], Path("log"), bench.client.Deadline(30.0))
        server.port = there.port
        asked = bench.client.ask(server, [5, 6], bench.client.Deadline(30.0))
    sent = next(heard.json for heard in there.heard if heard.path == "/v1/completions")
    assert sent["prompt"] == [5, 6]
    assert (sent["max_tokens"], sent["temperature"], sent["stream"]) == (4, 0, True)
    assert 50.0 < asked.headers_ms <= asked.first_ms < 5000.0
    assert (asked.wait_ms, asked.text_ms, asked.fleet_ms) == (0.5, 1.25, 250.0)
    assert (asked.prompt_tokens, asked.cached_tokens, asked.text) == (8, 3, "ab")


def test_a_refusal_is_told(bench: Any) -> None:
    def told(_number: int, heard: Heard) -> Told:
        return Told(body=b"") if heard.path == "/metrics" else Told(429, {"error": {"code": "contention"}})

    with service(told) as there:
        server = bench.client.Server([], Path("log"), bench.client.Deadline(30.0))
        server.port = there.port
        with pytest.raises(SystemExit, match=r"2 tokens: status 429.*contention"):
            bench.client.ask(server, [5, 6], bench.client.Deadline(30.0))


def test_all_of_it_has_one_limit(bench: Any) -> None:
    now = [0.0]
    deadline = bench.client.Deadline(10.0, lambda: now[0])
    assert (deadline.left_s(3.0), deadline.left_s(30.0)) == (3.0, 10.0)
    now[0] = 10.0
    with pytest.raises(SystemExit, match="--limit-s 10"):
        deadline.left_s(3.0)


def test_a_server_that_ends_is_not_waited_for(bench: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = bench.client.Server(["serve", "--no-such-option"], tmp_path / "log", bench.client.Deadline(60.0))
    with pytest.raises(SystemExit, match="status 2"), server:
        pass
    assert "No such option" in capfd.readouterr().err


def test_memory_for_prompts_goes_through_a_file(bench: Any, tmp_path: Path) -> None:
    from mainspring.fleet.config import read_config

    path = tmp_path / "fleet.toml"
    plain = bench.client.command(tmp_path / "model", "cuda", 4, None, path)
    assert plain[:6] == ["serve", str(tmp_path / "model"), "--device", "cuda", "--slots", "4"]
    assert not path.exists()
    assert bench.client.command(tmp_path / "model", "cuda", 4, 2048, path)[:3] == ["serve", "--config", str(path)]
    (node,) = read_config(path, tls__authority=str(tmp_path)).nodes
    assert node.model == str(tmp_path / "model")
    assert node.args[:6] == ("--device", "cuda", "--slots", "4", "--prefix-mib", "2048")


def test_prompts_hold_no_control_token(bench: Any) -> None:
    tokenizer = Tokenizer.load(model_folder(WRITER))
    prompts = bench.script.Prompts(tokenizer, 30_000, 0)
    ids = prompts.new(300_000)
    assert max(ids) < tokenizer.vocab_size
    assert not set(ids) & set(tokenizer.control.values())
    assert prompts.new(9) != prompts.new(9)
    assert max(bench.script.Prompts(tokenizer, 100, 0).new(5000)) < 100


def asked(**changes: Any) -> Any:
    fields = {"first_ms": 1.0, "headers_ms": 0.5, "wait_ms": 0.0, "text_ms": 0.0, "fleet_ms": 0.5,
              "prompt_tokens": 8, "cached_tokens": 0}  # fmt: skip
    return SimpleNamespace(**(fields | changes))


def test_the_table_has_medians_and_what_was_kept(bench: Any) -> None:
    times = (5.0, 1.0, 3.0)
    rows = [[asked(first_ms=each), asked(cached_tokens=8), asked(cached_tokens=at)] for at, each in enumerate(times)]
    lines = bench.script.report(rows).splitlines()
    assert lines[2].startswith("| cold | 3.00 (1.00 to 5.00) |")
    assert lines[4].endswith("| 8 | 0/1/2 | 3 |")
    assert bench.script.unkept(rows) == ["follow-up"]
    assert bench.script.unkept(rows[1:]) == []


def test_a_folder_is_written_once_and_never_over_another(bench: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    bench.script.write_folder(folder, bench.script.TINY)
    assert cast(Any, json.loads((folder / "config.json").read_text()))["eos_token_id"]
    weights = folder / "model.safetensors"
    made = weights.stat().st_mtime_ns
    bench.script.write_folder(folder, bench.script.TINY)
    assert weights.stat().st_mtime_ns == made
    with pytest.raises(SystemExit, match="no folder of this shape"):
        bench.script.write_folder(folder, bench.script.SHAPES["0.8B"])
    (folder / bench.script.SHAPE_FILE).unlink()
    with pytest.raises(SystemExit, match="no folder of this shape"):
        bench.script.write_folder(folder, bench.script.TINY)
