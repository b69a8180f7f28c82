"""CPU a scoring request takes in a gateway, stage by stage: conversations of 8,000 tokens, half of each known.

Text stages are run one after the other, each over all requests of a round. `all, with HTTP` is the real server on a
loopback socket, asked over one connection, before a fleet that answers at once: what it has beyond the stages is HTTP,
the way to a thread and back, the event loop. Not in it: the link to the router (`bench/gateway.py` has whole
processes). Rounds alternate between the two. Times are CPU of the process, all threads.

    python bench/gateway_stages.py --rounds 6
"""

import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec
import numpy as np

from gateway import write_model
from mainspring.bench import environment
from mainspring.bench.http.traffic import Shape, Traffic
from mainspring.bench.report import table
from mainspring.core.nouns import DEFAULT_CLASSES, Limits
from mainspring.fleet.loop import run
from mainspring.gateway.assemble import Assembler, read_call
from mainspring.gateway.calls import ScoreCall, Scored, Stages, Terms
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.routes.scores import answer_of, call_of
from mainspring.gateway.schemas import ScoresIn
from mainspring.gateway.server import HttpServer
from mainspring.gateway.service import Gateway
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m

LIMITS = Limits(view_tokens=30_000, context_tokens=32_768)
TERMS = Terms(request_id="r", slo="standard")
MODEL = "0" * 64


class InstantFleet:
    """Answers at once with zeros; its one model has the bundle given."""

    connected = True

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    async def score(self, submit: m.Submit, accepted: Callable[[float], None] | None = None) -> m.Result:
        if accepted is not None:
            accepted(0.01)
        return m.Result(logits=bytes(len(submit.label_ids)))

    async def status(self, passes: int = 0) -> m.Status:  # noqa: ARG002 - as the client has it
        model = m.ModelStatus(
            model=MODEL, aliases=("null",), bundle=self._bundle.hash, limits=LIMITS, usable=1, nodes=1
        )
        classes = tuple(m.ClassStatus(name=slo.name, priority=slo.priority) for slo in DEFAULT_CLASSES)
        return m.Status(router=1, up_s=1.0, version="x", models=(model,), classes=classes)

    async def bundle(self, name: str) -> bytes:  # noqa: ARG002 - there is one
        return self._bundle.pack()


def serve(folder: str, told: Any) -> None:
    """A child: the real server. Sends its port, then its CPU seconds whenever it is asked."""

    async def main() -> None:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with Gateway(GatewayConfig(port=0), InstantFleet(Bundle.load(Path(folder)))) as gateway:
            server = HttpServer(gateway, lambda _host, port: ready.set_result(port))
            asyncio.get_running_loop().add_reader(told.fileno(), lambda: answer(server))
            task = asyncio.create_task(server.run())
            told.send(await ready)
            await task

    def answer(server: HttpServer) -> None:
        if told.recv() == "stop":
            server.stop()
        else:
            used = resource.getrusage(resource.RUSAGE_SELF)
            told.send(used.ru_utime + used.ru_stime)

    run(main)


