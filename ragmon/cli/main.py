"""The `ragmon` command line: data goes to stdout, log and progress to stderr, and exit codes are reliable for scripts.

0 done or passed, 1 failed, 2 insufficient, 3 bad input, configuration or usage.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from ragmon.core.errors import RagmonError, UnknownNameError, printable_line

BAD_INPUT: Final = 3
INTERRUPTED: Final = 130
"""The exit code shells expect of a program that was stopped with Ctrl-C."""

COMMANDS: Final = {
    "ack": "Acknowledge an alarm: it is silent until it fires again.",
    "baseline": "Freeze what is normal, so that alarms can compare with it.",
    "compare": "Say whether one release is worse than another.",
    "config": "Check ragmon.toml, and show which values are in force.",
    "demo": "Run a small RAG pipeline, monitored live, with an incident.",
    "doctor": "Check the chain from a call to /metrics, link by link.",
    "forget": "Erase a trace, a tag or a user from a server's journal.",
    "gate": "Judge trace files by the gates; the exit code is the verdict.",
    "generate": "Write Prometheus rules or Grafana dashboards.",
    "gold": "Check, count, compare and freeze gold files.",
    "init": "Write ragmon.toml from what traces or a monitor show.",
    "label": "Import labels that people gave, or list answers to label.",
    "probe": "Send gold questions through the live pipeline.",
    "replay": "Score trace files and write a report.",
    "schema": "Print the JSON Schema of traces, gold or reports.",
    "show": "Show one request, and why it fails.",
    "serve": "Run a server that takes OTLP, scores it and shows it.",
    "top": "Show the gates of a running monitor on this terminal.",
    "verify": "Check that every record is accounted for.",
    "view": "Open the pages on a journal, on trace files or on a report.",
    "work": "Count partitions of a Kafka topic, for a server that adds them up.",
    "why": "Say what broke a gate, since when, and what changed.",
}
"""The help line of each command, so that the overview needs none of their declarations."""


class Commands(click.Group):
    """A group that prints its help if the command is missing, and suggests the nearest name if it is mistyped."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; without a command, print the help and exit with 3, because nothing was done."""
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(BAD_INPUT)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by its name."""
        if self.get_command(ctx, args[0]) is None:
            raise UnknownNameError("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class _MainGroup(Commands):
    """The top-level group: imports a command when it is called, turns a failure into a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = "ragmon.demo" if cmd_name == "demo" else "ragmon.cli.commands"
        command = getattr(import_module(module), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - true of every row of COMMANDS
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _closed_pipe_is_success():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipe_is_success():
            return super().invoke(ctx)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        _prepare()
        try:
            code = super().main(*args, **kwargs)
        except RagmonError as error:
            fail(str(error), error.hint)
        except click.exceptions.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            context = error.ctx if isinstance(error, click.UsageError) else None
            fail(error.format_message(), f"{'ragmon' if context is None else context.command_path} --help")
        except OSError as error:
            if error.filename is None:
                discard_stdout()  # at exit Python would write the rest again and end with code 120
            fail(f"{error.filename or 'standard output'}: {error.strerror}", "check space and rights")
        except Exception:  # noqa: BLE001 - Python's own exit code would be 1: a crash must not look like a failed gate
            traceback.print_exc()
            fail("ragmon crashed: this is a bug, here or in a plugin", "report the lines above")
        sys.exit(code if isinstance(code, int) else 0)


def _prepare() -> None:
    """Make stdout UTF-8 whatever the locale, and let plugins be imported from the working directory.

    The working directory comes last on the path, so that no file there replaces an installed module.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    if "" not in sys.path:
        sys.path.append("")


@contextmanager
def _closed_pipe_is_success() -> Iterator[None]:
    """Exit with 0 when the reader closes the pipe (`| head`): that is no failure; click would exit with 1."""
    try:
        yield
    except BrokenPipeError:
        discard_stdout()
        raise click.exceptions.Exit(0) from None


def discard_stdout() -> None:
    """Send the rest of stdout to /dev/null after its reader has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, hint: str = "", code: int = BAD_INPUT) -> NoReturn:
    """Print an error and its hint to stderr, and exit."""
    click.echo(f"error: {printable_line(message)}", err=True)
    if hint:
        click.echo(f"hint: {printable_line(hint)}", err=True)
    sys.exit(code)


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from ragmon.core.process import current_version  # noqa: PLC0415 - no command needs it at once

        click.echo(f"ragmon, version {current_version()}")
        context.exit()


@click.group(cls=_MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """The live quality monitor for RAG: your offline gates, on production traffic."""
