"""Results as OpenTelemetry's `gen_ai.evaluation.result` events: names and attributes, no SDK needed.

    for event in evaluation_events(scores):
        span.add_event(event.name, event.attributes)

The names still move in the conventions; they are here and nowhere else.
"""

from collections.abc import Iterable

from msgspec import Struct

from mainspring.client.records import BehaviorScore

EVENT = "gen_ai.evaluation.result"
NAME = "gen_ai.evaluation.name"
VALUE = "gen_ai.evaluation.score.value"
LABEL = "gen_ai.evaluation.score.label"
NOT_OBSERVABLE = "mainspring.evaluation.p_not_observable"
"""Ours: without it a low `VALUE` can't be told from a span that can't tell."""


class EvaluationEvent(Struct, frozen=True):
    name: str
    attributes: dict[str, str | float]


def evaluation_events(scores: Iterable[BehaviorScore]) -> list[EvaluationEvent]:
    """One a behavior, in order: the value is p_present, the label the most probable of the three answers."""
    return [
        EvaluationEvent(
            EVENT,
            {NAME: each.id, VALUE: each.p_present, LABEL: each.label, NOT_OBSERVABLE: each.p_not_observable},
        )
        for each in scores
    ]
