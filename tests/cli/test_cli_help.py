"""Help: every command and every option says what it does, and asking for it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from ragmon.cli.main import COMMANDS, main
from tests.support.command_line import environment, ragmon

HEAVY = (
    "pydantic",
    "prometheus_client",
    "grpc",
    "opentelemetry",
    "google.protobuf",
    "rich",
    "jinja2",
    "starlette",
    "msgspec",
)


def commands(group=main, path=()):
    """Every command below a group with the words that call it."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            yield (*path, name), command
            if isinstance(command, click.Group):
                yield from commands(command, (*path, name))


ALL = {" ".join(path): command for path, command in commands()}


def test_every_command_and_every_option_is_described():
    for name, command in ALL.items():
        assert (command.help or "").strip().split("\n")[0].endswith("."), name
        undescribed = [o.opts[0] for o in command.params if isinstance(o, click.Option) and not o.help]
        assert not undescribed, name


def test_exit_codes_are_documented():
    for name, command in ALL.items():
        assert isinstance(command, click.Group) or "Exit code" in command.help, name


def test_the_overview_names_every_command_with_its_purpose():
    done = ragmon("--help")
    assert (done.code, done.err) == (0, "")
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in done.out.split("Commands:\n")[1].splitlines()}
    assert listed == COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["replay", "--help"], ["gate", "-h"], ["gold", "lint", "--help"]])
def test_help_of_a_command_goes_to_stdout(arguments):
    done = ragmon(*arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: ragmon ")


@pytest.mark.slow
def test_the_front_door_is_light():
    """Neither help nor the version nor a mistyped command loads what the commands need."""
    for arguments in [["--help"], ["--version"], ["gatr"], *([*name.split(), "--help"] for name in ALL)]:
        script = (
            "import sys\nfrom ragmon.cli.main import main\n"
            f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
            f"print(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True
        )
        assert done.stderr.splitlines()[-1] == "", arguments


def test_version_names_the_program():
    assert ragmon("--version").out.startswith("ragmon, version ")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["gold"], ["config"]])
def test_without_a_command_the_help_is_shown_and_nothing_was_done(arguments):
    done = ragmon(*arguments)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("Usage: ragmon ")
    assert "Commands:" in done.err
