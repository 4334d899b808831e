"""`ragmon generate`: what other programs need of ragmon.toml."""

from __future__ import annotations

import click

from ragmon.cli import Commands
from ragmon.cli.dashboard import dashboard


@click.group(cls=Commands)
def generate() -> None:
    """Write Grafana dashboards from ragmon.toml."""


generate.add_command(dashboard)
