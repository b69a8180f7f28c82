"""What the router tells about itself, its nodes and its models: what `router status`, dashboards and gateways read."""

from typing import Annotated, Literal

from msgspec import Meta, field

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits
from mainspring.wire.generation import Written
from mainspring.wire.records import MIB, Age, Count, Hash, Key, Name, Numerics, Record, Row, Seconds, Text

TEXT_CHARS = 160
"""Of a node's device, address and note."""


class AskStatus(Record, frozen=True, kw_only=True):
    """Ask again for newer; once a second costs nothing. `passes`: how many of the last ones to list."""

    passes: Annotated[int, Meta(ge=0, le=1000)] = 0


class ModelStatus(Record, frozen=True, kw_only=True):
    """What a client needs to serve a model: which bundle to fetch, and what a request may be."""

    model: Hash
    aliases: Annotated[tuple[Name, ...], Meta(max_length=64)]
    bundle: Hash
    limits: Limits
    numerics: Annotated[tuple[Numerics, ...], Meta(max_length=4)] = ()
    nodes: Count = 0
    usable: Count = 0
    queued: Count = 0


class NodeStatus(Record, frozen=True, kw_only=True):
    """`heard_s` since its last byte, `idle_s` since work or a canary last ended well there, `report_s` since its last
    report (None: none yet), from which `waiting`, `cache_bytes`, memory, temperature and `note` are.

    `held` passes are there by the router's book, `waiting` of them not begun by the node's. `cost` is the curve in use
    (declared, then learnt), `declared` what the node measured itself; `predicted_error` the median of
    |measured / predicted - 1| over its last `error_passes`. `written`: what it has generated, None where it does not.
    Memory and temperature are None where the device does not
    know.
    """

    name: Name
    model: Hash
    epoch: Count
    state: Literal["starting", "ready", "busy", "draining", "failing", "late", "gone"]
    numerics: Numerics
    cost: Cost
    heard_s: Age
    idle_s: Age
    device: Text = ""
    address: Text = ""
    transport: Key = ""
    round_trip_s: Seconds = 0.0
    held: Count = 0
    keys: Count = 0
    slots_used: Count = 0
    slots: Count = 0
    passes: Count = 0
    failures: Count = 0
    busy_share: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    predicted_error: float = 0.0
    provisional: bool = False
    note: Text = ""
    alias: Key = ""
    waiting: Count = 0
    cache_bytes: Count = 0
    memory_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    temperature_c: Annotated[float, Meta(ge=-273.15, le=1000.0)] | None = None
    report_s: Age | None = None
    declared: Cost | None = None
    round_cost: RoundCost | None = None
    error_passes: Count = 0
    written: Written | None = None


class ClassStatus(Record, frozen=True, kw_only=True):
    """Over `Status.window_s`; `refused` by code. `open` requests have no answer yet, `queued` of them wait for a node
    at least in part. `late`: answered beyond the target or deadline.

    Times of a score are from arrival to answer, of a generation to its first token. `first_*` are of generations alone,
    `gap_*` their mean time per token after the first, of `streams` that ended and had `tokens`."""

    name: Name
    priority: int
    target_s: Age | None = None
    p50_s: Age = 0.0
    p99_s: Age = 0.0
    answered: Count = 0
    late: Count = 0
    refused: Annotated[dict[Name, Count], Meta(max_length=64)] = field(default_factory=dict)
    open: Count = 0
    queued: Count = 0
    streams: Count = 0
    tokens: Count = 0
    first_p50_s: Age = 0.0
    first_p99_s: Age = 0.0
    gap_p50_s: Age = 0.0
    gap_p99_s: Age = 0.0
    token_s: Age | None = None


class Totals(Record, frozen=True, kw_only=True):
    """Over everything: what is open and queued now, and what came of requests since the router began.

    submitted = answered + refused + open; `late` of the answered. `passes` and `pass_tokens` (rows scanned or asked)
    ended well within `Status.window_s`, at most the last 1,000 of them. `streams` are open now; `written` is what nodes
    that are here have generated, `tokens_s` tokens a second of late."""

    open: Count = 0
    queued: Count = 0
    submitted: Count = 0
    answered: Count = 0
    late: Count = 0
    refused: Annotated[dict[Name, Count], Meta(max_length=64)] = field(default_factory=dict)
    passes: Count = 0
    pass_tokens: Count = 0
    nodes: Count = 0
    usable: Count = 0
    streams: Count = 0
    tokens_s: Annotated[float, Meta(ge=0.0)] = 0.0
    written: Written | None = None


class PassStatus(Row, frozen=True, kw_only=True):
    """One finished pass: `ago_s` since its end."""

    node: Name
    pass_id: Count
    ago_s: Age
    predicted_s: Seconds
    measured_s: Seconds
    parts: Count
    tokens: Count


class Status(Record, frozen=True, kw_only=True):
    """Fits one frame, whatever the fleet's size: texts are cut to `TEXT_CHARS`, and what there is no room for is left
    out and counted in `omitted`, by the name of the field. `window_s`: the time that classes and passes tell of, a
    minute or, in a flood, what could be kept. `fault`: the router could not tell, and this is all it says."""

    cap = 4 * MIB
    router: Count
    up_s: Age
    version: Key
    draining: bool = False
    models: Annotated[tuple[ModelStatus, ...], Meta(max_length=256)] = ()
    nodes: Annotated[tuple[NodeStatus, ...], Meta(max_length=1024)] = ()
    classes: Annotated[tuple[ClassStatus, ...], Meta(max_length=64)] = ()
    passes: Annotated[tuple[PassStatus, ...], Meta(max_length=1000)] = ()
    counters: Annotated[dict[Name, float], Meta(max_length=256)] = field(default_factory=dict)
    payload_bytes: Count = 0
    clients: Count = 0
    totals: Totals = Totals()
    window_s: Seconds = 60.0
    payload_cap_bytes: Count = 0
    omitted: Annotated[dict[Name, Count], Meta(max_length=8)] = field(default_factory=dict)
    fault: Text = ""
