"""Prometheus metrics: every name in this file. Label sets are small: routes, statuses, classes, never tenants or ids.

Histograms are observed with cached children, some hundred values at once or when scraped: for each request alone their
code and tables are out of the processor's caches. Counters that `Counts` keeps anyway are read when scraped.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from mainspring.gateway.counts import Counts
from mainspring.gateway.pressure import Pressure

Told = Callable[[], tuple[bool, Mapping[str, int]]]
"""Whether the gateway is ready, and how many nodes are in which state."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
DURATION = "gen_ai_server_request_duration_seconds"
FIRST = "gen_ai_server_time_to_first_token_seconds"
EACH = "gen_ai_server_time_per_output_token_seconds"
EACH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5)
STAGE = "mainspring_stage_seconds"
MAX_CHILDREN = 512
MOST_PENDING = 512
"""Values that wait to be observed."""


class Metrics:
    def __init__(self, counts: Counts, told: Told, pressure: Pressure, kept_bytes: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._duration = Histogram(
            DURATION, "From the headers to the last byte of the answer.", ("operation", "slo_class", "outcome"),
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._stage = Histogram(STAGE, "Parts of it: wait, text, queue, device, fleet.", ("stage",), buckets=SECONDS,
                                registry=self.registry)  # fmt: skip
        self._first = Histogram(
            FIRST, "From submitting a prompt to its first tokens.", ("slo_class",), buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self._each = Histogram(
            EACH, "Mean time between tokens after the first, one observation a reply.", ("slo_class",),
            buckets=EACH_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._stages = {name: self._stage.labels(name) for name in ("wait", "text", "queue", "device", "fleet")}
        self._children: dict[tuple[str, str, str], Histogram] = {}
        self._pending: deque[tuple[Histogram, float]] = deque()
        self.registry.register(_Collector(counts, told, pressure, kept_bytes))

    def finished(self, operation: str, slo: str, outcome: str, seconds: float) -> None:
        """`outcome`: "ok" or the code of the refusal."""
        key = (operation, slo, outcome)
        child = self._children.get(key)
        if child is None:
            if len(self._children) >= MAX_CHILDREN:
                key = (operation, "other", "other")
            child = self._children[key] = self._duration.labels(*key)
        self._later(child, seconds)

    def wrote(self, slo: str, first_s: float, token_s: float | None) -> None:
        """One reply; `token_s` None where it had one token."""
        self._first.labels(slo).observe(first_s)
        if token_s is not None:
            self._each.labels(slo).observe(token_s)

    def stage(self, name: str, seconds: float) -> None:
        self._later(self._stages[name], seconds)

    def text(self) -> bytes:
        """The whole page: run it off the loop."""
        self._observe()
        return generate_latest(self.registry)

    def _later(self, child: Histogram, seconds: float) -> None:
        self._pending.append((child, seconds))
        if len(self._pending) >= MOST_PENDING:
            self._observe()

    def _observe(self) -> None:
        """Each value once, whoever else does this meanwhile."""
        with suppress(IndexError):
            while True:
                child, seconds = self._pending.popleft()
                child.observe(seconds)


class _Collector:
    def __init__(self, counts: Counts, told: Told, pressure: Pressure, kept_bytes: Callable[[], int]) -> None:
        self._counts, self._told, self._pressure, self._kept_bytes = counts, told, pressure, kept_bytes

    def collect(self) -> Iterable[Metric]:
        counts = self._counts
        requests = CounterMetricFamily("mainspring_requests", "Finished requests.", labels=("route", "status"))
        for (route, status), number in list(counts.finished.items()):
            requests.add_metric((route, str(status)), number)
        refused = CounterMetricFamily("mainspring_refusals", "Requests without a result.", labels=("reason",))
        for code, number in list(counts.refused.items()):
            refused.add_metric((code,), number)
        yield requests
        yield refused
        yield CounterMetricFamily("mainspring_input_tokens", "Tokens of scored requests.", value=counts.input_tokens)
        yield CounterMetricFamily(
            "mainspring_cached_tokens", "Of those, not scanned again.", value=counts.cached_tokens
        )
        yield from _written(counts)
        yield GaugeMetricFamily("mainspring_open_requests", "Requests begun and not finished.", value=counts.open)
        pressure = self._pressure
        yield CounterMetricFamily("mainspring_shed", "Refused before their bodies were read.", value=pressure.shed)
        yield GaugeMetricFamily(
            "mainspring_loop_late_seconds", "How late the loop's timers come.", value=pressure.late_s
        )
        yield GaugeMetricFamily("mainspring_texts_waiting", "Texts being turned into tokens.", value=pressure.line)
        yield GaugeMetricFamily("mainspring_kept_turns_bytes", "Of turns that came before.", value=self._kept_bytes())
        ready, states = self._told()
        yield GaugeMetricFamily("mainspring_ready", "1 where /health/ready says so.", value=float(ready))
        nodes = GaugeMetricFamily("mainspring_nodes", "Nodes of the router by their state.", labels=("state",))
        for state, number in states.items():
            nodes.add_metric((state,), number)
        yield nodes


def _written(counts: Counts) -> Iterable[Metric]:
    """Of generated replies. A round emits its bonus token and the drafts that were accepted."""
    for name, text, value in (
        ("replies", "Replies that ended.", counts.replies),
        ("prompt_tokens", "Tokens of their prompts.", counts.prompt_tokens),
        ("prompt_cached_tokens", "Of those, not scanned again.", counts.prompt_cached_tokens),
        ("output_tokens", "Tokens written.", counts.output_tokens),
        ("rounds", "Rounds that wrote them.", counts.rounds),
        ("drafted_tokens", "Tokens that drafters proposed.", counts.drafted_tokens),
        ("accepted_tokens", "Of those, written.", counts.accepted_tokens),
    ):
        yield CounterMetricFamily(f"mainspring_{name}", text, value=value)
    lengths = CounterMetricFamily(
        "mainspring_round_length", "Rounds by the tokens they emitted, bonus included.", labels=("tokens",)
    )
    for length, number in sorted(counts.lengths.items()):
        lengths.add_metric((str(length),), number)
    yield lengths
    yield GaugeMetricFamily("mainspring_streams", "Replies being written.", value=counts.streams)
