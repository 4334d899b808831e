"""What a request with traces brought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ragmon.ingest.rejected import Rejected
from ragmon.spans import Span

SERVICE: Final = "service.name"
"""What a process calls its service."""
BUILD: Final = "service.version"
"""What it calls the version of the application."""
FIRST: Final = 2
"""Where another program passed a span of ragmon's on under its own name, the record is among the first attributes. One
that comes later is for the mapper to find: to look through all attributes of every span would take too long."""


class Own(msgspec.Struct, gc=False):
    """A span of ragmon's that holds a whole record.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        end_ns: When it ended, nanoseconds since the epoch.
        line: The record, one line of the trace contract; nobody has looked into it yet.
    """

    trace_id: bytes
    span_id: bytes
    end_ns: int
    line: str


class Foreign(msgspec.Struct, gc=False):
    """Any other span; its attributes are not read before they are asked for.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        is_root: It has no parent.
        end_ns: When it ended, nanoseconds since the epoch.
        failed: Its status is an error.
        service: The service its process belongs to, `service.name`; None where that is unknown.
        build: The version of the application, `service.version`.
        told: The message. One of protobuf's keeps its whole request in memory.
        scope: The name of the instrumentation.
        read: Reads the message.
    """

    trace_id: bytes
    span_id: bytes
    is_root: bool
    end_ns: int
    failed: bool
    service: str | None
    build: str | None
    told: Any
    scope: str
    read: Callable[[Any, str], Span]

    def span(self) -> Span:
        """The span as the mapper reads it, with those attributes alone that it asks for."""
        return self.read(self.told, self.scope)


@dataclass(slots=True)
class Batch:
    """The spans of one request.

    Attributes:
        spans: How many there are in all.
        own: Those that hold whole records.
        foreign: Those of other instrumentations.
        stages: How many were children of ragmon's own, which tell nothing their root does not.
        rejected: How many were none, by reason.
        first: What was wrong with the first of those; "" where there is none.
        body: The request as it was read, where something had to be repaired before; b"" where it is as it came.
    """

    spans: int = 0
    own: list[Own] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    stages: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    first: str = ""
    body: bytes = b""

    def refuse(self, rejected: Rejected) -> None:
        """Count what is none."""
        if rejected.lost:
            self.first = self.first or str(rejected)
            self.rejected[rejected.reason] += rejected.lost
