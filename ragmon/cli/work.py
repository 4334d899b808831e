"""`ragmon work`: count partitions of a Kafka topic, as a member of a consumer group, for a server that adds up."""

from __future__ import annotations

import logging
import signal
from threading import Event
from typing import TYPE_CHECKING, Final

import click

from ragmon.cli import fail
from ragmon.config.load import load
from ragmon.core.errors import UnavailableError

if TYPE_CHECKING:
    from ragmon.config.settings import Settings

TEMPORARY: Final = 75
"""The exit code if a restart may help (sysexits.h, EX_TEMPFAIL)."""


def work(config: str | None) -> int:
    """Count the partitions that the consumer group gives this process, and write chunks of counts."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    settings = load(config)
    try:
        _run(settings, stopping)
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)
    click.echo("stopping: the next owner goes on from the last chunk", err=True)
    return 0


def _run(settings: Settings, stopping: Event) -> None:
    from ragmon.core.http_server import HttpServer  # noqa: PLC0415 - as above
    from ragmon.ingest.gold import load_gold  # noqa: PLC0415 - these load more than any other command needs
    from ragmon.stream.worker import StreamWorker, worker_app  # noqa: PLC0415 - as above

    worker = StreamWorker(settings, load_gold(settings.gold))
    server = HttpServer(worker_app(worker, settings.serve.hosts), settings.serve.admin, tls=None, name="admin")
    server.start()
    try:
        click.echo(f"admin: {server.address}", err=True)
        click.echo("ready", err=True)
        worker.run(stopping)
    finally:
        server.stop(0.0)
