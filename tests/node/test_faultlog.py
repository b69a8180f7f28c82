"""What a node logs of a fault: kinds and places, never the words that it was about."""

import ast
import logging
from pathlib import Path

import pytest

import mainspring.node
from mainspring.node.faultlog import described
from mainspring.wire import messages as m
from node.test_leases import chunk, lease
from support.nodes import NodeRig, part

WORDS = "my doctor says"


def shout(*_: object, **__: object) -> object:
    try:
        raise ValueError(f"can't read {WORDS!r}")
    except ValueError as error:
        raise RuntimeError(f"while at {WORDS}") from error


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


def test_places_and_causes_are_told() -> None:
    with pytest.raises(RuntimeError) as caught:
        shout()
    told = described(caught.value)
    assert told.startswith("RuntimeError in test_faultlog.py:")
    assert "shout; caused by ValueError in test_faultlog.py:" in told
    assert WORDS not in told


def test_a_chain_of_causes_has_an_end() -> None:
    error: Exception = ValueError("first")
    for _ in range(50):
        following = KeyError(WORDS)
        following.__cause__ = error
        error = following
    assert described(error).count("caused by") == 3


def test_nothing_in_a_node_logs_an_exception_whole() -> None:
    """`log.exception` and `exc_info` print messages, of causes too."""
    assert mainspring.node.__file__ is not None
    files = sorted(Path(mainspring.node.__file__).parent.glob("*.py"))
    assert len(files) > 20
    for path in files:
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                assert name != "exception", f"{path.name}:{call.lineno}"
                assert all(word.arg != "exc_info" for word in call.keywords), f"{path.name}:{call.lineno}"
