"""Texts of peers reach the log as one line each: nobody can write a line of their own into it."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.mux import Mux
from mainspring.wire.quic_endings import lost_of
from support.fleet import Client, Fleet, Node, submit
from support.nodes import NodeRig

EVIL = "evil\n2026-01-01 CRITICAL \x1b[31mforged\r\u2028\x00\u202e"
SHOWN = "evil\\n2026-01-01 CRITICAL \\x1b[31mforged\\r\\u2028\\x00\\u202e"


@given(st.text(max_size=1000))
def test_a_line_is_a_line(text: str) -> None:
    line = m.one_line(text)
    assert line.isprintable()
    assert len(line.splitlines()) <= 1
    assert len(line) <= 300 * 10
    if len(text) <= 300 and text.isprintable():
        assert line == text


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records]
    assert told
    for line in told:
        assert line.isprintable(), ascii(line)
    return told


def test_the_router_s_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        fleet = Fleet()
        ant = Node(fleet, "ant", alias=EVIL, device=EVIL)
        bad = Node(fleet, "bad", named=EVIL)
        client = Client(fleet)
        fleet.run(0.5)
        assert bad.closed is not None
        client.open(submit(model=EVIL))
        stream = client.open(submit(model="key"))
        fleet.run(0.001)
        real = ant._answer
        ant._answer = lambda work, _took: m.Failed(fence=work.fence, reason="engine", message=EVIL)  # type: ignore[method-assign]
        fleet.run(1.0)
        ant._answer = real  # type: ignore[method-assign]
        ant.say(0, m.NodeReport(note=EVIL))
        ant._take(ant.link.close(Close.GOODBYE, EVIL, fleet.world.now_s))
        ant.turn()
        fleet.run(0.5)
        assert stream in client.told
    told = "\n".join(lines(caplog))
    assert told.count(SHOWN) >= 5, "alias, device, bundle, failure, goodbye"


def test_a_node_s_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        rig = NodeRig().join()
        rig.router.send(0, m.Declined(code=EVIL, message=EVIL))
        rig.router.send(0, m.Goodbye(reason=EVIL))
        rig.router.send(0, m.Drain(within_s=30.0, reason=EVIL))
        rig.run(0.5)
    assert "\n".join(lines(caplog)).count(SHOWN) == 4


def test_reasons_of_closed_connections_are_lines_when_they_come() -> None:
    near, far = Mux(dialer=True), Mux(dialer=False)
    near.close(Close.GOODBYE, EVIL)
    [lost] = far.receive(near.take(1 << 16))
    assert lost.message == SHOWN  # type: ignore[union-attr]
    assert lost_of((0, None, EVIL), None).message == SHOWN
    for ending in ((0x100 + 42, 6, EVIL), (7, 6, EVIL)):
        assert lost_of(ending, None).message.isprintable()
