"""`ragmon top`: the overview of a monitor on a terminal, read again and again from its admin port."""

from __future__ import annotations

import os
import sys
from math import isnan
from time import time
from typing import Final

import click
from rich.console import Console

from ragmon.cli.client import parse_server_url
from ragmon.cli.common import config_option, no_color_option, on_terminal, write
from ragmon.cli.top.frame import OverviewFrame, draw
from ragmon.cli.top.live import LiveOverview
from ragmon.cli.top.polling import OverviewReader, Poll
from ragmon.config.load import load

__all__ = ["top"]

EVERY: Final = 2.0
"""Seconds between two readings by default."""


def _number(_: click.Context, __: click.Parameter, value: float) -> float:
    """Reject what is in every range of numbers and is none."""
    if isnan(value):
        raise click.BadParameter(f"{value} is no number of seconds, such as {EVERY:g}")
    return value


@click.command()
@click.option("--url", metavar="URL", help="The monitor. Default: `[serve] admin` of the config.")
@click.option(
    "--every",
    type=click.FloatRange(0.5, 3600),
    default=EVERY,
    show_default=True,
    metavar="SECONDS",
    callback=_number,
    help="Time between two readings.",
)
@click.option("--once", is_flag=True, help="Print the state once, and exit.")
@no_color_option
@config_option
def top(url: str | None, every: float, once: bool, no_color: bool, config: str | None) -> int:
    """Show what fires and every gate of a monitor, live: that of `ragmon serve`, or one in an application.

    q and Ctrl-C leave; the arrow keys scroll. A monitor that stops answering is shown as stale, with the time since
    when, until it answers again. Where stdout is no terminal, the state is printed once. Times are UTC.

    Exit codes: 0, 3 there is no monitor.
    """
    address = url or f"http://{load(config).serve.admin}"
    console = Console(no_color=no_color or None, highlight=False, markup=False)
    live = not once and on_terminal(None) and not console.is_dumb_terminal
    reader = OverviewReader(address)
    place = parse_server_url(address).authority
    try:
        poll = Poll(reader.read(), time())
        if live:
            LiveOverview(console, place, reader, poll, every, sys.stdin).run()
        else:
            write(_as_text(console, draw(console, place, poll)), None)
    except KeyboardInterrupt:  # before there is a picture
        if not live:
            raise
    return 0


def _as_text(console: Console, frame: OverviewFrame) -> str:
    """A frame as text: as wide as the terminal, in colour where stdout is one."""
    with console.capture() as captured:
        for line in frame.lines:
            line.rstrip()
            console.print(line, no_wrap=True, overflow="crop", crop=True)
    return captured.get().replace(os.linesep, "\n")
