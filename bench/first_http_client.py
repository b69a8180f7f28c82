"""What `bench/first_http.py` talks to: a child of its own, over a loopback connection a request, all of it in time."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

REPLY_TOKENS = 4
REQUEST_S = 120.0
STOP_S = 20.0
LOG_CHARS = 3000
TIMING = re.compile(r"(\w+);dur=([0-9.]+)")
FIRST_SUM = re.compile(r"^gen_ai_server_time_to_first_token_seconds_sum(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Deadline:
    """For everything together; SystemExit where it is over."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s, self._clock = limit_s, clock
        self._until_s = clock() + limit_s

    def left_s(self, most_s: float) -> float:
        """`most_s` or what is left, if that is less."""
        left_s = self._until_s - self._clock()
        if left_s <= 0.0:
            raise SystemExit(f"not done within --limit-s {self._limit_s:g}")
        return min(most_s, left_s)


@dataclass(frozen=True)
class Asked:
    """One request. `fleet_ms`: the gateway's time from submission to the first token."""

    first_ms: float
    headers_ms: float
    wait_ms: float
    text_ms: float
    fleet_ms: float
    prompt_tokens: int
    cached_tokens: int
    text: str


def command(folder: Path, device: str, slots: int, prefix_mib: int | None, config: Path) -> list[str]:
    """Of `mainspring`. Memory for prompts is no option of `serve`: with it the node stands in a file, written here."""
    arguments = ["--device", device, "--slots", str(slots)]
    service = ["--port", "0", "--drain-timeout", "5"]
    if prefix_mib is None:
        return ["serve", str(folder), *arguments, *service]
    node = [*arguments, "--prefix-mib", str(prefix_mib), "--alias", "random", "--probe", "1"]
    config.write_text(f'[[node]]\nname = "local"\nmodel = {json.dumps(str(folder))}\nargs = {json.dumps(node)}\n')
    return ["serve", "--config", str(config), *service]


class Server:
    """`mainspring` with `arguments` while this is entered: stopped whatever happens, its log shown where it fails."""

    def __init__(self, arguments: list[str], log: Path, deadline: Deadline) -> None:
        self._arguments, self._log, self._deadline = arguments, log, deadline
        self.port, self.ready_s = 0, 0.0

    def __enter__(self) -> "Server":
        began_s = time.monotonic()
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - ours
                [sys.executable, "-m", "mainspring", *self._arguments], stdout=out, stderr=out, cwd=self._log.parent
            )
        try:
            self.port = self._until(self._listens)
            self._until(self._ready)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self.ready_s = time.monotonic() - began_s
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its node dies with it
            self._process.wait()
        if kind is not None:
            print(f"{error!r}; the server's log ends:\n{self._text()[-LOG_CHARS:]}", file=sys.stderr)

    def open(self, deadline: Deadline) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=deadline.left_s(REQUEST_S))
        connection.connect()
        return connection

    def get(self, path: str, deadline: Deadline) -> str:
        connection = self.open(deadline)
        try:
            connection.request("GET", path)
            return whole(connection.getresponse())
        finally:
            connection.close()

    def _text(self) -> str:
        return self._log.read_text(errors="replace")

    def _until(self, look: Callable[[], int]) -> int:
        while not (found := look()):
            if self._process.poll() is not None:
                raise SystemExit(f"the server ended with status {self._process.returncode}")
            time.sleep(self._deadline.left_s(0.1))
        return found

    def _listens(self) -> int:
        found = re.search(r"^listening on http://127\.0\.0\.1:(\d+)", self._text(), re.MULTILINE)
        return int(found[1]) if found else 0

    def _ready(self) -> int:
        try:
            self.get("/health/ready", self._deadline)
        except (OSError, HTTPException, Refused):
            return 0
        return 1


class Refused(Exception):  # noqa: N818 - an answer of the server's, as it is
    """Not status 200; the body says why."""


def whole(response: HTTPResponse) -> str:
    """Refused."""
    body = response.read().decode(errors="replace")
    if response.status != 200:
        raise Refused(f"status {response.status}: {body[:500]}")
    return body


def tokens_of_text(server: Server, text: str, deadline: Deadline) -> list[int]:
    """The ids a client would send a reply's text back as."""
    connection = server.open(deadline)
    try:
        connection.request("POST", "/tokenize", json.dumps({"prompt": text}), {"content-type": "application/json"})
        ids: list[int] = json.loads(whole(connection.getresponse()))["tokens"]
        return ids
    finally:
        connection.close()


def ask(server: Server, prompt: list[int], deadline: Deadline) -> Asked:
    """One streamed completion of a prompt of ids, likeliest tokens. SystemExit where it is refused or breaks."""
    body = json.dumps({
        "prompt": prompt, "max_tokens": REPLY_TOKENS, "temperature": 0, "frequency_penalty": 0, "ignore_eos": True,
        "drafter": "none", "stream": True, "stream_options": {"include_usage": True},
    }).encode()  # fmt: skip
    before_s = first_sum_s(server.get("/metrics", deadline))
    connection = server.open(deadline)
    try:
        began_s = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        response = connection.getresponse()
        headers_s = time.perf_counter()
        if response.status != 200:
            whole(response)
        reply = read_events(iter(response.readline, b""), time.perf_counter)
    except (OSError, HTTPException, Refused) as error:
        raise SystemExit(f"a prompt of {len(prompt):,} tokens: {error}") from None
    finally:
        connection.close()
    stages = dict(TIMING.findall(response.headers.get("server-timing", "")))
    return Asked(
        first_ms=(reply.first_s - began_s) * 1e3, headers_ms=(headers_s - began_s) * 1e3,
        wait_ms=float(stages["wait"]), text_ms=float(stages["text"]),
        fleet_ms=(first_sum_s(server.get("/metrics", deadline)) - before_s) * 1e3, text=reply.text,
        prompt_tokens=reply.usage["prompt_tokens"],
        cached_tokens=reply.usage["prompt_tokens_details"]["cached_tokens"],
    )  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """`first_s` on the clock it was read by."""

    first_s: float
    text: str
    usage: dict[str, Any]


def read_events(lines: Iterable[bytes], clock: Callable[[], float]) -> Reply:
    """Events of a completion as they come. SystemExit where one is a fault, or the stream ends early."""
    first_s, text, usage = None, "", None
    for line in lines:
        now_s = clock()
        if not line.startswith(b"data: "):  # a comment or an empty line
            continue
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            if first_s is None or usage is None:
                raise SystemExit("the reply ended without a token or without its usage")
            return Reply(first_s, text, usage)
        event = json.loads(data)
        if "error" in event:
            raise SystemExit(f"the reply broke off: {event['error']}")
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            first_s = now_s if first_s is None else first_s
            text += choice["text"]
    raise SystemExit("the stream ended before the reply did")


def first_sum_s(metrics: str) -> float:
    """Of all classes; nothing is there before the first reply."""
    return sum(float(value) for value in FIRST_SUM.findall(metrics))
