"""`mainspring keys`: the gateway's key file."""

from pathlib import Path

import click

FILE = click.Path(dir_okay=False, path_type=Path)
file_option = click.option("--file", "path", type=FILE, default="keys.toml", show_default=True, help="The key file.")


@click.group(name="keys", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Make API keys for a gateway, list them, take them back. The file holds hashes; a key is shown once.

    \b
    mainspring keys add alice --ceiling standard --rate 20 --daily-tokens 50000000
    mainspring serve --host 0.0.0.0 --keys keys.toml
    """


@command.command()
@click.argument("name")
@file_option
@click.option("--ceiling", default="", help="No class above this one.")
@click.option("--default", "default_class", default="", help="The class of requests that name none.")
@click.option("--rate", default=0.0, type=click.FloatRange(0.0, 1e9), help="Requests a second.  [any]")
@click.option("--concurrent", default=0, type=click.IntRange(0), help="Requests at once.  [the gateway's limit]")
@click.option("--daily-tokens", default=0, type=click.IntRange(0), help="Input tokens a day, UTC.  [any]")
def add(
    name: str, path: Path, ceiling: str, default_class: str, rate: float, concurrent: int, daily_tokens: int
) -> None:  # fmt: skip
    """Make a key for NAME and print it; it can't be shown again. A running gateway takes it up within seconds."""
    import secrets

    import msgspec

    from mainspring.errors import InputError
    from mainspring.gateway.keys import Key, KeyFile, new_key, read_keys, write_keys

    file = read_keys(path) if path.exists() else KeyFile(secrets.token_hex(32))
    if not name or any(key.name == name for key in file.keys):
        raise InputError("a name that no other key has is needed", param="NAME")
    key, digest = new_key()
    made = Key(name, digest, ceiling, default_class, rate, 0.0, concurrent, daily_tokens)
    write_keys(path, msgspec.structs.replace(file, keys=(*file.keys, made)))
    click.echo(key)


@command.command(name="list")
@file_option
def list_keys(path: Path) -> None:
    """Names and limits."""
    from mainspring.gateway.keys import read_keys

    for key in read_keys(path).keys:
        limits = [f"up to {key.ceiling}"] if key.ceiling else []
        limits += [f"{key.rate:g} requests/s"] if key.rate else []
        limits += [f"{key.daily_tokens:,} tokens a day"] if key.daily_tokens else []
        click.echo(f"{key.name}  {', '.join(limits) or 'no limits of its own'}")


@command.command()
@click.argument("name")
@file_option
def revoke(name: str, path: Path) -> None:
    """Take NAME's key back. A running gateway refuses it within seconds."""
    import msgspec

    from mainspring.errors import InputError
    from mainspring.gateway.keys import read_keys, write_keys

    file = read_keys(path)
    left = tuple(key for key in file.keys if key.name != name)
    if len(left) == len(file.keys):
        raise InputError("no key has this name", param="NAME")
    write_keys(path, msgspec.structs.replace(file, keys=left))
    click.echo(f"{name} is taken back")
