"""Who may open which stream, and what may follow on it.

A stream carries one exchange: its first message decides. `asks` may follow from the opener, `tells` from the other
side, and the other side's `ends` is the last message: exactly one, whatever happened; only a lost link cuts an exchange
short.
"""

from dataclasses import dataclass
from functools import cache, cached_property

from mainspring.wire import messages as m

CONTROL = 0
"""The dialer's first stream: hello, welcome, then everything about the link as a whole."""


@dataclass(frozen=True)
class Exchange:
    opener: frozenset[m.Role]
    other: frozenset[m.Role]
    tells: frozenset[type]
    ends: frozenset[type]
    asks: frozenset[type] = frozenset({m.Cancel})

    @cached_property
    def answers(self) -> frozenset[type]:
        """Whatever may come from the other side."""
        return self.tells | self.ends


ROUTER, NODE, CLIENT = (frozenset[m.Role]({role}) for role in ("router", "node", "client"))

EXCHANGES: dict[type, Exchange] = {
    m.Work: Exchange(ROUTER, NODE, frozenset({m.Started}), frozenset({m.Done, m.Failed})),
    m.OpenLease: Exchange(ROUTER, NODE, frozenset({m.Rounds}), frozenset({m.LeaseEnded})),
    m.FetchBundle: Exchange(
        ROUTER | CLIENT, NODE | ROUTER, frozenset({m.BundleData}), frozenset({m.BundleEnd}), frozenset()
    ),
    m.Submit: Exchange(
        CLIENT, ROUTER, frozenset({m.Accepted, m.Rounds}), frozenset({m.Result, m.Refused, m.LeaseEnded})
    ),
    m.AskStatus: Exchange(CLIENT, ROUTER, frozenset(), frozenset({m.Status}), frozenset()),
}

ON_CONTROL: dict[m.Role, frozenset[type]] = {
    "node": frozenset({m.Ping, m.Pong, m.Goodbye, m.Drain, m.Offer, m.NodeReport}),
    "client": frozenset({m.Ping, m.Pong, m.Goodbye}),
    "router": frozenset({m.Ping, m.Pong, m.Goodbye, m.Drain, m.Declined, m.Release}),
}
"""What each role may say there once welcomed."""


@cache
def openings(opener: m.Role, other: m.Role) -> frozenset[type]:
    """First messages that `opener` may send to `other`."""
    return frozenset(first for first, e in EXCHANGES.items() if opener in e.opener and other in e.other)