def whole(told: Any, port: int, bodies: list[bytes]) -> float:
    """CPU seconds a request in the child, over one connection, one request after the other."""

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in bodies:
            head = f"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answered = await reader.readuntil(b"\r\n\r\n")
            if not answered.startswith(b"HTTP/1.1 200"):
                raise SystemExit(answered.decode())
            length = int(answered.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()

    told.send("cpu")
    before = told.recv()
    asyncio.run(ask())
    told.send("cpu")
    return float(told.recv() - before) / len(bodies)


class Text:
    """The stages of text, each over a list of requests; a stage's results are the next one's input."""

    def __init__(self, folder: Path) -> None:
        self.assembler = Assembler(Bundle.load(folder))
        self._decoder = msgspec.json.Decoder(ScoresIn)

    def run(self, bodies: list[bytes]) -> dict[str, float]:
        """CPU seconds a request by stage."""
        took: dict[str, float] = {}
        made = self.assembler

        def stage(name: str, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
            begun = time.process_time()
            found = [work(item) for item in items]
            took[name] = (time.process_time() - begun) / len(items)
            return found

        asked = stage("decode JSON", self._decoder.decode, bodies)
        calls: list[ScoreCall] = [call_of(each, TERMS, 1) for each in asked]
        made.branches(calls[0])
        reads = stage("read the span", read_call, calls)
        rendered = stage("render the view", lambda read: made.bundle.rendered(read.span), reads)
        prepared = stage(
            "look up turns", lambda pair: made.look_up(*pair, b"salt"), list(zip(reads, rendered, strict=True))
        )
        stage("tokenise", made.encode, prepared)
        pairs = list(zip(calls, prepared, strict=True))
        done = stage("join tokens, key", lambda pair: made.finish(*pair, LIMITS), pairs)
        submits = stage("Submit to bytes", lambda each: msgspec.msgpack.encode(submit_of(each)), done)
        logits = np.zeros(int(done[0].branches.label_counts.sum()), np.float32)

        def answered(pair: tuple[Any, Any]) -> bytes:
            asked, each = pair
            rows = tuple(made.rows(call_of(asked, TERMS).questions, each.branches, logits))
            scored = Scored(model="m", rows=rows, input_tokens=1, view_tokens=1, notes=(), stages=Stages())
            return msgspec.json.encode(answer_of(asked, scored))

        stage("probabilities, answer", answered, list(zip(asked, done, strict=True)))
        if len(submits) != len(bodies):
            raise SystemExit("a stage lost a request")
        return took


def submit_of(made: Any) -> m.Submit:
    branches = made.branches
    return m.Submit(
        request="r", model=MODEL, slo="standard", view_key=made.view_key, view_tokens=made.view.tokens.tobytes(),
        branch_lengths=branches.lengths.tobytes(), branch_tokens=branches.tokens.tobytes(),
        label_counts=branches.label_counts.tobytes(), label_ids=branches.label_ids.tobytes(),
    )  # fmt: skip


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=6, show_default=True)
@click.option("--requests", type=click.IntRange(10), default=100, show_default=True, help="Of a round, each arm.")
@click.option("--tokens", type=click.IntRange(16), default=8000, show_default=True)
@click.option("--cold", is_flag=True)
def main(rounds: int, requests: int, tokens: int, cold: bool) -> None:
    shape = Shape(tokens=tokens, share=0.0 if cold else 0.5)
    mine, its = Traffic(shape, 1), Traffic(shape, 2)
    samples: dict[str, list[float]] = {}
    with TemporaryDirectory() as name:
        folder = write_model(Path(name) / "null")
        near, far = multiprocessing.get_context("spawn").Pipe()
        child = multiprocessing.get_context("spawn").Process(target=serve, args=(str(folder), far))
        child.start()
        port = near.recv()
        text = Text(folder)
        whole(near, port, list(islice(its, 30)))
        text.run(list(islice(mine, 30)))
        for number in range(2 * rounds):
            for arm in ("text", "whole") if number % 2 else ("whole", "text"):
                if arm == "text":
                    for stage, seconds in text.run(list(islice(mine, requests))).items():
                        samples.setdefault(stage, []).append(seconds)
                else:
                    samples.setdefault("all, with HTTP", []).append(whole(near, port, list(islice(its, requests))))
        near.send("stop")
        child.join(60)
    total = samples.pop("all, with HTTP")
    parts = [sum(each) for each in zip(*samples.values(), strict=True)]
    samples["all of these"] = parts
    samples["all, with HTTP"] = total
    rows = [
        (stage, *(f"{1e3 * value:.3f}" for value in (statistics.fmean(v), min(v), statistics.median(v), max(v))))
        for stage, v in samples.items()
    ]
    click.echo(f"### {tokens} tokens, {'nothing' if cold else 'half'} known, {2 * rounds} x {requests} requests\n")
    click.echo(table(("CPU ms a request", "mean", "min", "median", "max"), rows))
    where = environment.record()
    click.echo(f"\n{where.device}; {where.commit}{' + changes' if where.dirty else ''}; {where.python}; load "
               f"{where.load_average[0]:.2f}; `{where.command}`; {where.date}")  # fmt: skip


if __name__ == "__main__":
    main()
