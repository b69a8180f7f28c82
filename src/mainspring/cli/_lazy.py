"""A click group that imports a command when it is named, and ends every command in one place."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from mainspring.cli._failures import ending


class LazyGroup(click.Group):
    """`commands_at`: name -> "module:attribute", listed in this order."""

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands_at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_at:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.commands_at[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table is ours
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with ending():
            return super().invoke(ctx)
