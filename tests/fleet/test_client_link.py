"""One exchange as the asker sees it, message by message."""

import asyncio
from typing import cast

import pytest

from mainspring.fleet.client_link import Asked, ClientLink
from mainspring.wire import messages as m

RESULT = m.Result(logits=b"")


class Cancels:
    """A link that counts what is taken back."""

    def __init__(self) -> None:
        self.streams: list[int] = []

    def cancel(self, stream: int) -> None:
        self.streams.append(stream)


def refuse(_predicted_s: float) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("answered", [False, True])
def test_what_the_asker_s_own_function_raises_comes_out_though_the_answer_came_with_it(answered: bool) -> None:
    async def scene() -> None:
        link = Cancels()
        asked = Asked(cast(ClientLink, link), 5, cancels=True, accepted=refuse)
        asked.hear(m.Accepted(predicted_s=0.1), last=False)
        if answered:
            asked.hear(RESULT, last=True)
        with pytest.raises(ZeroDivisionError):
            async with asked:
                await anext(aiter(asked))
        assert link.streams == ([] if answered else [5])  # what is over can't be taken back

    asyncio.run(scene())


def test_whoever_waits_is_not_given_the_acceptance_and_gets_the_answer() -> None:
    async def scene() -> None:
        told: list[float] = []
        asked = Asked(cast(ClientLink, Cancels()), 5, cancels=True, accepted=told.append)
        waiting = asyncio.create_task(anext(aiter(asked)))
        await asyncio.sleep(0)
        asked.hear(m.Accepted(predicted_s=0.1), last=False)
        await asyncio.sleep(0)
        assert (told, waiting.done()) == ([0.1], False)
        asked.hear(RESULT, last=True)
        assert await waiting is RESULT

    asyncio.run(scene())
