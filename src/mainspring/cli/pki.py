"""`mainspring pki`: the fleet's certificate authority in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mainspring.wire.records import Role
    from mainspring.wire.transport import Identity

ROLES = ("node", "client", "router")
folder_option = click.option(
    "--dir", "folder", default="pki", show_default=True, type=click.Path(file_okay=False, path_type=Path),
    help="The authority's folder.",
)  # fmt: skip


@click.group(name="pki", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Make the fleet's certificates, take them back, list them.

    \b
    mainspring pki init
    mainspring pki issue router hill --host router.example.org
    mainspring pki issue node ant         then copy pki/node-ant to that node
    mainspring pki issue client gate-1 --realm gates
    mainspring pki revoke node ant
    mainspring pki show
    """


@command.command()
@folder_option
@click.option("--fleet", default="fleet", show_default=True, help="Stands in every certificate; fleets don't mix.")
def init(folder: Path, fleet: str) -> None:
    """Make an authority. Keep its folder on the machine that issues, and a copy of it elsewhere."""
    import time

    from mainspring.wire.pki_files import PkiFolder

    made = PkiFolder.create(folder, fleet, time.time())
    click.echo(f"{folder}/ca.pem: authority of {made.authority.fleet!r} until {_utc(made.authority.ends_s)}")
    click.echo(f"{folder}/ca.key makes anybody a member of the fleet: it stays here")


@command.command()
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name")
@folder_option
@click.option("--host", "hosts", multiple=True, help="Name or address a router is dialled by; may be given again.")
@click.option("--days", type=click.FloatRange(0.01, 825), help="Lifetime; 90 unless given.")
@click.option("--realm", help="Clients that share named views: all gateways of a fleet. As before when renewing.")
def issue(role: "Role", name: str, folder: Path, hosts: tuple[str, ...], days: float | None, realm: str | None) -> None:
    """A certificate and a key for one holder, in a folder of its own. Again for the same name: renews it."""
    import time

    from mainspring.wire.pki import LEAF_DAYS
    from mainspring.wire.pki_files import PkiFolder

    made = PkiFolder(folder).issue(role, name, time.time(), hosts=hosts, days=days or LEAF_DAYS, realm=realm)
    click.echo(str(made))


@command.command()
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name")
@folder_option
def revoke(role: "Role", name: str, folder: Path) -> None:
    """Take back every certificate of a holder. Routers that read this list end its links within a minute."""
    import time

    from mainspring.wire.pki_files import PkiFolder

    opened = PkiFolder(folder)
    for each in opened.revoke(role, name, time.time()):
        click.echo(f"revoked {each.serial}")
    click.echo(f"routers elsewhere need the new {opened.revoked_path}", err=True)


@command.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show(folder: Path, as_json: bool) -> None:
    """Every certificate issued: role, name, state, end, serial number, realm."""
    import json
    import time

    from mainspring.wire.pki_files import PkiFolder

    opened, now_s = PkiFolder(folder), time.time()
    revoked = opened.revoked()
    for each in opened.issued():
        fields = {
            "role": each.role,
            "name": each.name,
            "state": _state(each, revoked, now_s),
            "until": _utc(each.not_after_s),
            "serial": each.serial,
            "realm": each.realm,
        }
        line = "{role:7} {name:24} {state:8} {until}  {serial} {realm}".format(**fields).rstrip()
        click.echo(json.dumps(fields) if as_json else line)


def _state(each: "Identity", revoked: frozenset[str], now_s: float) -> str:
    return "revoked" if each.serial in revoked else "expired" if each.not_after_s <= now_s else "valid"


def _utc(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
