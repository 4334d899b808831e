"""The sink that sends records to an OTLP receiver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragmon.capture.otlp.metrics import metrics_request
from ragmon.capture.otlp.peer import Peer
from ragmon.capture.otlp.spans import SpanWriter
from ragmon.capture.otlp.wire import opened
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Label, Record, Totals

JSON: Final = "application/json"
TIMEOUT: Final = 10.0
REQUEST_SIZE: Final = 2 << 20
"""Bytes of records from which on the next ones go into another request; receivers take at least 4 MiB."""


class OtlpSink:
    """Sends records as spans and totals as metrics over OTLP/HTTP.

    It sends what it is given: text that must not leave the process has to be taken out before.

    Args:
        endpoint: The receiver's base address, `http://host:port`.
        token: Its bearer token; None where it wants none.
        resource: Attributes of the process: `service.name`, `service.instance.id` and the like.
        conventions: Add OpenTelemetry's and OpenInference's attributes beside ragmon's own.
        stages: Add child spans for retrieval and generation.
        timeout: Seconds one call of `deliver` or `report` may take, retries included.
        certificate: A file of certificates to trust in place of the system's.

    Raises:
        RagmonError: The endpoint, the token or the certificate file cannot be used.

    >>> sink = OtlpSink("http://127.0.0.1:9", resource={"service.name": "docs"}, timeout=0.05)
    >>> sink.deliver([Record(qid="a")])
    {'export_failed': 1}
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        resource: Mapping[str, str],
        conventions: bool = True,
        stages: bool = False,
        timeout: float = TIMEOUT,
        certificate: str | None = None,
    ) -> None:
        self._peer = Peer(endpoint, token=token, certificate=certificate)
        self._writer = SpanWriter(conventions=conventions, stages=stages)
        self._resource = dict(resource)
        self._timeout = timeout

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Send records, in order; called from one thread.

        Args:
            records: A batch.

        Returns:
            How many were lost, by reason; empty when the receiver took them all. Where it refuses spans and there are
            several to a record, as many records are counted, at most all: it does not say which.
        """
        deadline = monotonic() + self._timeout
        lost: Counter[str] = Counter()
        for body, n in self._requests(records, lost):
            answer = self._peer.post("traces", body, deadline)
            if answer.reason is not None:
                lost[answer.reason] += n
            elif rejected := answer.rejected(ExportTraceServiceResponse, "rejected_spans"):
                lost[constants.EXPORT_REFUSED] += min(n, rejected)
        return dict(lost)

    def report(self, totals: Sequence[Totals]) -> bool:
        """Send a producer's totals, once: they are cumulative, so the next report says all that this one said.

        Args:
            totals: The counts.

        Returns:
            Whether the receiver took all of them.
        """
        deadline = monotonic() + self._timeout
        try:
            body = metrics_request(totals, self._resource)
        except Exception as error:  # noqa: BLE001 - the worker's thread must live
            warn_once(f"totals could not be sent: {whereabouts(error)}")
            return False
        answer = self._peer.post("metrics", body, deadline, retry=False)
        return answer.reason is None and not answer.rejected(ExportMetricsServiceResponse, "rejected_data_points")

    def label(self, labels: Sequence[Label]) -> bool:
        """Send what people say of answers, once; returns whether the receiver took it, or whether to try again.

        Raises:
            RagmonError: It refused it: only a ragmon server takes labels.
        """
        deadline = monotonic() + self._timeout
        for body in _arrays([msgspec.json.encode(one) for one in labels]):
            answer = self._peer.post("labels", body, deadline, retry=False, kind=JSON)
            if answer.reason == constants.EXPORT_REFUSED:
                raise RagmonError("labels were refused", hint="[export] endpoint names a ragmon server")
            if answer.reason is not None:
                return False
        return True

    def close(self) -> None:
        """End what is under way, from whatever thread, and send no more; what is delivered afterwards is lost."""
        self._peer.close()

    def _requests(self, records: Sequence[Record], lost: Counter[str]) -> Iterator[tuple[bytes, int]]:
        """Requests of a size receivers take, each with the number of its records."""
        request, spans = self._request()
        size = n = 0
        for record in records:
            try:
                size += self._writer.write(spans, record)
            except Exception as error:  # noqa: BLE001 - one record's trouble is not another's
                warn_once(f"a record could not be sent and is dropped: {whereabouts(error)}")
                lost[constants.INVALID_SCHEMA] += 1
                continue
            n += 1
            if size >= REQUEST_SIZE:
                yield request.SerializeToString(), n
                request, spans = self._request()
                size = n = 0
        if n:
            yield request.SerializeToString(), n

    def _request(self) -> tuple[Any, Any]:
        request = ExportTraceServiceRequest()
        return request, opened(request, "spans", self._resource).spans


def _arrays(items: Iterable[bytes]) -> Iterator[bytes]:
    """JSON arrays of a size receivers take."""
    held: list[bytes] = []
    size = 0
    for item in items:
        held.append(item)
        size += len(item)
        if size >= REQUEST_SIZE:
            yield b"[%b]" % b",".join(held)
            held, size = [], 0
    if held:
        yield b"[%b]" % b",".join(held)
