"""`mainspring doctor`: which devices this machine has for a model, and what would run on them."""

from pathlib import Path

import click


@click.command(name="doctor", short_help="Say which device, number type and kernels would be used, and why.")
@click.option("--model", metavar="DIR", type=click.Path(path_type=Path), help="A model folder to check against them.")
def doctor(model: Path | None) -> None:
    """Look at this machine's devices, and at whether a model's shapes have kernels there. Loads no weights.

    What a GPU lacks is said, not failed on: the CPU will do.

    \b
    mainspring doctor
    mainspring doctor --model DIR
    """
    from mainspring.backend.cuda.explain import check, describe
    from mainspring.cli._failures import ending
    from mainspring.errors import DeviceError
    from mainspring.model.config import read_config
    from mainspring.ops.linear import onednn

    with ending():
        config = None if model is None else read_config(model)
        cuda = describe()
        click.echo("cuda (--device cuda)")
        for line in cuda.lines:
            click.echo(f"  {line}")
        usable = cuda.problem is None
        if usable and config is not None:
            try:
                check(config)
                click.echo("  model: every layer has kernels")
            except DeviceError as error:
                usable = False
                click.echo(f"  model: {error}")
        click.echo("cpu (--device cpu)")
        layout = (
            "oneDNN's blocked weights" if onednn.available() else "torch's plain ones: this build has no oneDNN linear"
        )
        click.echo(f"  products: {layout}; threads are measured at start")
        click.echo("  numbers: fp32")
        click.echo(f"best: {'cuda' if usable else 'cpu'}")
