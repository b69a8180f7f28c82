"""The control stream: who speaks, whether both still live, and how a link ends in good order."""

from typing import Annotated

from msgspec import Meta

from mainspring.wire.records import KIB, MIB, Count, Key, Name, Record, Role, Row, Seconds, Text

VERSION = 2
"""Of this build. A router accepts this and the one before. 2: leases bring their prompt, in one order with passes."""
GENERATES = 2
"""The version since which nodes offer slots."""
OLDEST_VERSION = 1


class Hello(Record, frozen=True, kw_only=True):
    """The dialer's first frame, and all it may send before `Welcome`. Role and name are those of its certificate.

    `instance` is drawn at random when the process starts: the same one comes back after a lost link, another one after
    a crash. `oldest` and `newest` are the versions it speaks.
    """

    cap = 4 * KIB
    role: Role
    name: Name
    instance: Count
    oldest: Count = OLDEST_VERSION
    newest: Count = VERSION
    build: Key = ""


class Timing(Record, frozen=True, kw_only=True):
    """`idle_s` without a byte ends the link on either side; each pings every `idle_s / 3` of its own silence."""

    idle_s: Annotated[float, Meta(ge=0.3, le=300.0)] = 6.0
    hello_s: Annotated[float, Meta(ge=0.1, le=60.0)] = 5.0


class Welcome(Record, frozen=True, kw_only=True):
    """Only now has a dialer joined (in TLS 1.3 it believes itself connected before its certificate was judged).

    `epoch` fences everything a node says: it rises with every accepted link of the router's life. `router` is that
    life's instance. `streams` is how many the dialer may have open; `frame_bytes` the longest frame taken from it.
    """

    version: Count
    epoch: Count
    router: Count
    timing: Timing = Timing()
    streams: Count = 1024
    frame_bytes: Count = 16 * MIB


class Ping(Row, frozen=True, kw_only=True):
    nonce: Count


class Pong(Row, frozen=True, kw_only=True):
    """`held_s`: from the ping's arrival to this, so that the asker's round trip is the network's."""

    nonce: Count
    held_s: Seconds = 0.0


class Goodbye(Record, frozen=True, kw_only=True):
    """The sender closes after this. A node that says it did not crash; what it held goes back unblamed."""

    reason: Text = ""


class Drain(Record, frozen=True, kw_only=True):
    """To a node: finish what you hold, take no more, say `Goodbye`. From a node: send me no more, I am leaving.

    Either way passes already sent are run, refused as `draining` where `within_s` would not do."""

    within_s: Seconds = 30.0
    reason: Text = ""
