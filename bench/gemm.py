"""Calibration: the fp32 matrix product of torch on this CPU, one thread against two.

(2000 x 512) by (512 x 1536), a linear layer without bias over 2,000 tokens. Its GFLOP/s are what any CPU figure of this
project is to be read against: no pass does arithmetic faster than this, whatever else is wrong with it.
"""

import click
import torch

from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options

TOKENS, INPUTS, OUTPUTS = 2000, 512, 1536


@click.command(help=__doc__)
@click.option("--repeats", type=click.IntRange(1), default=20, show_default=True, help="Products a sample.")
@shared_options
def main(options: Options, publish: Publish, repeats: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, INPUTS, generator=generator)
    weight = torch.randn(OUTPUTS, INPUTS, generator=generator)
    gflop = 2 * TOKENS * INPUTS * OUTPUTS * repeats / 1e9

    def products() -> float:
        with torch.inference_mode():
            for _ in range(repeats):
                torch.nn.functional.linear(x, weight)
        return gflop

    def arm(threads: int) -> Arm:
        return Arm(f"{threads} thread{'s' * (threads > 1)}", products, setup=lambda: torch.set_num_threads(threads))

    publish(measure([arm(1), arm(2)], options, title="GEMM fp32", unit="GFLOP"))


if __name__ == "__main__":
    main()
