"""The command line: data on stdout, log and progress on stderr, and exit codes a script can trust.

0 done or passed, 1 failed, 2 insufficient, 3 bad input, configuration or usage.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from ragmon.errors import RagmonError
from ragmon.version import current

BAD_INPUT: Final = 3

COMMANDS: Final = {
    "config": ("ragmon.cli.config", "The configuration: check it, show it."),
    "demo": ("ragmon.cli.demo", "A real small RAG pipeline, monitored live, with an incident half-way."),
    "gate": ("ragmon.cli.gate", "Judge the gates on trace files."),
    "gold": ("ragmon.cli.gold", "Gold files: judge, count, compare."),
    "replay": ("ragmon.cli.replay", "Score trace files and report."),
}
"""Where each command lives and what it does, so that `--help` loads none of them."""


class _Commands(click.Group):
    """A group that loads a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - what the table above promises
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their one line, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has seen enough is no failure (click would exit with 1)."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            hang_up()
            return 0

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run; every failure becomes one line, a hint and exit code 3."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except RagmonError as error:
            fail(str(error), error.hint)
        except click.exceptions.Abort:
            sys.exit(130)
        except click.ClickException as error:
            fail(error.format_message(), "ragmon --help")
        sys.exit(code if isinstance(code, int) else 0)


def hang_up() -> None:
    """Nobody reads stdout any more (`| head`): what is still to be written goes nowhere, without a complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, hint: str = "") -> None:
    """Say what is wrong on stderr and leave with exit code 3."""
    printable = message.encode("utf-8", "replace").decode("utf-8")
    click.echo(f"error: {printable}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    sys.exit(BAD_INPUT)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(current(), prog_name="ragmon")
def main() -> None:
    """The live quality monitor for RAG: your offline gates, on production traffic."""
