"""Choosing tokens from logits, and which drafts stand: one rule for every device.

A row's logits become a distribution p over token ids: bias and penalties, temperature, top-k by (logit falling, id
rising), top-p over the weights that top-k left, renormalised, min-p against the likeliest; at least one id stays. All
in float64. A token is drawn as the first id, in rising order, whose cumulative weight exceeds u times the sum. Greedy
(temperature 0) takes the lowest id among the largest.

A draft without chance of its own stands iff it is the token this position's own draw gives, which is accepted with
probability p(draft) and leaves p without it otherwise: what `u q(draft) < p(draft)` and the residual max(0, p - q) do
where q is one point. A draft drawn from a q goes through the latter (Leviathan et al. 2023).

Chance is counter-based (Philox 4x32-10, Salmon et al. 2011): a uniform a (seed, index of the token in the reply, lane),
so it depends on no other request, on no block length and on no device.
"""

from dataclasses import dataclass

DRAW, ACCEPT, RESIDUAL = 0, 1, 2
"""Lanes of chance."""

_M0, _M1, _W0, _W1, _32 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF


@dataclass(frozen=True)
class Rule:
    """How one stream's tokens are chosen. Penalties as OpenAI's: `frequency` times the count in the reply, `presence`
    once; `repetition` divides positive logits (multiplies others) of ids in prompt or reply. `bias` is added first."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Logits are used as they are."""
        return not self.bias and self.frequency == self.presence == 0.0 and self.repetition == 1.0


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words, ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _32, (p0 >> 32) ^ c3 ^ k1, p0 & _32
        k0, k1 = (k0 + _W0) & _32, (k1 + _W1) & _32
    return c0, c1, c2, c3


def uniform(seed: int, index: int, lane: int = DRAW) -> float:
    """In [0, 1), 53 bits, of seed (64 bits) and the token's index in the reply."""
    high, low, _, _ = philox((index & _32, index >> 32, lane, 0), (seed & _32, (seed >> 32) & _32))
    return ((high << 21) | (low >> 11)) * 2.0**-53
