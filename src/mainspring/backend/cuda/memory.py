"""How many rows a pass may have, and how much may be kept: against what is free once the weights are there.

Rows are counted from the forward: the tensors alive at once in the layer that needs most.
"""

from mainspring.model.config import HybridConfig
from mainspring.ops.attention import tiles
from mainspring.ops.ragged import CHUNK_ROWS

MOST_ROWS = 131_072
LEAST_ROWS = 2_048
SHARE = 0.6
"""Of the free memory, for activations."""
KEPT_SHARE = 0.15
"""For kept views, and for checkpoints of prompts as much; the rest is for slots, graphs and the allocator's slack."""


def bytes_a_row(config: HybridConfig, element: int) -> int:
    """Activations of one row, in bytes, `element` bytes a value of the weights' type."""
    c = config
    d, F = c.hidden_size, c.intermediate_size
    Hv, G, Hq, D = c.linear_num_value_heads, c.num_key_value_heads, c.num_attention_heads, c.head_dim
    stream = 2 * d * element
    delta = element * (2 * c.conv_dim + 4 * c.value_dim + Hv * c.linear_key_head_dim + Hv * CHUNK_ROWS) + 5 * 4 * Hv
    # A branch row's partial sums are fp32, one a split of its view.
    attention = element * (4 * Hq * D + 4 * G * D) + 4 * Hq * D * tiles.MAX_SPLITS
    return stream + max(delta, attention, 3 * F * element) + d * element + c.rotary_dim * 8


def pass_rows(config: HybridConfig, element: int, free_bytes: int) -> int:
    """Rows a pass, at least LEAST_ROWS: less than that fits no device worth the name, and memory may come free."""
    rows = int(SHARE * free_bytes) // bytes_a_row(config, element)
    return max(LEAST_ROWS, min(MOST_ROWS, rows))
