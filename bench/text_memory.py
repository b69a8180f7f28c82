"""Memory of the text path at full speed: does it still grow once the cache of earlier turns is full?

The soak (`bench/soak.py`) asks the same of whole processes, at a twentieth of the speed. Here one process reads,
renders and tokenises the soak's conversations one after the other. Another one makes them, so that nothing of the
generator lies between its own. First until the cache is full, then `--requests` more. The last `--open` results are
held, as those of requests that wait in a queue are. Beside resident memory stands what glibc says of its heap: in use,
and free between blocks that are. `--threads`: every other look's requests are tokenised on a thread, as a gateway does
while its core is slow.

    python bench/text_memory.py                # about 1.5 minutes
"""

import multiprocessing
import os
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from gateway import write_model
from gateway_stages import LIMITS, TERMS
from mainspring.bench import environment
from mainspring.bench.heap import heap
from mainspring.bench.http.processes import use_of
from mainspring.bench.http.traffic import Shape, Traffic
from mainspring.bench.report import table
from mainspring.gateway.assemble import SEGMENT_BYTES, Assembled, Assembler
from mainspring.gateway.routes.scores import call_of
from mainspring.gateway.schemas import ScoresIn
from mainspring.text.bundle import Bundle

FULL = 0.98
BATCH = 50
FILL_MOST = 40_000
MIB = 1 << 20


def generate(out: Connection, tokens: int) -> None:
    """A child: batches of bodies, one for every word it gets, until the other end is closed."""
    traffic = Traffic(Shape(tokens=tokens, behaviors=8), 1)
    while True:
        try:
            out.recv()
            out.send(list(islice(traffic, BATCH)))
        except EOFError:
            return


class TextPath:
    """The text path of one model, with bodies from `made`."""

    def __init__(self, folder: Path, made: Connection, held: int) -> None:
        self.assembler = Assembler(Bundle.load(folder))
        self._made = made
        self._decoder = msgspec.json.Decoder(ScoresIn)
        self._open: deque[Assembled] = deque(maxlen=held)

    def batch(self, pool: Executor | None = None) -> None:
        """`pool`: where to tokenise, here unless given."""
        self._made.send("more")
        for body in self._made.recv():
            call = call_of(self._decoder.decode(body), TERMS, len(body))
            prepared = self.assembler.prepare(call, b"salt")
            if pool is None:
                self.assembler.encode(prepared)
            else:
                pool.submit(self.assembler.encode, prepared).result()
            self._open.append(self.assembler.finish(call, prepared, LIMITS))


def row(path: TextPath, requests: int) -> tuple[str, ...]:
    cache, its = path.assembler.segments, heap()
    figures = [use_of(os.getpid()).rss_mib, *((its.in_use, its.free, its.mapped) if its else ()), cache.bytes / MIB]
    return (f"{requests:,}", *(f"{figure:.1f}" for figure in figures), f"{len(cache):,}")


@click.command(help=__doc__)
@click.option("--requests", type=click.IntRange(1), default=24_000, show_default=True, help="After the filling.")
@click.option("--every", type=click.IntRange(1), default=4_000, show_default=True, help="Requests between two looks.")
@click.option("--tokens", type=click.IntRange(16), default=3000, show_default=True)
@click.option("--open", "held", type=click.IntRange(1), default=100, show_default=True)
@click.option("--threads", is_flag=True, help="Tokenise on a thread and here in turn.")
def main(requests: int, every: int, tokens: int, held: int, threads: bool) -> None:
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = write_model(Path(name) / "null")
        near, far = spawn.Pipe()
        child = spawn.Process(target=generate, args=(far, tokens))
        child.start()
        far.close()
        path = TextPath(folder, near, held)
        filling = 0
        while path.assembler.segments.bytes < FULL * SEGMENT_BYTES and filling < FILL_MOST:
            path.batch()
            filling += BATCH
        rows = [row(path, 0)]
        for number in range(BATCH, requests + 1, BATCH):
            path.batch(pool if threads and (number - 1) // every % 2 == 0 else None)
            if number % every == 0:
                rows.append(row(path, number))
        near.close()
        child.join(60)
    click.echo(f"### {tokens} tokens, half known; full after {filling:,} requests\n")
    glibc = ("heap in use", "heap free", "mapped") if heap() else ()
    click.echo(table(("requests", "resident, MiB", *glibc, "turns", "kept"), rows))
    cache = path.assembler.segments
    click.echo(f"\nFound {cache.hits / (cache.hits + cache.misses):.1%} of the characters.\n")
    where = environment.record()
    click.echo(f"{where.device}; {where.commit}{' + changes' if where.dirty else ''}; {where.python}; load "
               f"{where.load_average[0]:.2f}; `{where.command}`; {where.date}")  # fmt: skip


if __name__ == "__main__":
    main()
