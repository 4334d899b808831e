"""`ragmon generate rules` and `tests`: what Prometheus needs, from the thresholds that judge CI and live traffic."""

from __future__ import annotations

from pathlib import Path

import click

from ragmon.cli.generated import compare
from ragmon.cli.runs import config_option, output_option, write
from ragmon.config.load import load
from ragmon.export.rules import every_case, render, render_tests, rule_groups
from ragmon.export.rules.file import Form

_check = click.option("--check", is_flag=True, help="Write nothing: say whether --output is what would be written.")


@click.command("rules")
@config_option
@output_option
@_check
@click.option(
    "--format",
    "form",
    type=click.Choice(["prometheus", "kubernetes"]),
    default="prometheus",
    show_default=True,
    help="A file for rule_files, or a PrometheusRule of the Prometheus operator.",
)
def rules(config: str | None, output: str | None, check: bool, form: Form) -> int:
    """Write recording rules and alerts.

    Exit codes: 0, 1 --check found a difference, 3 bad configuration.
    """
    return _deliver(render(rule_groups(load(config)), form), output, check=check)


@click.command("tests")
@config_option
@output_option
@_check
def tests(config: str | None, output: str | None, check: bool) -> int:
    """Write unit tests of the rules for `promtool test rules`, to lie beside ragmon.rules.yml.

    Exit codes: 0, 1 --check found a difference, 3 bad configuration.
    """
    settings = load(config)
    return _deliver(render_tests(every_case(settings), rule_groups(settings)), output, check=check)


def _deliver(text: str, output: str | None, *, check: bool) -> int:
    """Write what was generated, or compare it with what is there.

    Args:
        text: What was generated.
        output: The file; None for stdout.
        check: Compare.

    Returns:
        The exit code.
    """
    if not check:
        write(text, output)
        return 0
    if output is None:
        raise click.UsageError("--check needs --output: the file to compare with")
    return compare({Path(output): text})
