"""Single kernels on one CUDA device at the 0.8B shape, in the variants worth comparing, beside others' where present.

    python bench/kernels_gpu.py scan attention rows

Every variant is checked against the first before it is timed: median of device events over `--repeats` runs.
"""

# ruff: noqa: B023 - every closure runs before its loop goes on

import importlib.util
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.ops import ragged
from mainspring.ops.attention import tiles
from mainspring.ops.attention import triton as attention
from mainspring.ops.delta_inputs import Heads
from mainspring.ops.delta_inputs import triton as delta_inputs
from mainspring.ops.gated_delta import reference as plain_delta
from mainspring.ops.gated_delta import segments
from mainspring.ops.gated_delta import triton as delta
from mainspring.ops.rms_norm import triton as norm
from mainspring.ops.swiglu import triton as swiglu

BF16 = torch.bfloat16
HAS_FLA = importlib.util.find_spec("fla") is not None


def timed(run: Callable[[], object], repeats: int) -> float:
    """Median milliseconds on the device."""
    for _ in range(3):
        run()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in marks:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in marks)[repeats // 2]


def busy(run: Callable[[], object], repeats: int) -> float:
    """Milliseconds of a run's kernels, without what is between them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as record:
        for _ in range(repeats):
            run()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in record.key_averages()) / 1e3 / repeats


def distance(got: Tensor, wanted: Tensor) -> float:
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def draw(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def put(table: Any) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(table), device="cuda")


def attempt(
    name: str, run: Callable[[], Tensor], wanted: Tensor | None, repeats: int, note: str = "", *, kernels: bool = False
) -> Tensor | None:
    """Print a line; a variant that does not compile or fit is said so."""
    try:
        got = run()
        off = "" if wanted is None else f" error {distance(got, wanted):.2e}"
        alone = f", kernels {busy(run, 5):.4f} ms" if kernels else ""
        click.echo(f"  {name:<44}{timed(run, repeats):9.4f} ms{alone}{off} {note}")
    except Exception as error:
        click.echo(f"  {name:<44} {type(error).__name__}: {str(error).splitlines()[0][:90]}")
        return None
    return got


def scan(repeats: int) -> None:
    Hk, Hv, d = 16, 16, 128
    for count, length in ((1, 8192), (4, 2048), (8, 1024), (1, 18000), (8, 8192)):
        T = count * length
        q, k = (F.normalize(torch.randn(T, Hk, d, device="cuda"), dim=-1) for _ in range(2))
        q, k, v = (x.to(BF16).half() for x in (q * d**-0.5, k, draw(T, Hv, d)))  # as the convolution leaves them
        beta, g = torch.rand(T, Hv, device="cuda"), -0.3 * torch.rand(T, Hv, device="cuda")
        chunks, first = ragged.chunk_table([length] * count)
        finals = torch.empty(count, Hv, d, d, device="cuda")
        starts = np.arange(count) * length
        tables = {
            "chunks": put(chunks),
            "spans": put(np.stack([starts, [length] * count, first[:-1]], axis=1).astype(np.int32)),
            "sources": torch.zeros(count, 2, dtype=torch.long, device="cuda"),
            "targets": torch.tensor([[s.data_ptr(), 0] for s in finals], device="cuda"),
        }
        short = 256  # the recurrence takes a launch a token
        wanted, _ = plain_delta.gated_delta(
            *(x[:short].double() for x in (q, k, v, beta, g)), lengths=[short], parents=[-1], initial=None, keep=False
        )
        click.echo(f"scan {count} x {length}")
        if HAS_FLA:
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule

            cu = torch.arange(0, T + 1, length, device="cuda")
            given = [x[None].to(BF16) for x in (q, k, v)]

            def theirs() -> Tensor:
                return chunk_gated_delta_rule(
                    *given, g=g[None], beta=beta[None], scale=1.0,
                    output_final_state=True, cu_seqlens=cu,
                )[0][0, :short]  # fmt: skip

            attempt("flash-linear-attention", theirs, wanted, repeats, kernels=True)
        o = torch.empty_like(v)

        def ours(slices: int | None, cut: Tensor | None = None) -> Callable[[], Tensor]:
            def run() -> Tensor:
                delta.scan(q, k, v, beta, g, o, **tables, slices=slices, segments=cut)
                return o[:short]

            return run

        kept = delta.PREPARE, delta.WALK, delta.WIDE_WALK
        attempt("as shipped", ours(None), wanted, repeats, kernels=True)
        whole, whole_states = o.clone(), finals.clone()
        for rows, most in ((4096, 4), (2048, 4), (1024, 8)):
            segments.MOST_SEGMENTS = most
            table = segments.segment_table(np.full(count, length), rows)
            if len(table) == count:
                continue
            for slices, walk in ((2, (4, 3)), (2, (4, 2)), (1, (8, 3))):
                delta.WALK = delta.WIDE_WALK = delta.Launch(*walk)
                o.fill_(torch.nan)
                finals.fill_(torch.nan)
                name = f"{len(table) // count} segments a view, slices {slices} {walk}"
                if attempt(name, ours(slices, put(table)), wanted, repeats, kernels=True) is not None:
                    click.echo(
                        f"    from whole walks: {distance(o, whole):.1e}, states {distance(finals, whole_states):.1e}"
                    )
        delta.PREPARE, delta.WALK, delta.WIDE_WALK = kept
        segments.MOST_SEGMENTS = 4
        for prepare in ((4, 1), (4, 1, 168), (2, 1), (8, 1)):
            delta.PREPARE = delta.Launch(*prepare)
            attempt(f"prepare {prepare} narrow", ours(2), wanted, repeats)
        delta.PREPARE = kept[0]
        for slices, walk in ((2, (4, 2)), (2, (4, 3)), (2, (4, 4)), (1, (8, 2)), (1, (8, 3))):
            delta.WALK = delta.WIDE_WALK = delta.Launch(*walk)
            attempt(f"walk slices {slices} {walk}", ours(slices), wanted, repeats)
        delta.PREPARE, delta.WALK, delta.WIDE_WALK = kept


def attend(repeats: int) -> None:
    from torch.nn.attention.varlen import varlen_attn

    Hq, G, D = 8, 2, 256
    tilings = [
        attention.Tiling(*t)
        for t in ((128, 64, 8, 2), (128, 64, 8, 3), (128, 32, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3),
                  (64, 32, 4, 3), (64, 128, 4, 2), (64, 64, 8, 2))
    ]  # fmt: skip
    for count, length in ((1, 500), (1, 8192), (8, 2048), (8, 8192)):
        T = count * length
        q, store = draw(T, Hq, D), draw(T, 2, G, D)
        out, gate = torch.empty_like(q), draw(T, Hq, 2 * D)
        operations = 4 * Hq * D * count * length * (length + 1) / 2
        cu = torch.arange(0, T + 1, length, device="cuda", dtype=torch.int32)
        k, v = (store[:, i].repeat_interleave(Hq // G, dim=1) for i in (0, 1))
        click.echo(f"attention {count} x {length}, {operations / 1e12:.2f} TFLOP")
        causal: dict[str, Any] = {"window_size": (-1, 0)}

        def library() -> Tensor:
            return varlen_attn(q, k, v, cu, cu, length, length, **causal)

        wanted = attempt("torch varlen_attn (keys expanded, no gate)", library, None, repeats)
        if wanted is not None:
            wanted = wanted * gate[..., D:].float().sigmoid()
        stores = torch.tensor(
            [[store.data_ptr() + n * length * store.stride(0) * 2, 0] for n in range(count)], device="cuda"
        )
        last = put(np.tile(np.arange(length, dtype=np.int32), count))
        for tiling in tilings:
            items = put(
                tiles.view_items([length] * count, [0] * count, rows=tiling.query_rows(Hq // G), block=tiling.keys)
            )

            def ours() -> Tensor:
                attention.attend(
                    q,
                    out,
                    gate=gate,
                    items=items,
                    last=last,
                    stores=stores,
                    groups=G,
                    tiling=tiling,
                )
                return out

            attempt(str(tuple(tiling)), ours, wanted, repeats)


def asked(repeats: int) -> None:
    """Branch attention: requests x branches of 40 rows on views."""
    Hq, G, D = 8, 2, 256
    for count, length, branches in ((1, 500, 8), (1, 8192, 8), (8, 8192, 8), (1, 18000, 256)):
        T = count * branches * 40
        q, own, store = draw(T, Hq, D), draw(T, 2, G, D), draw(count * length, 2, G, D)
        gate, out = draw(T, Hq, 2 * D), torch.empty_like(q)
        first = np.repeat(np.arange(T // 40) * 40, 40).astype(np.int32)
        last = np.arange(T, dtype=np.int32)
        size = length * store.stride(0) * 2
        stores = torch.tensor([[store.data_ptr() + n * size, 0] for n in range(count)], device="cuda")
        click.echo(f"branch attention {count} x ({length} + {branches} x 40), {4e-12 * Hq * D * T * length:.2f} TFLOP")
        wanted: Tensor | None = None
        for tiling in (
            (64, 64, 4, 2),
            (64, 64, 8, 2),
            (64, 64, 4, 3),
            (64, 32, 4, 3),
            (128, 64, 8, 2),
            (128, 32, 8, 3),
            (32, 64, 4, 2),
        ):
            cut = attention.Tiling(*tiling)
            items, table = tiles.branch_items(
                [branches * 40] * count, [length] * count, first, last, rows=cut.query_rows(Hq // G), block=cut.keys
            )
            args = {"items": put(items), "table": put(table), "first": put(first), "last": put(last)}

            def ours() -> Tensor:
                attention.attend(q, out, gate=gate, own=own, stores=stores, groups=G, tiling=cut, **args)
                return out

            got = attempt(str(tiling), ours, wanted, repeats, f"{len(items) * G} programs")
            wanted = got.clone() if wanted is None and got is not None else wanted


def rows(repeats: int) -> None:
    """Kernels that only move rows: achieved GB/s."""
    T, d, inner = 68_096, 1024, 3584
    heads = Heads(16, 16, 128)

    def show(name: str, run: Callable[[], object], values: float) -> None:
        ms = timed(run, repeats)
        click.echo(f"  {name:<44}{ms:9.4f} ms {2e-6 * T * values / ms:8.0f} GB/s")

    p = draw(T, heads.channels + 2048 + 32)
    taps = put(ragged.tap_table([T], ragged.fresh(1, 3)))
    none = torch.zeros(0, dtype=torch.long, device="cuda")
    conv, a, b = draw(4, heads.channels).T, torch.rand(16, device="cuda"), torch.rand(16, device="cuda")
    for block in (16, 32, 64, 128):
        delta_inputs.MOST_ROWS = block
        show(
            f"conv, norms, gates, {block} rows",
            lambda: delta_inputs.launch(
                p, conv, a, b, heads=heads, taps=taps, tails=taps[:0], history=none, tail_to=none
            ),
            2 * heads.channels,
        )
    h, y, w = draw(T, d), draw(T, d), torch.rand(d, device="cuda")
    show("residual, norm", lambda: norm.add_rms_norm(h, y, w, 1e-6), 4 * d)
    o = draw(T, 16, 128, dtype=torch.float16)
    show("gated norm", lambda: norm.gated_rms_norm(o, p[:, 6144:8192], w[:128], 1e-6), 3 * 2048)
    x = draw(T, 2 * inner)
    for block in (1024, 2048, 4096):
        swiglu.BLOCK = block
        show(f"swiglu, {block}", lambda: swiglu.swiglu(x), 3 * inner)
    show("copy", lambda: x.clone(), 4 * inner)
    weights = {n: draw(n, k) for n, k in ((8224, 1024), (7168, 1024), (1024, 2048), (5120, 1024))}
    for n, weight in weights.items():
        given = draw(T, weight.shape[1])
        ms = timed(lambda: F.linear(given, weight), repeats)
        click.echo(f"  product {n} x {weight.shape[1]:<30}{ms:9.4f} ms {2e-9 * T * weight.numel() / ms:8.0f} TFLOP/s")


@click.command(help=__doc__)
@click.argument("what", nargs=-1, type=click.Choice(["scan", "attention", "branches", "rows"]))
@click.option("--repeats", type=click.IntRange(1), default=20, show_default=True)
@torch.inference_mode()
def main(what: tuple[str, ...], repeats: int) -> None:
    torch.manual_seed(0)
    for name in what:
        {"scan": scan, "attention": attend, "branches": asked, "rows": rows}[name](repeats)


if __name__ == "__main__":
    main()
