"""The page of text that `mainspring router status` prints."""

from msgspec.structs import replace

from mainspring.cli._status import card
from mainspring.wire import messages as m
from support.fleet import Client, Fleet, Node, generation, submit


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


def test_the_card_shows_who_generates_and_how_streams_fared() -> None:
    fleet = Fleet()
    node = Node(fleet, "ant")
    client = Client(fleet)
    fleet.run(0.5)
    assert "generates" not in card(client.status())
    client.open(generation(50, 40))
    fleet.run(1.0)
    node.say(0, m.NodeReport(written=m.Written(streams=1, rounds=20, slot_rounds=20, tokens=40, drafted=30, accepted=20,
                                               prefilled=50, cached=150, round_s=0.4)))  # fmt: skip
    fleet.run(0.1)
    lines = card(client.status()).splitlines()
    [writes] = [line.split() for line in lines if line.startswith("ant") and "2.00" in line]
    assert writes == ["ant", "0/4", "1", "40", "2.00", "20/30", "20.0", "150/200", "0"]
    [_, streams] = [line.split() for line in lines if line.startswith("standard")]
    assert streams[:3] == ["standard", "1", "40"]
    assert streams[-1] == "250"
