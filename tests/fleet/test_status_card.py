"""The page of text that `mainspring router status` prints."""

from msgspec.structs import replace

from mainspring.cli._status import card
from support.fleet import Client, Fleet, Node, submit


def test_the_card_shows_nodes_models_and_classes() -> None:
    fleet = Fleet()
    Node(fleet, "ant", device="toaster")
    client = Client(fleet)
    fleet.run(0.5)
    client.open(submit())
    client.open(submit(model="other"))
    fleet.run(1.0)
    fleet.shell.tally.count("nodes_given_up")
    text = card(client.status())
    head, *lines = text.splitlines()
    assert "1 clients" in head
    assert "1 local nodes given up" in head
    [node] = [line for line in lines if line.startswith("ant")]
    assert "ready" in node
    assert "toaster" in node
    [standard] = [line for line in lines if line.startswith("standard")]
    assert standard.split()[4:] == ["0", "1", "0", "unknown_model:1"]
    assert "not listed" not in head
    cut = card(replace(client.status(), omitted={"nodes": 7}))
    assert "not listed: 7 nodes" in cut.splitlines()[0]
