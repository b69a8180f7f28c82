"""What a node logs of a fault: kinds and places, never the words that it was about."""

import logging

import pytest

from mainspring.wire import messages as m
from node.test_leases import chunk, lease
from support.faults import WORDS, shout
from support.nodes import NodeRig, part


@pytest.mark.parametrize("what", ["round", "cancel", "prompt", "pass", "ended", "gauges", "slot"])
def test_no_text_of_a_fault_gets_into_the_log(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig = NodeRig(slots=2).join()
    assert rig.streams is not None
    if what == "pass":
        monkeypatch.setattr(rig.engine, "run", shout)
        rig.send(part())
    elif what == "gauges":
        monkeypatch.setattr(rig.backend, "gauges", shout, raising=False)
        rig.offering.gauges()
    else:
        stream = lease(rig, tokens=100)
        if what == "prompt":
            monkeypatch.setattr(rig.streams.backend, "prefill_slot", shout)
        chunk(rig)
        rig.run(0.3)
        if what == "round":
            monkeypatch.setattr(rig.streams, "round", shout)
        elif what == "ended":
            monkeypatch.setattr(rig.scheduler.rounds, "ended", shout)
        elif what in ("cancel", "slot"):
            owner, name = (rig.streams, "cancel") if what == "cancel" else (rig.streams.backend, "close_slot")
            monkeypatch.setattr(owner, name, shout)
            rig.router.send(stream, m.Cancel())
    rig.run(0.5)
    if what != "prompt":  # that is the router's to hear
        assert "RuntimeError" in caplog.text
    assert WORDS not in caplog.text
    assert WORDS not in repr(rig.router.heard)
    assert not any(record.exc_info for record in caplog.records)
