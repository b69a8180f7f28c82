"""Choices side by side: nobody runs ahead of the reader, and all are closed whatever happens."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mainspring.gateway.generation.choice import Tally
from mainspring.gateway.generation.run import merged
from mainspring.gateway.generation.usage import anthropic_usage, openai_usage


class Source:
    def __init__(self, count: int, breaks_at: int = -1) -> None:
        self.count, self.breaks_at = count, breaks_at
        self.made = 0
        self.closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                if number == self.breaks_at:
                    raise ValueError(number)
                self.made += 1
                yield number
                await asyncio.sleep(0)
        finally:
            self.closed = True


def test_each_source_is_at_most_one_item_ahead_of_the_reader() -> None:
    async def scene() -> None:
        sources = [Source(50), Source(50), Source(3)]
        taken = 0
        async for _ in merged([source.items() for source in sources]):
            taken += 1
            await asyncio.sleep(0.001)
            assert sum(source.made for source in sources) <= taken + len(sources)
        assert taken == 103
        assert all(source.closed for source in sources)

    asyncio.run(scene())


def test_one_that_breaks_closes_all() -> None:
    async def scene() -> None:
        sources = [Source(50), Source(50, breaks_at=3)]
        with pytest.raises(ValueError, match="3"):
            async for _ in merged([source.items() for source in sources]):
                pass
        assert all(source.closed for source in sources)

    asyncio.run(scene())


def test_who_leaves_early_closes_all() -> None:
    async def scene() -> None:
        sources = [Source(50), Source(50)]
        stream = merged([source.items() for source in sources])
        await anext(stream)
        await stream.aclose()
        assert all(source.closed for source in sources)

    asyncio.run(scene())


def test_usage_of_several_choices() -> None:
    tallies = [
        Tally(began_s=0.0, tokens=6, cached=8, rounds=3, drafted=9, accepted=3, histogram=[1, 1, 1]),
        Tally(began_s=0.0, tokens=2, cached=0, rounds=2, drafted=4, accepted=0, histogram=[2]),
    ]
    usage = openai_usage(10, tallies, choices=2)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 10}
    assert (usage["acceptance_length"], usage["acceptance_histogram"]) == (1.6, {"1": 3, "2": 1, "3": 1})
    assert openai_usage(20, tallies, choices=1)["prompt_tokens_details"] == {"cached_tokens": 8}
    assert openai_usage(5, [Tally(began_s=0.0)])["acceptance_length"] is None
    assert anthropic_usage(10, tallies[0]) == {
        "input_tokens": 2, "output_tokens": 6, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 0,
    }  # fmt: skip
