"""The interface between the receivers and the processing pipeline: `Consumer` and its results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from ragmon.core.record import Record


class Encoding(Enum):
    """The encoding of an OTLP request."""

    PROTOBUF = "protobuf"
    JSON = "json"


@dataclass(frozen=True)
class ExportResult:
    """The result of a request that was accepted and is on disk.

    Attributes:
        rejected: How many of its spans, data points or labels are invalid.
        message: The error of the first invalid one.
    """

    rejected: int = 0
    message: str = ""


class Consumer(Protocol):
    """Accepts requests. Each future is done when the request is on disk, or raises `RejectedError`."""

    def traces(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Accept an `ExportTraceServiceRequest`.

        Raises:
            RejectedError: It cannot be decoded, or the queue is full.
        """

    def metrics(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Accept an `ExportMetricsServiceRequest` with the totals of producers; other metrics are ignored."""

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Accept labels of raters: objects with `trace_id`, `correct`, `rater` and more."""

    def acknowledge(self, pipeline: str, alert: str, reason: str, by: str = "") -> Future[bool]:
        """Silence an alarm; the result is whether it fired, or an `UnknownNameError` if there is no such alarm."""

    def reply(self, record: Record, wait: float, *, arrived: bool = True) -> bool:
        """Accept a probe reply, or announce a probe, so that its request is not counted as a user's.

        Args:
            record: The record of the probe, with a trace id.
            wait: Seconds to wait for the application's own record of the request, which is completed with this one.
            arrived: Whether there is a reply; otherwise the record holds the question only.

        Returns:
            Whether it was accepted.
        """

    def refuse(self, reason: str) -> None:
        """Count a request that a receiver rejected."""
