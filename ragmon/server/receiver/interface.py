"""What the doors of the server hand in, and what they are told: the one interface between transport and journal.

Why a door turns a request away before anybody looks at what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from ragmon.core.record import Record


class Encoding(Enum):
    """How an OTLP request is written."""

    PROTOBUF = "protobuf"
    JSON = "json"


@dataclass(frozen=True)
class ExportResult:
    """What became of a request that was accepted and is on disk.

    Attributes:
        rejected: How many of its spans, points or labels are none.
        message: What is wrong with the first of them.
    """

    rejected: int = 0
    message: str = ""


class RejectedError(Exception):
    """A request that is not taken; its sender may try again where `retry_after` says so.

    Args:
        status: The HTTP status.
        reason: What it is counted as.
        message: What is wrong.
        retry_after: Seconds after which it may be sent again; None where that would be in vain.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class Consumer(Protocol):
    """Where requests are handed in. Every future is done once the request is on disk, or raises `RejectedError`."""

    def traces(self, body: bytes, form: Encoding) -> Future[ExportResult]:
        """An `ExportTraceServiceRequest`.

        Raises:
            RefusedError: It cannot be read, or there is too much to do.
        """

    def metrics(self, body: bytes, form: Encoding) -> Future[ExportResult]:
        """An `ExportMetricsServiceRequest`: producers' totals; other metrics are passed over."""

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Labels people gave: objects with `trace_id`, `correct`, `rater` and more."""

    def acknowledge(self, pipeline: str, alert: str, reason: str) -> Future[bool]:
        """Silence an alarm; the result is whether it fired. An `UnknownNameError` where there is none."""

    def reply(self, record: Record, wait: float, *, came: bool = True) -> bool:
        """What a prober of this server got; or that it asks, so that its request is taken for no user's.

        Args:
            record: It, with a trace id.
            wait: Seconds in which the application's own record of it may come, and is completed with it.
            came: There is a reply; otherwise the record says what was asked.

        Returns:
            Whether there was room for it.
        """

    def refuse(self, reason: str) -> None:
        """Count a request that a door turned away."""


UNAUTHORISED: Final = "unauthorised"
FORBIDDEN: Final = "forbidden"
"""A web page asks, or the request was meant for another host."""
RATE_LIMITED: Final = "rate_limited"
"""There is too much to do at the moment."""
DECOMPRESS_LIMIT: Final = "decompress_limit"
TIMEOUT: Final = "timeout"
BAD_CONTENT_TYPE: Final = "bad_content_type"
BAD_CONTENT_ENCODING: Final = "bad_content_encoding"
BAD_HTTP: Final = "bad_http"
"""What came is no HTTP/1.1."""
NO_MESSAGE: Final = "no_message"
"""A call that came to its end without one: it was larger than gRPC reads, or was never sent."""
UNKNOWN_PATH: Final = "unknown_path"
BAD_METHOD: Final = "bad_method"


class HTTPError(RejectedError):
    """A request that the door itself does not take: it is counted by the desk's `refuse`.

    Args:
        status: The HTTP status.
        reason: What it is counted as.
        message: What is wrong.
        hint: What would be right.
        retry_after: Seconds after which it may be sent again; None where that would be in vain.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message, retry_after)
        self.hint = hint
