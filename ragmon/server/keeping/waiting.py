"""Traces that wait for the rest of their spans, which come in any order, from any process, in any request.

A receiver is not told when a span begins, so it cannot count those that run. A trace is complete when its root has come
and nothing of it for a while; one whose root does not come, when nothing came for longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol

from ragmon.ingest.spans import Span
from ragmon.ingest.spans.model import SPANS, TOO_MANY_SPANS

LATE: Final = "late"
TWICE: Final = "duplicate"
TOO_MANY: Final = TOO_MANY_SPANS
"""Why a span belongs to no record."""


class Piece(Protocol):
    """A span as it came, not read yet."""

    trace_id: bytes
    span_id: bytes
    is_root: bool
    service: str | None
    build: str | None

    def span(self) -> Span:
        """The span."""


@dataclass(frozen=True)
class Limits:
    """How long and how much is waited for.

    Args:
        idle: Seconds without a span after which a trace that has its root is complete.
        rootless: Seconds without a span after which one without is taken as it is.
        age: Seconds after its first span after which it is taken whatever comes.
        spans: Spans of one trace.
        traces: Traces at once.
        size: Bytes of all that wait.
    """

    idle: float = 5.0
    rootless: float = 60.0
    age: float = 600.0
    spans: int = SPANS
    traces: int = 50_000
    size: int = 512 << 20


@dataclass
class Waiting:
    """A trace that may get more spans.

    Attributes:
        lowest: The smallest draw that was kept when it began.
        first, last: When its first and its last span came, seconds since the epoch.
        pieces: Its spans by their ids.
        requests: The journalled requests they came in.
        rooted: Its root is among them.
        complete: Nothing of it was left out, as far as anybody can know.
    """

    lowest: int
    first: float
    last: float
    pieces: dict[bytes, Piece] = field(default_factory=dict)
    requests: set[int] = field(default_factory=set)
    rooted: bool = False
    complete: bool = True


class Room:
    """Where traces wait.

    Args:
        limits: How long and how much is waited for.

    Attributes:
        traces: Those that wait, the one that came first standing first.
        size: Bytes that the requests they came in take, as if each piece kept its whole request in memory.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.traces: dict[bytes, Waiting] = {}
        self.size = 0
        self._order: list[tuple[float, bytes]] = []
        self._held: Counter[int] = Counter()
        self._waits: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}

    def add(self, pieces: Sequence[Piece], request: int, now: float, size: int, lowest: int = 0) -> Counter[str]:
        """Take the spans of one request.

        Args:
            pieces: Its spans.
            request: Its number in the journal.
            now: When it came.
            size: Bytes it takes in memory.
            lowest: The smallest draw that was kept when it came.

        Returns:
            How many traces began (`new`), and how many spans belong to no record, by reason.
        """
        found: Counter[str] = Counter()
        for piece in pieces:
            trace = self.traces.get(piece.trace_id)
            if trace is None:
                trace = self.traces[piece.trace_id] = Waiting(lowest, now, now)
                heappush(self._order, (now, piece.trace_id))
                found["new"] += 1
            if piece.span_id in trace.pieces:
                found[TWICE] += 1
            elif len(trace.pieces) >= self.limits.spans and (trace.rooted or not piece.is_root):
                found[TOO_MANY] += 1
                trace.complete = False
            else:
                self._keep(trace, piece, request, size)
            trace.last = now
        return found

    def _keep(self, trace: Waiting, piece: Piece, request: int, size: int) -> None:
        trace.pieces[piece.span_id] = piece
        if piece.is_root and not trace.rooted:
            trace.rooted = True
            heappush(self._order, (trace.last, piece.trace_id))  # it may be complete sooner than it was due
        if request not in trace.requests:
            trace.requests.add(request)
            self._held[request] += 1
            self._waits[request] += 1
            if request not in self._sizes:
                self._sizes[request] = size
                self.size += size

    @property
    def crowded(self) -> bool:
        """Whether more wait than there is room for."""
        return len(self.traces) > self.limits.traces or self.size > self.limits.size

    def due(self, now: float, *, everything: bool = False) -> Iterator[tuple[bytes, Waiting]]:
        """Hand out the traces nothing more is to be waited for, each once.

        Args:
            now: Seconds since the epoch.
            everything: Those as well that may get more spans.
        """
        while self._order:
            at, trace_id = self._order[0]
            trace = self.traces.get(trace_id)
            if trace is None:
                heappop(self._order)
            elif everything or self.crowded or (moment := self._moment(trace)) <= now:
                heappop(self._order)
                # Spans of it may still have come.
                trace.complete = trace.complete and trace.last + self._idle(trace) <= now
                yield trace_id, self.take(trace_id)
            elif at <= now:
                heappop(self._order)
                heappush(self._order, (moment, trace_id))
            else:
                return

    def _moment(self, trace: Waiting) -> float:
        """When a trace is complete, if nothing more of it comes."""
        return min(trace.last + self._idle(trace), trace.first + self.limits.age)

    def _idle(self, trace: Waiting) -> float:
        return self.limits.idle if trace.rooted else self.limits.rootless

    def hold(self, trace_id: bytes, request: int, now: float) -> None:
        """Have a trace wait for a journalled request whose spans are not read."""
        trace = self.traces.setdefault(trace_id, Waiting(0, now, now))
        trace.requests.add(request)
        self._held[request] += 1
        self._waits[request] += 1
        self._sizes.setdefault(request, 0)

    def take(self, trace_id: bytes) -> Waiting:
        """Take a trace out."""
        trace = self.traces.pop(trace_id)
        for request in trace.requests:
            self._waits[request] -= 1
            if not self._waits[request]:
                del self._waits[request]
                self.size -= self._sizes.pop(request)
        return trace

    def release(self, trace: Waiting) -> list[int]:
        """The journalled requests nothing waits for any more, now that a trace is done."""
        done = []
        for request in trace.requests:
            self._held[request] -= 1
            if not self._held[request]:
                del self._held[request]
                done.append(request)
        return done

    def holds(self, request: int) -> bool:
        """Whether a trace waits that has spans of a journalled request."""
        return request in self._held

    def forget_requests(self) -> None:
        """No journalled request is held any more."""
        self._held.clear()
