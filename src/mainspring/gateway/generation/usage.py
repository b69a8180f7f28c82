"""What a request took, in the words of each surface. Counts end with the same token as the text does."""

from collections.abc import Sequence
from typing import Any

from mainspring.gateway.generation.choice import Tally


def openai_usage(prompt_tokens: int, tallies: Sequence[Tally], choices: int = 1) -> dict[str, Any]:
    """`accepted` and `rejected` are drafters' tokens. Of the rounds that wrote all this: `acceptance_length` is the
    mean of tokens a round, its bonus token included; `histogram` the rounds by their tokens."""
    written = sum(tally.tokens for tally in tallies)
    rounds = sum(tally.rounds for tally in tallies)
    drafted, accepted = sum(tally.drafted for tally in tallies), sum(tally.accepted for tally in tallies)
    histogram: dict[str, int] = {}
    for tally in tallies:
        for length, number in enumerate(tally.histogram, 1):
            if number:
                histogram[str(length)] = histogram.get(str(length), 0) + number
    # A prompt of several choices is counted once, and cached as far as it was for the one that had least of it.
    cached = sum(min(tally.cached for tally in tallies[at : at + choices]) for at in range(0, len(tallies), choices))
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": written,
        "total_tokens": prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": max(0, drafted - accepted),
        },
        "rounds": rounds,
        "acceptance_length": written / rounds if rounds else None,
        "acceptance_histogram": histogram,
    }


def anthropic_usage(prompt_tokens: int, tally: Tally) -> dict[str, int]:
    """Cached tokens are apart from `input_tokens`."""
    cached = min(tally.cached, prompt_tokens)
    return {
        "input_tokens": prompt_tokens - cached,
        "output_tokens": tally.tokens,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }
