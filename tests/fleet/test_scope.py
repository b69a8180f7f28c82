"""Clients that send one key share nothing unless their certificates say so; keys of a realm last."""

import pytest

from mainspring.fleet.scope import realm_of, scoped, scoped_key
from mainspring.wire import messages as m
from mainspring.wire.transport import Identity
from support.fleet import Client, Fleet, Node, generation, known_as, submit


def test_two_clients_that_send_one_key_neither_share_nor_probe() -> None:
    fleet = Fleet()
    node = Node(fleet, "ant")
    one, other = Client(fleet, "one"), Client(fleet, "other")
    fleet.run(0.5)
    request = submit(2000, 4, view_key="v")
    for client in (one, other):
        stream = client.open(request)
        fleet.run(1.0)
        assert client.result(stream).cached_tokens == 0, "as if nobody had asked before"
    assert node.scans == [known_as("v", "one"), known_as("v", "other")]
    again = one.open(request)
    fleet.run(1.0)
    assert one.result(again).cached_tokens == 2000


def test_another_view_under_a_key_that_another_client_uses_is_no_error() -> None:
    """It would tell that the key is in use."""
    fleet = Fleet()
    Node(fleet, "ant")
    one, other = Client(fleet, "one"), Client(fleet, "other")
    fleet.run(0.5)
    first = one.open(submit(2000, 4, seed=1, view_key="v"))
    second = other.open(submit(2000, 4, seed=2, view_key="v"))
    fleet.run(2.0)
    one.result(first)
    other.result(second)
    fleet.empty()


def test_clients_of_one_realm_share() -> None:
    fleet = Fleet()
    node = Node(fleet, "ant")
    gates = [Client(fleet, name, realm="gates") for name in ("gate-1", "gate-2")]
    fleet.run(0.5)
    cached = []
    for gate in gates:
        stream = gate.open(submit(2000, 4, view_key="v"))
        fleet.run(1.0)
        cached.append(gate.result(stream).cached_tokens)
    assert cached == [0, 2000]
    assert len(node.scans) == 1


def test_a_router_that_restarts_finds_what_nodes_kept() -> None:
    fleet = Fleet()
    node = Node(fleet, "ant", back=0.1)
    client = Client(fleet)
    fleet.run(0.5)
    client.open(submit(2000, 4, view_key="v"))
    fleet.run(1.0)
    fleet.crash()
    fleet.run(1.0)
    client = Client(fleet)
    fleet.run(0.5)
    stream = client.open(submit(2000, 4, view_key="v"))
    fleet.run(1.0)
    assert client.result(stream).cached_tokens == 2000
    assert node.scans == [known_as("v")]


def test_every_prefix_key_is_set_apart_and_no_key_stays_none() -> None:
    asked = generation(prefix_keys=(("a", 10), ("b", 20)))
    one, other = (scoped(asked, Identity("fleet", "client", name)) for name in ("one", "other"))
    keys = {key for each in (one, other, asked) for key, _ in each.prefix_keys}
    assert len(keys) == 6
    assert [tokens for _, tokens in one.prefix_keys] == [10, 20]
    assert one.view_key == ""
    plain = submit()
    assert scoped(plain, Identity("fleet", "client", "one")) is plain


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Identity("fleet", "client", "a"), Identity("fleet", "client", "b", realm="a")),
        (Identity("fleet", "client", "a", realm="a"), Identity("fleet", "client", "a")),
        (Identity("fleet", "client", "a", realm="b"), Identity("fleet", "client", "b", realm="a")),
    ],
)
def test_a_name_is_not_a_realm(left: Identity, right: Identity) -> None:
    assert scoped_key("v", realm_of(left)) != scoped_key("v", realm_of(right))


def test_the_longest_key_stays_within_the_wire_s_bounds() -> None:
    longest = m.Submit(request="r", model="m", slo="s", view_tokens=b"", view_key="k" * 128)
    frame = m.encode(scoped(longest, Identity("fleet", "client", "n" * 63, realm="r" * 63)))
    assert isinstance(m.decode(frame[4], frame[8:]), m.Submit)


def test_a_prompt_and_a_view_of_one_key_are_different_things() -> None:
    me = Identity("fleet", "client", "gate")
    view = scoped(submit(view_key="k"), me)
    prompt = scoped(generation(view_key="k", prefix_keys=(("k", 10),)), me)
    assert view.view_key != prompt.view_key == prompt.prefix_keys[0][0]


def test_a_prompt_is_salted_by_realm_whatever_the_client_says() -> None:
    here, there = Identity("fleet", "client", "one"), Identity("fleet", "client", "other")
    salts = [scoped(generation(salt=salt), who).salt for who in (here, there) for salt in ("", "tenant")]
    assert len({*salts, ""}) == 5
    assert scoped(generation(salt="tenant"), here).salt == salts[1], "and the same for ever"
