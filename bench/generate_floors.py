"""What steps of generation on a CUDA device have to move, and what they are predicted to take: arithmetic alone.

Bytes count each input once: weights, states read and written, keys and values; at COPY bytes a second.
"""

from typing import NamedTuple

from mainspring.model.config import FULL, HybridConfig, parse_config
from shapes import CUDA_SHAPES

COPY = 4.2e12
LAUNCH_S = 2.2e-6
"""Of a dependent kernel within a graph, beside its bytes: an assumption until measured."""
STATE, ELEMENT = 4, 2


class Case(NamedTuple):
    """`slots` with `rows` each at `context` tokens; `bounds` in milliseconds, others' for comparison."""

    name: str
    shape: str
    slots: int
    rows: int
    context: int
    bounds: str = "-"
    others: str = "-"

    @property
    def title(self) -> str:
        return f"{self.shape}, {self.slots} x {self.rows} row{'s' * (self.rows > 1)} at {self.context:,}"


CASES = (
    Case("0.8B-1x1", "0.8B", 1, 1, 1024, "1.2 / 0.8", "library ops in a graph 1.44, vLLM 2.50"),
    Case("0.8B-32x1", "0.8B", 32, 1, 1024, "1.8 / 1.3", "library ops in a graph 2.17, vLLM 3.61"),
    Case("0.8B-1x8", "0.8B", 1, 8, 8192, "1.5 / 0.9", "library ops in a graph 4.4"),
    Case("4B-1x8", "4B", 1, 8, 8192, "3.2 / 2.6", "library ops in a graph 8.7"),
    Case("4B-1x1", "4B", 1, 1, 8192),
)


def config(shape: str) -> HybridConfig:
    return parse_config(CUDA_SHAPES[shape])


def parameters(c: HybridConfig) -> int:
    """Read by a step: the body's matrices and the head."""
    d, F, D, Hq, G = c.hidden_size, c.intermediate_size, c.head_dim, c.num_attention_heads, c.num_key_value_heads
    full = c.layer_types.count(FULL)
    delta = c.num_layers - full
    mixed = d * (c.conv_dim + c.value_dim + 2 * c.linear_num_value_heads) + c.value_dim * d
    attending = d * (2 * Hq * D + 2 * G * D) + Hq * D * d
    return delta * mixed + full * attending + c.num_layers * 3 * d * F + c.vocab_size * d


def step_bytes(c: HybridConfig, slots: int, context: int) -> float:
    full = c.layer_types.count(FULL)
    state = (c.num_layers - full) * c.linear_num_value_heads * c.linear_key_head_dim * c.linear_value_head_dim * STATE
    keys = full * 2 * c.num_key_value_heads * c.head_dim * ELEMENT * context
    return parameters(c) * ELEMENT + slots * (2 * state + keys)


def launches(c: HybridConfig) -> int:
    """Of a step without a drafting head: seven a gated-delta layer, eight an attention layer; embedding, plan (two
    fills), three of rotary angles, last norm, head, choice (two), request, walk (a fill), outcome."""
    full = c.layer_types.count(FULL)
    return 7 * (c.num_layers - full) + 8 * full + 14


def predicted(c: HybridConfig, slots: int, context: int) -> float:
    return step_bytes(c, slots, context) / COPY + launches(c) * LAUNCH_S


def floors() -> str:
    lines = [
        "| step | GB | floor ms | launches | predicted ms | must / aim | others |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for case in CASES:
        c = config(case.shape)
        moved = step_bytes(c, case.slots, case.context)
        lines.append(
            f"| {case.title} | {moved / 1e9:.2f} "
            f"| {moved / COPY * 1e3:.2f} | {launches(c)} | {predicted(c, case.slots, case.context) * 1e3:.2f} "
            f"| {case.bounds} | {case.others} |"
        )
    return "\n".join(lines)
