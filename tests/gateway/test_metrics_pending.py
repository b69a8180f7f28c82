"""Values wait to be observed: none is lost or counted twice, and not many wait."""

from collections import Counter

from mainspring.gateway.counts import Counts
from mainspring.gateway.metrics import MOST_PENDING, STAGE, Metrics
from mainspring.gateway.pressure import Pressure


def made() -> Metrics:
    return Metrics(Counts(0.0), lambda: (True, Counter()), Pressure(0.05, 0.25), lambda: 0)


def line(metrics: Metrics, name: str) -> float:
    (found,) = [each for each in metrics.text().decode().splitlines() if each.startswith(name + " ")]
    return float(found.split()[-1])


def test_each_value_is_on_the_page_once() -> None:
    metrics = made()
    for number in range(3 * MOST_PENDING + 7):
        metrics.stage("text", 0.5)
        if number == MOST_PENDING + 3:
            metrics.text()
    count, total = 3 * MOST_PENDING + 7, 0.5 * (3 * MOST_PENDING + 7)
    for _ in range(2):
        assert line(metrics, STAGE + '_count{stage="text"}') == count
        assert line(metrics, STAGE + '_sum{stage="text"}') == total


def test_few_wait() -> None:
    metrics = made()
    for _ in range(5 * MOST_PENDING):
        metrics.finished("score", "standard", "ok", 0.01)
        assert len(metrics._pending) < MOST_PENDING
