"""The JSON of `/status` and of every `snapshot` event: the gateway's own facts and the router's `Status`, in units that
people read (ms, us, shares). Pure: what is asked and when is `feed`'s.

Fields are only ever added. Nothing here comes from a request's text.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mainspring.wire import messages as m

if TYPE_CHECKING:
    from mainspring.gateway.service import Gateway

PASSES = 200
"""Of the last passes, how many are listed: more than end in a second."""
WINDOW_S = 60.0
UNHEARD_S = 5.0
"""A router that said nothing for so long is not reachable: it is asked once a second."""


class GatewayFacts(Struct, frozen=True, kw_only=True):
    """Of this process since start. `requests`: begun, by status ("2xx" ...), and `open` now. `refused` by reason.
    `keys`: whether requests need one."""

    version: str
    uptime_s: float
    draining: bool
    ready: bool
    why: str
    default_model: str
    default_class: str
    keys: bool
    requests: dict[str, int]
    refused: dict[str, int]


class RouterFacts(Struct, frozen=True, kw_only=True):
    """`age_s` since the router said all this. Not `reachable`: never heard, or not for five seconds."""

    reachable: bool
    age_s: float = 0.0
    version: str = ""
    up_s: float = 0.0
    draining: bool = False
    clients: int = 0
    payload_bytes: int = 0
    counters: dict[str, float] = field(default_factory=dict)


class CostFacts(Struct, frozen=True):
    """A pass takes `fixed_ms + view_token_us * view + row_us * rows + pair_ns * attention pairs`."""

    fixed_ms: float
    view_token_us: float
    row_us: float
    pair_ns: float


class NodeFacts(Struct, frozen=True, kw_only=True):
    name: str
    model: str
    state: str
    provisional: bool
    numerics: str
    device: str
    address: str
    transport: str
    round_trip_ms: float
    heard_s: float
    idle_s: float
    held: int
    keys: int
    slots: int
    slots_used: int
    passes: int
    failures: int
    busy_share: float
    predicted_error: float
    note: str
    cost: CostFacts
    acceptance_length: float | None = None


class ModelFacts(Struct, frozen=True, kw_only=True):
    name: str
    key: str
    aliases: tuple[str, ...]
    numerics: tuple[str, ...]
    nodes: int
    usable: int
    queued: int
    view_tokens: int
    pass_tokens: int


class ClassFacts(Struct, frozen=True, kw_only=True):
    """Over the last minute, as the router saw it. `first_*`: to a stream's first token, `gap_*` between its others, of
    `streams` that ended."""

    name: str
    priority: int
    target_ms: float | None
    p50_ms: float
    p99_ms: float
    answered: int
    late: int
    refused: dict[str, int]
    streams: int = 0
    first_p50_ms: float = 0.0
    first_p99_ms: float = 0.0
    gap_p50_ms: float = 0.0
    gap_p99_ms: float = 0.0
    gap_target_ms: float | None = None


class WrittenFacts(Struct, frozen=True, kw_only=True):
    """Of all nodes that generate, since they started, but for `streams` and `slots`, which are open and there now, and
    `tokens_s`, of late. `acceptance_length`: tokens a stream got a round, the bonus token included; `accepted_share` of
    drafted tokens; `cached_share` of prompt tokens; `histogram[i]`: rounds that gave a stream i + 1."""

    streams: int
    slots: int
    tokens_s: float
    tokens: int = 0
    rounds: int = 0
    acceptance_length: float | None = None
    accepted_share: float | None = None
    cached_share: float | None = None
    failed: int = 0
    histogram: tuple[int, ...] = ()


class PassFacts(Struct, frozen=True, kw_only=True):
    node: str
    id: int
    ago_s: float
    predicted_ms: float
    measured_ms: float
    parts: int
    tokens: int


class ErrorFacts(Struct, frozen=True):
    """|measured / predicted - 1| over the passes of the last minute: None where there were none."""

    median: float | None
    p90: float | None
    passes: int


class Rates(Struct, frozen=True, kw_only=True):
    """Per second since the look before; None across a restart of the router or a gap."""

    ago_s: float
    answered: float | None
    refused: float | None
    failed: float | None
    tokens: float | None
    open: int


class Snapshot(Struct, frozen=True, kw_only=True):
    gateway: GatewayFacts
    router: RouterFacts
    nodes: tuple[NodeFacts, ...] = ()
    models: tuple[ModelFacts, ...] = ()
    classes: tuple[ClassFacts, ...] = ()
    queues: dict[str, int] = field(default_factory=dict)
    passes: tuple[PassFacts, ...] = ()
    prediction_error: ErrorFacts = ErrorFacts(None, None, 0)
    rates: Rates | None = None
    written: WrittenFacts | None = None


def gateway_facts(gateway: "Gateway") -> GatewayFacts:
    ready, why = gateway.ready()
    counts, config = gateway.counts, gateway.config
    requests = {"open": counts.open, "begun": counts.begun}
    for (_route, status), count in counts.finished.items():
        name = f"{status // 100}xx"
        requests[name] = requests.get(name, 0) + count
    return GatewayFacts(
        version=gateway.version, uptime_s=counts.up_s(gateway.now_s()), draining=gateway.closing.is_set(), ready=ready,
        why="" if ready else why, default_model=config.default_model, default_class=config.default_class,
        keys=gateway.keys.required, requests=requests, refused=dict(counts.refused),
    )  # fmt: skip


def snapshot_of(gateway: GatewayFacts, status: m.Status | None, *, age_s: float, rates: Rates | None) -> Snapshot:
    """`status` is the last that was heard, `age_s` ago."""
    if status is None:
        return Snapshot(gateway=gateway, router=RouterFacts(reachable=False))
    models = tuple(model_facts(each) for each in status.models)
    names = {each.key: each.name for each in models}
    return Snapshot(
        gateway=gateway,
        router=RouterFacts(
            reachable=age_s < UNHEARD_S, age_s=age_s, version=status.version, up_s=status.up_s,
            draining=status.draining, clients=status.clients, payload_bytes=status.payload_bytes,
            counters=status.counters,
        ),
        nodes=tuple(node_facts(each, names.get(each.model, each.model[:12])) for each in status.nodes),
        models=models,
        classes=tuple(class_facts(each) for each in status.classes),
        queues={each.name: each.queued for each in models},
        passes=tuple(pass_facts(each, age_s) for each in status.passes[-PASSES:]),
        prediction_error=error_of([each for each in status.passes if each.ago_s <= WINDOW_S]),
        rates=rates, written=written_facts(status),
    )  # fmt: skip


def model_facts(each: m.ModelStatus) -> ModelFacts:
    return ModelFacts(
        name=each.aliases[0] if each.aliases else each.model[:12], key=each.model, aliases=each.aliases,
        numerics=each.numerics, nodes=each.nodes, usable=each.usable, queued=each.queued,
        view_tokens=each.limits.view_tokens, pass_tokens=each.limits.pass_tokens,
    )  # fmt: skip


def node_facts(each: m.NodeStatus, model: str) -> NodeFacts:
    cost = CostFacts(1e3 * each.cost.c0, 1e6 * each.cost.c1, 1e6 * each.cost.c2, 1e9 * each.cost.c3)
    return NodeFacts(
        name=each.name, model=model, state=each.state, provisional=each.provisional, numerics=each.numerics,
        device=each.device, address=each.address, transport=each.transport, round_trip_ms=1e3 * each.round_trip_s,
        heard_s=each.heard_s, idle_s=each.idle_s, held=each.held, keys=each.keys, slots=each.slots,
        slots_used=each.slots_used, passes=each.passes, failures=each.failures, busy_share=each.busy_share,
        predicted_error=each.predicted_error, note=each.note, cost=cost,
        acceptance_length=None if each.written is None else length_of(each.written),
    )  # fmt: skip


def class_facts(each: m.ClassStatus) -> ClassFacts:
    return ClassFacts(
        name=each.name, priority=each.priority, target_ms=None if each.target_s is None else 1e3 * each.target_s,
        p50_ms=1e3 * each.p50_s, p99_ms=1e3 * each.p99_s, answered=each.answered, late=each.late, refused=each.refused,
        streams=each.streams, first_p50_ms=1e3 * each.first_p50_s, first_p99_ms=1e3 * each.first_p99_s,
        gap_p50_ms=1e3 * each.gap_p50_s, gap_p99_ms=1e3 * each.gap_p99_s,
        gap_target_ms=None if each.token_s is None else 1e3 * each.token_s,
    )  # fmt: skip


def written_facts(status: m.Status) -> WrittenFacts | None:
    """None where no node has slots."""
    slots = sum(each.slots for each in status.nodes)
    if not slots:
        return None
    totals, wrote = status.totals, status.totals.written or m.Written()
    return WrittenFacts(
        streams=sum(each.slots_used for each in status.nodes), slots=slots, tokens_s=totals.tokens_s,
        tokens=wrote.tokens, rounds=wrote.rounds, acceptance_length=length_of(wrote),
        accepted_share=_share(wrote.accepted, wrote.drafted), failed=wrote.failed,
        cached_share=_share(wrote.cached, wrote.cached + wrote.prefilled), histogram=wrote.histogram,
    )  # fmt: skip


def length_of(wrote: m.Written) -> float | None:
    """Tokens a stream got a round."""
    return _share(wrote.tokens, wrote.slot_rounds)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def pass_facts(each: m.PassStatus, age_s: float) -> PassFacts:
    return PassFacts(
        node=each.node, id=each.pass_id, ago_s=each.ago_s + age_s, predicted_ms=1e3 * each.predicted_s,
        measured_ms=1e3 * each.measured_s, parts=each.parts, tokens=each.tokens,
    )  # fmt: skip


def error_of(passes: Sequence[m.PassStatus]) -> ErrorFacts:
    errors = sorted(abs(each.measured_s / each.predicted_s - 1.0) for each in passes if each.predicted_s > 0.0)
    if not errors:
        return ErrorFacts(None, None, 0)
    return ErrorFacts(errors[len(errors) // 2], errors[min(len(errors) - 1, (len(errors) * 9) // 10)], len(errors))
