"""`ragmon serve`: take what producers send, score it, show it."""

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
from ragmon.cli.common import config_option
from ragmon.config.load import load
from ragmon.core.errors import UnavailableError
from ragmon.core.escaping import printable_line

if TYPE_CHECKING:
    from ragmon.server.server import Server
    from ragmon.server.watchdog import Watchdog

LOOK: Final = 2.0
"""Seconds between two looks at the files of the configuration."""
FILES: Final = 48
"""Files a server opens before a client comes, and a few for the first clients."""
TEMPORARY: Final = 75
"""The exit code where starting again may help (sysexits.h, EX_TEMPFAIL)."""


@click.command()
@config_option
@click.option("--insecure", is_flag=True, help="Listen where strangers could write, and only warn.")
def serve(config: str | None, insecure: bool) -> int:
    """Take OTLP from any number of producers, journal and score it, and show what came of it.

    Exit codes: 0 stopped by a signal, everything that was accepted is on disk; 3 bad configuration; 75 no room on the
    disk, no file can be opened, a port or the state folder is taken, or a request takes too long: to start it again
    later may help. A process that freezes is ended by SIGPROF; to start it again helps, and a request that did so twice
    is set aside.
    """
    from ragmon.server.memory import limit_arenas  # noqa: PLC0415 - as below

    limit_arenas()  # before there are threads, each with memory of its own
    try:
        _open_files()
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)
    from ragmon.server.server import Server  # noqa: PLC0415 - protobuf, grpc and uvicorn take longer than any command
    from ragmon.server.watchdog import Watchdog  # noqa: PLC0415 - as above

    lines = logging.StreamHandler()
    lines.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[lines], level=logging.INFO)
    heard: SimpleQueue[int] = SimpleQueue()
    watchdog = Watchdog(TEMPORARY)
    _listen(heard, watchdog)
    settings = load(config)
    try:
        with watchdog:
            return _run(Server(settings, insecure=insecure, watch=watchdog.watch), heard)
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)


def _listen(heard: SimpleQueue[int], watchdog: Watchdog) -> None:
    """Hear signals; once asked to end, the process does so in time, also while it starts."""

    def hear(number: int, _: object) -> None:
        heard.put(number)
        if number != signal.SIGHUP:
            watchdog.hurry()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hear)


class _OneLine(logging.Formatter):
    """Log lines of which each is one line, whoever wrote what they say; of an error the traceback follows."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is Python's
        record.message = printable_line(record.message)
        return super().formatMessage(record)


def _run(server: Server, heard: SimpleQueue[int]) -> int:
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


def _open_files() -> None:
    """Have as many files open as this process may: connections that say nothing must not shut the others out.

    Raises:
        UnavailableError: They are too few to start with. What would fail later has other names than this.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened: list[int] = []
    try:
        while len(opened) < FILES:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise UnavailableError(
            f"only {len(opened)} files can be opened, {FILES} are needed ({error.strerror})",
            hint="a larger `ulimit -n`, or LimitNOFILE= in the unit; where the whole machine is short of files, later",
        ) from error
    finally:
        for number in opened:
            os.close(number)


def _next(heard: SimpleQueue[int]) -> int | None:
    """What is to be done next; None where there was no signal for a while.

    A thousand signals to read the configuration again are one, and none of them comes before the one to end.
    """
    try:
        found = [heard.get(timeout=LOOK)]
    except Empty:
        return None
    while not heard.empty():
        found.append(heard.get())
    return max(found, key=(signal.SIGHUP, signal.SIGINT, signal.SIGTERM).index)
