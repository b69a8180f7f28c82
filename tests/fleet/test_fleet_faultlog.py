"""What a router logs of a fault: kinds and places, never the words that it was about."""

import logging

import pytest

from mainspring.fleet.offloop import OffLoop
from support.faults import WORDS, shout
from support.fleet import Client, Fleet, Node, submit


@pytest.mark.parametrize("what", ["core", "link", "write", "action", "off the loop"])
def test_no_text_of_a_fault_gets_into_the_log(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet()
    Node(fleet, "ant")
    client = Client(fleet)
    fleet.run(0.5)
    shell = fleet.shell
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    if what == "off the loop":
        OffLoop(shell).shielded(shout, None, 0.0)
    else:
        owner, name = {
            "core": (shell.core, "handle"), "link": (shell, "received"), "write": (shell, "_pump"),
            "action": (shell.nodes.work, "send_pass"),
        }[what]  # fmt: skip
        monkeypatch.setattr(owner, name, shout)
        client.open(submit())
        fleet.run(0.5)
    assert "RuntimeError in" in caplog.text
    assert "caused by ValueError in faults.py" in caplog.text
    assert WORDS not in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    assert WORDS not in repr(client.told)
