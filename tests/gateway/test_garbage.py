"""What a refused request leaves behind: nothing that waits for the collector with a body in it."""

import gc
from types import TracebackType
from typing import Any

import pytest

from mainspring.fleet.errors import RequestRefusedError
from support.gateway import SCORES, ScriptedFleet, play, served
from support.writing import writer


class RefusingFleet(ScriptedFleet):
    """A new error each time, as the client has it: one that is raised twice keeps the frames of both."""

    async def score(self, submit: Any, accepted: Any = None) -> Any:  # noqa: ARG002
        raise RequestRefusedError("expired", "too late", status=504)


def rings() -> set[str]:
    """Functions whose frames wait for the collector within a traceback."""
    gc.collect()
    tracebacks = [each for each in gc.garbage if isinstance(each, TracebackType)]
    return {each.tb_frame.f_code.co_name for each in tracebacks}


@pytest.mark.parametrize("kind", ["refused", "late", "answered", "broken"])
@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 2}], ids=["whole", "stream", "two"])
def test_nor_where_text_is_generated(kind: str, fields: dict[str, Any]) -> None:
    def refuse(_submit: Any) -> Exception | None:
        return RequestRefusedError("expired", "too late", status=504) if kind == "refused" else None

    async def scene() -> None:
        fleet = writer("</think>Yes, it is<|im_end|>", refuse=refuse, breaks_after=1 if kind == "broken" else None)
        async with served(fleet) as s:
            headers = {"x-deadline-ms": "0.01"} if kind == "late" else {}
            asked = {"messages": [{"role": "user", "content": "Hi"}], **fields}
            await s.post("/v1/chat/completions", asked, **headers)
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                for _ in range(5):
                    reply = await s.post("/v1/chat/completions", asked, **headers)
                    broken = 200 if fields.get("stream") else 500
                    assert reply.status == {"late": 429, "refused": 504, "answered": 200, "broken": broken}[kind]
                places = rings()
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
            assert places == set()

    play(scene())


@pytest.mark.parametrize("kind", ["late", "refused", "answered"])
def test_no_ring_of_task_error_and_frames_is_left(kind: str) -> None:
    """Such a ring lives until a collection of its generation: thousands of requests, each with body and tokens."""

    async def scene() -> None:
        async with served(RefusingFleet() if kind == "refused" else ScriptedFleet()) as s:
            headers = {"x-deadline-ms": "0.01"} if kind == "late" else {}
            await s.post("/v1/scores", SCORES, **headers)
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                for _ in range(5):
                    reply = await s.post("/v1/scores", SCORES, **headers)
                    assert reply.status == {"late": 429, "refused": 504, "answered": 200}[kind]
                places = rings()
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
            assert not places

    play(scene())
