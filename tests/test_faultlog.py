"""Faults in logs: kinds and places, never the words that they were about, whoever logs them."""

import ast
import asyncio
import gc
import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainspring
from mainspring.faultlog import Formatter, described
from mainspring.gateway.logs import JsonFormatter
from support.faults import WORDS, shout

ROOMS = ("fleet", "gateway", "node", "wire")


def test_places_and_causes_are_told() -> None:
    with pytest.raises(RuntimeError) as caught:
        shout()
    told = described(caught.value)
    assert told.startswith("RuntimeError in test_faultlog.py:")
    assert "shout; caused by ValueError in faults.py:" in told
    assert WORDS not in told


def test_a_chain_of_causes_has_an_end() -> None:
    error: Exception = ValueError("first")
    for _ in range(50):
        following = KeyError(WORDS)
        following.__cause__ = error
        error = following
    assert described(error).count("caused by") == 3


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_that_serves_logs_an_exception_whole(room: str) -> None:
    """`log.exception` and `exc_info` print messages, of causes too; so does who formats a traceback."""
    assert mainspring.__file__ is not None
    files = sorted((Path(mainspring.__file__).parent / room).rglob("*.py"))
    assert len(files) > 20
    for path in files:
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                of_a_task = name == "exception" and not call.args
                assert of_a_task or name not in ("exception", "print_exc", "format_exc"), f"{path.name}:{call.lineno}"
                assert all(word.arg != "exc_info" for word in call.keywords), f"{path.name}:{call.lineno}"


@pytest.fixture(params=[Formatter, JsonFormatter])
def log(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What a serving process writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def test_what_a_library_logs_whole_is_cut_to_kind_and_place(log: io.StringIO) -> None:
    try:
        shout()
    except RuntimeError:
        logging.getLogger("some.library").exception("it went wrong")
    told = log.getvalue()
    assert "it went wrong" in told
    assert "RuntimeError in test_faultlog.py" in told
    assert "ValueError in faults.py" in told
    assert WORDS not in told


def test_what_asyncio_says_of_nobodys_faults(log: io.StringIO) -> None:
    async def fail() -> None:
        shout()

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        lost = loop.create_task(fail(), name=WORDS)
        loop.call_soon(shout, WORDS)
        loop.call_exception_handler({"message": "Fatal error: protocol.data_received() call failed.",
                                     "exception": ValueError(WORDS), "protocol": WORDS})  # fmt: skip
        await asyncio.sleep(0.01)
        del lost
        gc.collect()

    asyncio.run(scene())
    told = log.getvalue()
    for wanted in ("Task exception was never retrieved", "Exception in callback shout", "protocol.data_received",
                   "RuntimeError in events.py"):  # fmt: skip
        assert wanted in told
    assert WORDS not in told
