"""The admin port of a worker: whether it is alive, and some twenty series on its own work."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ragmon.core.http_client import current_version, own_names
from ragmon.monitor.admin import HEADERS, check_origin
from ragmon.stream.worker import StreamWorker

_COUNTERS: Final = {
    "read": "Messages that were read",
    "counted": "Messages that were counted",
    "remembered": "Messages that were read again, to know what came shortly before",
    "chunks": "Chunks that were written",
    "chunk_bytes": "Bytes of these chunks",
    "asked_again": "How often messages that a fetch left out were asked for again",
    "passed_over": "Offsets at which there was no message after all",
    "ticks": "Empty messages that told a quiet partition the time",
    "made_anew": "Partitions that were begun anew because their topic had been deleted and made anew",
    "cut_off": "How often a log was found to end before what had been counted of it",
    "overwritten": "Messages at offsets that had been counted before their log was cut off; they are not counted",
    "assignments": "Partitions that were given to this worker",
}
"""What a worker counts of its own work, and the HELP text of its series."""
PREFIX: Final = "ragmon_worker_"


class WorkerCollector(Collector):
    """The series of a worker.

    Args:
        worker: The worker.
    """

    def __init__(self, worker: StreamWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All series of this moment."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, self._worker.counts[name])
        owned = GaugeMetricFamily(f"{PREFIX}partition", "A partition that it counts; always 1", labels=("partition",))
        for part in self._worker.partitions:
            owned.add_metric((part,), 1)
        yield owned
        info = GaugeMetricFamily("ragmon_build_info", "This ragmon; always 1", labels=("version",))
        info.add_metric((current_version(),), 1)
        yield info


def worker_app(worker: StreamWorker, hosts: Collection[str]) -> ASGIApp:
    """The ASGI application of a worker's admin port.

    Args:
        worker: The worker.
        hosts: The host names that requests may use, besides IP addresses, localhost and those of this machine.
    """
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={**HEADERS, "Content-Type": content_type})

    def healthy(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=HEADERS)

    def ready(_: Request) -> Response:
        if worker.trouble:
            return PlainTextResponse(f"{worker.trouble}\n", 503, HEADERS)
        return PlainTextResponse("ok\n", headers=HEADERS)

    routes = [Route("/metrics", metrics), Route("/healthz", healthy), Route("/readyz", ready)]
    return check_origin(Starlette(routes=routes), own_names(tuple(hosts)))
