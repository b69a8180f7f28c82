"""What a node tells about itself on the control stream: what it is, what it holds, how it fares."""

from typing import Annotated, Literal

from msgspec import Meta, field

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits
from mainspring.wire.generation import Written
from mainspring.wire.records import (
    KIB,
    MIB,
    Age,
    Count,
    Hash,
    HeldKeys,
    Key,
    Name,
    Numerics,
    Record,
    Row,
    Seconds,
    Text,
)


class Offer(Record, frozen=True, kw_only=True):
    """What a node is: sent after `Welcome`, and again when a declared fact changed. The router then fetches the bundle
    if it lacks it, and lets work come; or answers `Declined`.

    `model` is the model key (hash of weights and bundle), `alias` its name for people. `bundle` is the bundle's own
    hash, `bundle_sha256` that of the packed bytes of `bundle_bytes` length. `provisional`: constants of a first quick
    probe. `anchors` are measured passes: (view tokens, rows, attention pairs, seconds).
    """

    cap = 64 * KIB
    model: Hash
    alias: Name
    bundle: Hash
    bundle_bytes: Annotated[int, Meta(ge=1, le=64 * MIB)]
    bundle_sha256: Hash
    numerics: Numerics
    cost: Cost
    limits: Limits
    round_cost: RoundCost | None = None
    anchors: Annotated[tuple[tuple[Count, Count, Count, Seconds], ...], Meta(max_length=256)] = ()
    provisional: bool = False
    device: Text = ""
    device_key: Key = ""
    idle_neighbour: Annotated[float, Meta(ge=1.0, le=100.0)] = 1.0
    busy_neighbour: Annotated[float, Meta(ge=1.0, le=100.0)] = 1.0
    labels: Annotated[dict[Key, Key], Meta(max_length=32)] = field(default_factory=dict)


class Declined(Record, frozen=True, kw_only=True):
    """Router -> node: the offer can't be used. The link stays; the node may offer again."""

    code: Name
    message: Text


class NodeReport(Record, frozen=True, kw_only=True):
    """Node -> router, when something changed and at least every `idle_s`. Only what changed is set.

    `gained` and `dropped` are the checkpoint keys since the last report or `Done`, in this order: gained first. The
    first report after a `Welcome` has `fresh` set and lists all. Health: `idle_s` since a pass, round or canary last
    ended well; `state` `failing` when the last ones did not. `memory_bytes` of `memory_total_bytes` is what the device
    (on a CPU, the process) holds, `temperature_c` the device's: None where nothing tells. A count there was always 0
    before that, and was left out. `written` is told where the node generates.
    """

    cap = 1 * MIB
    fresh: bool = False
    gained: HeldKeys = ()
    dropped: Annotated[tuple[Key, ...], Meta(max_length=4096)] = ()
    cost: Cost | None = None
    round_cost: RoundCost | None = None
    anchors: Annotated[tuple[tuple[Count, Count, Count, Seconds], ...], Meta(max_length=256)] = ()
    limits: Limits | None = None
    provisional: bool | None = None
    state: Literal["starting", "ready", "busy", "draining", "failing"] = "ready"
    idle_s: Age = 0.0
    waiting: Count = 0
    running: bool = False
    slots_used: Count = 0
    cache_bytes: Count = 0
    memory_bytes: Count | None = None
    passes: Count = 0
    failures: Count = 0
    temperature_c: Annotated[float, Meta(ge=-273.15, le=1000.0)] | None = None
    note: Text = ""
    memory_total_bytes: Count | None = None
    written: Written | None = None


class Release(Row, frozen=True, kw_only=True):
    """Router -> node, control stream: the request is settled; what a half-scanned view of it left may go."""

    request: Name
