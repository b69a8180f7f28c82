"""The document against the server: whatever it allows is answered as it says, whatever it forbids is refused."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.openapi import GETS, POSTS, document
from support.gateway import WAIT_S, ScriptedFleet, served

schemathesis = pytest.importorskip("schemathesis")
DOCUMENT = document(GatewayConfig())
OPERATIONS = [("POST", path) for path in POSTS] + [("GET", path) for path in (*GETS, "/v1/models/{id}")]
EXAMPLES = 25
WANTED = {"not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"}
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [check for check in schemathesis.checks.CHECKS.get_all() if check.__name__ in WANTED]
OURS = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
    phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server on a loop of its own."""
    ready, done = threading.Event(), threading.Event()
    found: list[str] = []

    async def live() -> None:
        async with served(ScriptedFleet()) as s:
            found.append(f"http://127.0.0.1:{s.port}")
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert ready.wait(WAIT_S)
    yield found[0]
    done.set()
    thread.join(WAIT_S)


def test_every_path_is_there() -> None:
    assert {check.__name__ for check in CHECKS} == WANTED
    assert set(DOCUMENT["paths"]) == {path for _, path in OPERATIONS}
    assert "security" not in DOCUMENT
    assert document(GatewayConfig(keys="keys.toml"))["security"] == [{"key": []}]


@pytest.mark.parametrize(
    ("mode", "method", "path"),
    [("positive", *each) for each in OPERATIONS] + [("negative", *each) for each in OPERATIONS if each[0] == "POST"],
    ids=" ".join,
)
def test_answers_are_those_of_the_document(url: str, mode: str, method: str, path: str) -> None:
    operation = SCHEMA[path][method]
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode))

    @OURS
    @given(st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(cases)
        response = case.call(base_url=url, timeout=WAIT_S)
        case.validate_response(response, checks=CHECKS)

    check()
