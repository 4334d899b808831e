"""`ragmon serve`: receive OTLP from producers, journal it, score it and serve the results."""

from __future__ import annotations

import logging
import os
import resource
import signal
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import click

from ragmon.cli import fail
from ragmon.config.load import load
from ragmon.core.errors import UnavailableError, printable_line

if TYPE_CHECKING:
    from ragmon.server.process import Watchdog
    from ragmon.server.server import Server

LOOK: Final = 2.0
"""Seconds between two checks whether the configuration files changed."""
FILES: Final = 48
"""File descriptors a server needs before a client connects, and a few for the first clients."""
TEMPORARY: Final = 75
"""The exit code if a restart may help (sysexits.h, EX_TEMPFAIL)."""


def serve(config: str | None, insecure: bool) -> int:
    """Take OTLP from any number of producers, journal and score it, and show what came of it."""
    from ragmon.server.process import limit_arenas  # noqa: PLC0415 - as below

    limit_arenas()  # before there are threads, each with its own malloc arena
    try:
        _raise_file_limit()
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)
    from ragmon.server.process import Watchdog  # noqa: PLC0415 - as above
    from ragmon.server.server import Server  # noqa: PLC0415 - protobuf, grpc and uvicorn take longer than any command

    handler = logging.StreamHandler()
    handler.setFormatter(_OneLineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    signals: SimpleQueue[int] = SimpleQueue()
    watchdog = Watchdog(TEMPORARY)
    _install_signal_handlers(signals, watchdog)
    settings = load(config)
    try:
        with watchdog:
            return _run(Server(settings, insecure=insecure, on_attempts=watchdog.watch), signals)
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)


def _install_signal_handlers(signals: SimpleQueue[int], watchdog: Watchdog) -> None:
    """Install signal handlers; after a signal to stop, the watchdog enforces a deadline, also during start-up."""

    def on_signal(number: int, _: object) -> None:
        signals.put(number)
        if number != signal.SIGHUP:
            watchdog.hurry()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)


class _OneLineFormatter(logging.Formatter):
    """A log formatter that keeps each message on one line, whatever it quotes; only a traceback adds lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is Python's
        record.message = printable_line(record.message)
        return super().formatMessage(record)


def _run(server: Server, signals: SimpleQueue[int]) -> int:
    for warning in server.warnings:
        click.echo(f"warning: {warning}", err=True)
    with server:
        for name, address in server.addresses().items():
            click.echo(f"{name}: {address}", err=True)
        click.echo("ready", err=True)
        while (number := _next_signal(signals)) not in (signal.SIGTERM, signal.SIGINT):
            if number == signal.SIGHUP:
                server.reloading.reload()
            else:
                server.reloading.poll()
        click.echo("stopping: what was accepted is put on disk", err=True)
    return 0


def _raise_file_limit() -> None:
    """Raise the limit of open files to its maximum, so that idle connections do not block other clients.

    Raises:
        UnavailableError: Fewer files can be opened than the server needs to start; later failures would name
            other causes.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    descriptors: list[int] = []
    try:
        while len(descriptors) < FILES:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise UnavailableError(
            f"only {len(descriptors)} files can be opened, {FILES} are needed ({error.strerror})",
            hint="a larger `ulimit -n`, or LimitNOFILE= in the unit; where the whole machine is short of files, later",
        ) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _next_signal(signals: SimpleQueue[int]) -> int | None:
    """The next signal to handle; None if there was none for a while.

    All pending signals are taken at once: any number of SIGHUPs count as one, and a signal to stop comes first.
    """
    try:
        pending = [signals.get(timeout=LOOK)]
    except Empty:
        return None
    while not signals.empty():
        pending.append(signals.get())
    return max(pending, key=(signal.SIGHUP, signal.SIGINT, signal.SIGTERM).index)
