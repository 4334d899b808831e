"""`ragmon generate`: what Prometheus and Grafana need of ragmon.toml."""

from __future__ import annotations

import click

from ragmon.cli import Commands
from ragmon.cli.dashboard import dashboard
from ragmon.cli.rules import rules, tests


@click.group(cls=Commands)
def generate() -> None:
    """Prometheus rules, their tests, Grafana dashboards: from ragmon.toml."""


generate.add_command(rules)
generate.add_command(tests)
generate.add_command(dashboard)
