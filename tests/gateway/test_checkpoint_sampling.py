"""A checkpoint's own sampling holds where a request says nothing, field by field, on every route that generates."""

from typing import Any

import pytest

from mainspring.text.sampling import SamplingDefaults
from mainspring.wire import messages as m
from support.chats import HI
from support.gateway import play, served
from support.writing import writer

OWN = SamplingDefaults(temperature=0.6, top_p=0.9, top_k=20, min_p=0.05, repetition_penalty=1.1)
NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
ROUTES = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "Once"},
    "/v1/messages": {"messages": HI, "max_tokens": 8},
}
API = (1.0, 1.0, 0, 0.0, 1.0)


async def sampled(path: str, asked: dict[str, Any], own: SamplingDefaults, **config: Any) -> m.Sampling:
    """What goes to a node."""
    async with served(writer(sampling=own), **config) as s:
        reply = await s.post(path, ROUTES[path] | asked)
        assert reply.status == 200, reply.body
        found = s.fleet.submits[-1].sampling
    assert found is not None
    return found


def values(sampling: m.Sampling) -> tuple[float, ...]:
    return tuple(getattr(sampling, name) for name in NAMES)


@pytest.mark.parametrize("path", ROUTES)
def test_where_nothing_is_said(path: str) -> None:
    async def scene() -> None:
        assert values(await sampled(path, {}, OWN)) == (0.6, 0.9, 20, 0.05, 1.1)
        assert values(await sampled(path, {}, SamplingDefaults(top_k=-1, temperature=0.0))) == (0.0, *API[1:])
        assert values(await sampled(path, {}, SamplingDefaults())) == API
        assert values(await sampled(path, {}, OWN, checkpoint_sampling=False)) == API

    play(scene())


@pytest.mark.parametrize("path", ROUTES)
def test_what_is_said_stands_beside_it(path: str) -> None:
    async def scene() -> None:
        asked = {"temperature": 0.0, "top_k": None}
        assert values(await sampled(path, asked, OWN)) == (0.0, 0.9, 20, 0.05, 1.1)
        assert values(await sampled(path, {"top_p": 1.0}, OWN)) == (0.6, 1.0, 20, 0.05, 1.1)

    play(scene())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_the_apis_own_defaults_can_be_asked_for(path: str) -> None:
    async def scene() -> None:
        asked = dict(zip(NAMES, API, strict=True)) | {"top_k": -1, "frequency_penalty": 0.3, "seed": 5}
        found = await sampled(path, asked, OWN)
        assert values(found) == API
        assert (found.frequency_penalty, found.seed) == (0.3, 5)

    play(scene())
