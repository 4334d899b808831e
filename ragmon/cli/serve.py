"""`ragmon serve`: take what producers send, score it, show it."""

from __future__ import annotations

import logging
import signal
from queue import Empty, SimpleQueue
from typing import Final

import click

from ragmon.cli.runs import config_option
from ragmon.config.load import load

LOOK: Final = 2.0
"""Seconds between two looks at the files of the configuration."""


@click.command()
@config_option
@click.option("--insecure", is_flag=True, help="Listen where strangers could write, and only warn.")
def serve(config: str | None, insecure: bool) -> int:
    """Take OTLP from any number of producers, journal and score it, and show what came of it.

    Exit codes: 0 stopped by a signal, everything that was accepted is on disk; 3 bad configuration, a port or the
    state folder is taken.
    """
    from ragmon.server.server import Server  # noqa: PLC0415 - protobuf, grpc and uvicorn take longer than any command

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    heard: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: heard.put(number))
    server = Server(load(config), insecure=insecure)
    for warning in server.warnings:
        click.echo(f"warning: {warning}", err=True)
    with server:
        for name, address in server.addresses().items():
            click.echo(f"{name}: {address}", err=True)
        click.echo("ready", err=True)
        while (signalled := _next(heard)) not in (signal.SIGTERM, signal.SIGINT):
            if signalled == signal.SIGHUP:
                server.reloading.reload()
            else:
                server.reloading.look()
        click.echo("stopping: what was accepted is put on disk", err=True)
    return 0


def _next(heard: SimpleQueue[int]) -> int | None:
    """The next signal; None where there was none for a while."""
    try:
        return heard.get(timeout=LOOK)
    except Empty:
        return None
