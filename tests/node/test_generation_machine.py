"""Whatever happens to clients, links and devices, each stream has one end, says what it would alone up to there, and
leaves no slot, lease or byte behind. Real shell, real nodes on null slots, virtual time, actions by Hypothesis."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.wire import messages as m
from node.test_generation_with_router import ask, fleet_of, score, told
from node.test_leases import written

PROMPTS = {(kind, count): np.random.default_rng(kind).integers(0, 300, count).tolist() for kind in range(3)
           for count in (1, 63, 64, 200, 1500)}  # fmt: skip
MAY_END = {"contention", "cancelled", "lease_lost", "expired", "no_node", "work_failed", "condemned", "unknown_model"}
EXPECTED: dict[tuple[tuple[int, int], int], list[int]] = {}
ASK = st.tuples(
    st.just("ask"), st.sampled_from(sorted(PROMPTS)), st.sampled_from([1, 2, 30, 300]),
    st.sampled_from(["interactive", "standard", "batch"]), st.booleans(),
)  # fmt: skip
OTHER = st.sampled_from(["cancel", "cut", "come back", "fault", "prompt fault", "score", "slow", "leave"])
ACTIONS = st.lists(st.tuples(st.one_of(ASK, OTHER.map(lambda name: (name,))), st.sampled_from([0.0, 0.004, 0.05, 0.7])),
                   min_size=3, max_size=25)  # fmt: skip


def expected(which: tuple[int, int], tokens: int) -> list[int]:
    if (which, tokens) not in EXPECTED:
        EXPECTED[which, tokens] = written(PROMPTS[which], tokens)
    return EXPECTED[which, tokens]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ACTIONS)
def test_each_stream_ends_once_and_leaves_nothing(actions: list[tuple[tuple[object, ...], float]]) -> None:
    fleet, nodes, client = fleet_of({"slots": 2}, {"slots": 2, "prefix_bytes": 200_000})
    asked: dict[int, tuple[tuple[int, int], int]] = {}
    scores: list[int] = []
    faults = {node.who.name: [0, 0] for node in nodes}
    for node in nodes:
        break_at_will(node, faults[node.who.name])
    for (name, *more), pause_s in actions:
        node = nodes[len(asked) % 2]
        if name == "ask":
            which, tokens, slo, keyed = more
            keys = {"view_key": f"end{which}", "prefix_keys": ((f"turn{which}", which[1]),)} if keyed else {}
            asked[client.open(ask(PROMPTS[which], tokens, slo, **keys))] = (which, tokens)
        elif name == "cancel" and asked:
            client.cancel([*asked][len(asked) // 2])
        elif name == "cut":
            node.network.cut()
        elif name == "come back" and node.ended:
            node.ended.clear()
            node.dial(fleet.driver.accept)
        elif name in ("fault", "prompt fault"):
            faults[node.who.name][name == "prompt fault"] += 1
        elif name == "score":
            scores.append(client.open(score(len(scores))))
        elif name == "slow":
            node.worker.slower = 3.0 if node.worker.slower == 1.0 else 1.0
        elif name == "leave":
            node.member.drain(1.0, "enough")
        fleet.run(pause_s)
    for node in nodes:
        node.worker.slower = 1.0
        faults[node.who.name][:] = [0, 0]
        fleet.run(15.0)
        if node.ended:
            node.ended.clear()
            node.dial(fleet.driver.accept)
    fleet.run(100.0)
    for stream, (which, tokens) in asked.items():
        text, last = (told(client, stream) if stream in client.told else []), client.ends[stream]
        if isinstance(last, m.LeaseEnded):
            assert text == expected(which, tokens)
            assert (last.finish, last.tokens) == ("length", tokens)
        else:
            assert text == expected(which, tokens)[: len(text)]
            assert last.code in MAY_END, last
    assert all(stream in client.ends for stream in scores)
    fleet.empty()
    for node in nodes:
        assert node.streams is not None
        assert node.streams.free_slots == 2
        assert not len(node.scheduler.leases)
        assert not node.scheduler.busy


def break_at_will(node, faults: list[int]) -> None:  # type: ignore[no-untyped-def]
    """`faults`: rounds and pieces of prompts that are still to fail."""
    device = node.streams.backend
    rounds, pieces = device.round, device.prefill_slot

    def round_(parts):  # type: ignore[no-untyped-def]
        if faults[0]:
            faults[0] -= 1
            raise RuntimeError("device fault")
        return rounds(parts)

    def piece(*arguments, **more):  # type: ignore[no-untyped-def]
        if faults[1]:
            faults[1] -= 1
            raise RuntimeError("device fault")
        return pieces(*arguments, **more)

    device.round, device.prefill_slot = round_, piece
