"""What a gateway logs of faults beside requests: kinds and places. Those of requests: `test_front`."""

import logging

import pytest

from support.faults import WORDS, shout
from support.gateway import ScriptedFleet, play, served, until


class Shouting(ScriptedFleet):
    """Whoever asks it for its status hears what was said elsewhere."""

    status = shout  # type: ignore[assignment]


def test_no_text_of_a_fault_gets_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scene() -> None:
        async with served(Shouting(), heard=False):
            await until(lambda: "the router's status was read" in caplog.text)

    play(scene())
    assert "RuntimeError in service.py" in caplog.text
    assert WORDS not in caplog.text
