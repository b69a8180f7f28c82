"""The embedded writer on the CPU, in process: drafted against plain, and the time to the first token.

decode    tokens/s of replies to a few questions, likeliest tokens, prompts (some 30 tokens) included: nothing drafted,
          and as served. Acceptance length (tokens a round, bonus included) is said beside them.
first     first tokens/s (1,000 over that is the time to it in ms) after a conversation: cold, its next turn, a repeat.

`--cpu-time` counts the process's own seconds in place of the clock's, for a machine that others use too: one thread.
"""

import time
from collections.abc import Callable, Iterator

import click
from msgspec.structs import replace

from mainspring.bench import Arm, Host, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.generator import Generator

QUESTIONS = (
    "What do bees do in winter?",
    "Name three colors, and say what each of them is used for.",
    "Write a list of ten things to take along on a walk in the mountains.",
    "Tell me a story about a dog that lost its ball. Begin each sentence with: The dog",
)
TURN = "Tell me more about the second thing that you said, please, and why it matters to you. "


@click.command(help=__doc__)
@click.option("--case", type=click.Choice(["decode", "first"]), default="decode", show_default=True)
@click.option("--tokens", type=click.IntRange(2), default=100, show_default=True, help="Of a reply, at most.")
@click.option("--turns", type=click.IntRange(1), default=20, show_default=True, help="Of the conversation.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--cpu-time", is_flag=True, help="Seconds of the processor, not of the clock.")
@shared_options
def main(options: Options, publish: Publish, case: str, tokens: int, turns: int, threads: int, cpu_time: bool) -> None:
    host = Host(clock_ns=time.process_time_ns) if cpu_time else Host()
    options = replace(options, wait=options.wait and not cpu_time)  # the process's own clock stands while it waits
    where = f"{threads} threads" + (", CPU time" if cpu_time else "")
    if case == "decode":
        arms = [Arm(f"drafter {name or 'as served'}", replies(name, tokens, threads)) for name in ("none", "")]
        publish(measure(arms, options, title=f"Embedded writer, {tokens} tokens, {where}", unit="tokens", host=host))
    else:
        arms = list(firsts(turns, threads))
        publish(
            measure(
                arms, options, title=f"Embedded writer, after {turns} turns, {where}", unit="first tokens", host=host
            )
        )


def replies(drafter: str, tokens: int, threads: int) -> Callable[[], float]:
    generator = Generator.embedded(threads=threads, cache_bytes=0)

    def run() -> float:
        return float(sum(len(generator.generate(each, max_tokens=tokens, drafter=drafter).tokens)
                         for each in QUESTIONS))  # fmt: skip

    run()
    stats = generator.streams.stats
    click.echo(f"drafter {drafter or 'as served'}: {stats.emitted / stats.stream_rounds:.2f} tokens a round, "
               f"{stats.accepted} of {stats.drafted} drafts right", err=True)  # fmt: skip
    return run


def firsts(turns: int, threads: int) -> Iterator[Arm]:
    cold, kept = (Generator.embedded(threads=threads, cache_bytes=size) for size in (0, 1 << 28))
    talk = [{"role": ("user", "assistant")[turn % 2], "content": TURN} for turn in range(2 * (turns // 2) + 1)]
    count = [0]
    click.echo(f"{len(cold.prompt(talk, 8))} tokens", err=True)

    def first(generator: Generator, said: list[dict[str, str]]) -> float:
        pieces = generator.stream(said, max_tokens=8)
        next(pieces)
        pieces.close()  # type: ignore[attr-defined]
        return 1.0

    def turn() -> list[dict[str, str]]:
        count[0] += 1
        return [
            *talk,
            {"role": "assistant", "content": f"Of course, number {count[0]}."},
            {"role": "user", "content": TURN},
        ]

    first(kept, talk)
    yield Arm("cold", lambda: first(cold, talk))
    yield Arm("next turn", lambda: first(kept, turn()))
    yield Arm("exact repeat", lambda: first(kept, talk))


if __name__ == "__main__":
    main()
