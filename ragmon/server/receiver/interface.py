"""The interface between the receivers and the processing pipeline: `Consumer`, its results and its errors.

It also holds the reasons for which a receiver rejects a request before its content is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

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


class RejectedError(Exception):
    """A request was rejected; the client may retry if `retry_after` is set.

    Args:
        status: The HTTP status.
        reason: The reason under which it is counted.
        message: What is wrong.
        retry_after: Seconds after which the client may retry; None if a retry cannot succeed.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class Consumer(Protocol):
    """Accepts requests. Each future is done when the request is on disk, or raises `RejectedError`."""

    def traces(self, body: bytes, form: Encoding) -> Future[ExportResult]:
        """Accept an `ExportTraceServiceRequest`.

        Raises:
            RejectedError: It cannot be decoded, or the queue is full.
        """

    def metrics(self, body: bytes, form: Encoding) -> Future[ExportResult]:
        """Accept an `ExportMetricsServiceRequest` with the totals of producers; other metrics are ignored."""

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Accept labels of raters: objects with `trace_id`, `correct`, `rater` and more."""

    def acknowledge(self, pipeline: str, alert: str, reason: str) -> Future[bool]:
        """Silence an alarm; the result is whether it fired, or an `UnknownNameError` if there is no such alarm."""

    def reply(self, record: Record, wait: float, *, came: bool = True) -> bool:
        """Accept a probe reply, or announce a probe, so that its request is not counted as a user's.

        Args:
            record: The record of the probe, with a trace id.
            wait: Seconds to wait for the application's own record of the request, which is completed with this one.
            came: Whether there is a reply; otherwise the record holds the question only.

        Returns:
            Whether it was accepted.
        """

    def refuse(self, reason: str) -> None:
        """Count a request that a receiver rejected."""


UNAUTHORISED: Final = "unauthorised"
FORBIDDEN: Final = "forbidden"
"""The request came from a web page, or was meant for another host."""
RATE_LIMITED: Final = "rate_limited"
"""The server is overloaded."""
DECOMPRESS_LIMIT: Final = "decompress_limit"
TIMEOUT: Final = "timeout"
BAD_CONTENT_TYPE: Final = "bad_content_type"
BAD_CONTENT_ENCODING: Final = "bad_content_encoding"
BAD_HTTP: Final = "bad_http"
"""The data is not HTTP/1.1."""
NO_MESSAGE: Final = "no_message"
"""A gRPC call ended without a message: the message was too large for gRPC, or was never sent."""
UNKNOWN_PATH: Final = "unknown_path"
BAD_METHOD: Final = "bad_method"


class HTTPError(RejectedError):
    """A request was rejected by the receiver itself, which counts it with `Consumer.refuse`.

    Args:
        status: The HTTP status.
        reason: The reason under which it is counted.
        message: What is wrong.
        hint: How to correct it.
        retry_after: Seconds after which the client may retry; None if a retry cannot succeed.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message, retry_after)
        self.hint = hint
