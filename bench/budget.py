"""What every kernel of a CUDA scoring pass must move and compute, and the time that allows at least.

    python bench/budget.py            # the table of ADR 18, for eight requests of 8192 + 8 x 40 at the 0.8B shape

Bytes count each input read once and each output written once; operations are multiply-adds times two. Rates are
measured ones of one H200 (copy, products of these widths) or, for attention and the scan, what a good kernel reaches.
"""

from dataclasses import dataclass
from typing import NamedTuple

import click

from mainspring.model.config import FULL, HybridConfig, parse_config
from shapes import CUDA_SHAPES

COPY, PRODUCT, ATTENTION, SCAN = 4.2e12, 680e12, 450e12, 250e12
PEAK = 790e12
ELEMENT = 2
CHUNK = 64


class Kernel(NamedTuple):
    name: str
    launches: int
    bytes: float
    operations: float
    rate: float

    @property
    def seconds(self) -> float:
        return max(self.bytes / COPY, self.operations / self.rate)


@dataclass(frozen=True)
class Pass:
    """`requests` views of `view` tokens with `branches` branches of `rows` rows; `cached`: the views are kept."""

    requests: int
    view: int
    branches: int
    rows: int = 40
    cached: bool = False

    @property
    def view_rows(self) -> int:
        return 0 if self.cached else self.requests * self.view

    @property
    def branch_rows(self) -> int:
        return self.requests * self.branches * self.rows

    @property
    def tokens(self) -> int:
        """Request tokens: each request's view once plus its branches."""
        return self.requests * (self.view + self.branches * self.rows)

    @property
    def name(self) -> str:
        return f"{self.requests} x ({self.view} + {self.branches} x {self.rows}){' cached' if self.cached else ''}"


def kernels(c: HybridConfig, p: Pass) -> list[Kernel]:
    """All kernels of one pass; the last layer's view rows need keys and values alone."""
    T, Tv, Tb, B = p.view_rows + p.branch_rows, p.view_rows, p.branch_rows, p.requests * p.branches
    full = c.layer_types.count(FULL)
    delta, layers = c.num_layers - full, c.num_layers
    d, F, D, Hq, G = c.hidden_size, c.intermediate_size, c.head_dim, c.num_attention_heads, c.num_key_value_heads
    Hv, dk, dv = c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim
    wide = c.conv_dim + c.value_dim + 2 * Hv
    last = c.layer_types[-1] == FULL
    mixed = full - last  # attention layers with queries for all rows

    def product(name: str, count: int, rows: int, inner: int, out: int) -> Kernel:
        moved = count * ELEMENT * (rows * (inner + out) + inner * out)
        return Kernel(name, count, moved, 2.0 * count * rows * inner * out, PRODUCT)

    def moves(name: str, count: int, values: float) -> Kernel:
        return Kernel(name, count, count * values * ELEMENT, 0.0, PRODUCT)

    chunk_heads = delta * Tv / CHUNK * Hv
    view_pairs = p.requests * p.view * (p.view + 1) / 2 if not p.cached else 0
    branch_pairs = B * p.rows * (p.view + (p.rows + 1) / 2)
    state = dk * dv * 4
    return [
        product("delta in_proj", delta, T, d, wide),
        moves("conv, norms, gates", delta, 2 * T * c.conv_dim),
        Kernel("scan: prepare", delta, chunk_heads * ELEMENT * (CHUNK * (3 * dk + 2 * dv) + CHUNK**2),
               chunk_heads * 2 * (2 * CHUNK**2 * dk + 4 * CHUNK**3 + CHUNK**2 * (dk + dv)), SCAN),
        Kernel("scan: walk", delta, chunk_heads * ELEMENT * (CHUNK * (3 * dk + 2 * dv) + CHUNK**2),
               chunk_heads * 2 * (3 * CHUNK * dk * dv + CHUNK**2 * dv), SCAN),
        Kernel("branches: fork", delta, delta * (Tb * ELEMENT * (c.conv_dim + c.value_dim) + B * Hv * state),
               delta * B * Hv * 2.0 * (4 * CHUNK**2 * dk + 4 * CHUNK**3 + 2 * CHUNK * dk * dv), SCAN),
        moves("gated norm", delta, 3 * T * c.value_dim),
        product("delta out_proj", delta, T, c.value_dim, d),
        product("attention in_proj", mixed, T, d, 2 * Hq * D + 2 * G * D),
        product("last: keys, values", int(last), T, d, 2 * G * D),
        moves("query norm, rotary", mixed, 2 * T * Hq * D),
        moves("key norm, rotary", full, 4 * T * G * D),
        Kernel("attention: views", mixed, mixed * ELEMENT * Tv * (3 * Hq + 2 * G) * D,
               4.0 * mixed * Hq * D * view_pairs, ATTENTION),
        Kernel("attention: branches", mixed, mixed * ELEMENT * (Tb * 3 * Hq * D + p.requests * p.view * 2 * G * D),
               4.0 * mixed * Hq * D * branch_pairs, ATTENTION),
        product("attention out_proj", mixed, T, Hq * D, d),
        moves("residual, norm", 2 * layers - 1, 4 * T * d),
        product("gate_up", layers - last, T, d, 2 * F),
        moves("swiglu", layers - last, 3 * T * F),
        product("down", layers - last, T, F, d),
    ]  # fmt: skip


def ceiling_s(c: HybridConfig, p: Pass) -> float:
    """The card's floor: all operations at peak, or all weights read once, whichever is longer."""
    operations = sum(kernel.operations for kernel in kernels(c, p))
    body = c.num_layers * 3 * c.hidden_size * c.intermediate_size * ELEMENT
    return max(operations / PEAK, body / COPY)


@click.command(help=__doc__)
@click.option("--shape", type=click.Choice(sorted(CUDA_SHAPES)), default="0.8B", show_default=True)
@click.option("--requests", type=int, default=8, show_default=True)
@click.option("--view", type=int, default=8192, show_default=True)
@click.option("--branches", type=int, default=8, show_default=True)
@click.option("--cached", is_flag=True)
def main(shape: str, requests: int, view: int, branches: int, cached: bool) -> None:
    work = Pass(requests, view, branches, cached=cached)
    config = parse_config(CUDA_SHAPES[shape])
    click.echo(f"{shape}, {work.name}\n\n| kernel | launches | GB | TFLOP | ms |\n|---|---:|---:|---:|---:|")
    table = kernels(config, work)
    for k in table:
        click.echo(
            f"| {k.name} | {k.launches} | {k.bytes / 1e9:.2f} | {k.operations / 1e12:.2f} | {k.seconds * 1e3:.2f} |"
        )
    total = sum(k.seconds for k in table)
    click.echo(f"| **all** | {sum(k.launches for k in table)} | {sum(k.bytes for k in table) / 1e9:.1f} "
               f"| {sum(k.operations for k in table) / 1e12:.1f} | **{total * 1e3:.1f}** |")  # fmt: skip
    click.echo(f"\n{work.tokens / total / 1e3:.0f}k request tokens/s; floor {ceiling_s(config, work) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
