"""What a caller may ask about how tokens are chosen, checked. The rule itself is `ops.acceptance`."""

from dataclasses import dataclass
from math import isfinite

from mainspring.errors import InputError
from mainspring.ops.acceptance import Rule

MOST_TEMPERATURE = 100.0
MOST_PENALTY = 2.0
MOST_BIAS, MOST_BIASES = 100.0, 1024


@dataclass(frozen=True)
class Sampling:
    """`temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 leave all tokens in. The same seed gives the same
    text. Penalties as the OpenAI API's; `repetition_penalty` 1 is none. `logit_bias`: (token id, what is added)."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """InputError naming the field and its limits."""
        _within("temperature", self.temperature, 0.0, MOST_TEMPERATURE)
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is above 0 and at most 1, not {self.top_p}", param="top_p")
        _within("min_p", self.min_p, 0.0, 1.0)
        if self.top_k < 0:
            raise InputError(f"top_k is 0 for all tokens, or how many, not {self.top_k}", param="top_k")
        if not 0 <= self.seed < 1 << 64:
            raise InputError(f"seed is 0 or more and below 2**64, not {self.seed}", param="seed")
        _within("frequency_penalty", self.frequency_penalty, -MOST_PENALTY, MOST_PENALTY)
        _within("presence_penalty", self.presence_penalty, -MOST_PENALTY, MOST_PENALTY)
        _within("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if len(self.logit_bias) > MOST_BIASES:
            raise InputError(f"logit_bias has at most {MOST_BIASES} tokens, not {len(self.logit_bias)}",
                             param="logit_bias")  # fmt: skip
        if len({token for token, _ in self.logit_bias}) < len(self.logit_bias):
            raise InputError("logit_bias names a token twice", param="logit_bias")
        for _, value in self.logit_bias:
            _within("logit_bias", value, -MOST_BIAS, MOST_BIAS)

    @property
    def rule(self) -> Rule:
        return Rule(
            self.temperature, self.top_k, self.top_p, self.min_p, self.seed, self.frequency_penalty,
            self.presence_penalty, self.repetition_penalty, self.logit_bias,
        )  # fmt: skip


def _within(name: str, value: float, low: float, high: float) -> None:
    if not (isfinite(value) and low <= value <= high):
        raise InputError(f"{name} is from {low:g} to {high:g}, not {value}", param=name)
