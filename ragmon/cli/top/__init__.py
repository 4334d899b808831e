"""`ragmon top`: the overview of a monitor on a terminal, read again and again from its admin port."""

from __future__ import annotations

import os
import sys
from time import time

from rich.console import Console

from ragmon.cli.client import parse_server_url
from ragmon.cli.common import on_terminal, write
from ragmon.cli.top.frame import OverviewFrame, draw
from ragmon.cli.top.live import LiveOverview
from ragmon.cli.top.polling import OverviewReader, Poll
from ragmon.config.load import load

__all__ = ["top"]


def top(url: str | None, every: float, once: bool, no_color: bool, config: str | None) -> int:
    """Show what fires and every gate of a monitor, live: that of `ragmon serve`, or one in an application."""
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
