"""What the router tells about itself, its nodes and its models: what `router status`, dashboards and gateways read."""

from typing import Annotated, Literal

from msgspec import Meta, field

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.wire.records import MIB, Age, Count, Hash, Key, Name, Numerics, Record, Row, Seconds, Text


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
    """`heard_s` since its last byte, `idle_s` since work or a canary last ended well there."""

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


class ClassStatus(Record, frozen=True, kw_only=True):
    """Over the last minute. `refused` by code."""

    name: Name
    priority: int
    target_s: Age | None = None
    p50_s: Age = 0.0
    p99_s: Age = 0.0
    answered: Count = 0
    late: Count = 0
    refused: Annotated[dict[Name, Count], Meta(max_length=64)] = field(default_factory=dict)


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
