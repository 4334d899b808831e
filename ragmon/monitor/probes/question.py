"""One gold question: its text, its in-flight state, its headers and its result; and the counts of results by probe.

The headers identify a request as a probe: its own trace, and signed baggage. `ragmon.capture.call` reads them.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from time import monotonic, time
from typing import Any, Final, Protocol
from urllib.parse import quote

from ragmon.capture.call import PROBE, QID, TOKEN, TracedFunction, sign
from ragmon.core.record import Record


class ProbeCounts:
    """Counts of results, by probe and result."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, probe: str, result: str, n: int = 1) -> None:
        """Add to a count."""
        if n:
            with self._lock:
                self._counts[probe, result] += n

    def read(self) -> dict[tuple[str, str], int]:
        """All counts."""
        with self._lock:
            return dict(self._counts)


def trace_headers(qid: str, probe: str, trace_id: str, key: bytes | None) -> dict[str, str]:
    """The headers of a question (W3C Trace Context, W3C Baggage).

    Args:
        qid: The question's id.
        probe: The probe's name.
        trace_id: The trace it belongs to, 32 hex digits.
        key: The key that signs the probe; None: it is not signed.

    >>> trace_headers("a b", "support", "0" * 31 + "1", None)["baggage"]
    'ragmon.qid=a%20b,ragmon.probe=support'
    """
    baggage = {QID: qid, PROBE: probe}
    if key is not None:
        baggage[TOKEN] = sign(key, int(trace_id, 16), qid, time())
    return {
        "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
        "baggage": ",".join(f"{name}={quote(value, safe='', errors='replace')}" for name, value in baggage.items()),
        "Cache-Control": "no-cache",
    }


OK: Final = "ok"
CACHED: Final = "cached"
FAILED: Final = "error"
TIMEOUT: Final = "timeout"
THROTTLED: Final = "throttled"
LOST: Final = "lost"
SKIPPED: Final = "skipped"
"""The results of a question that is due. `skipped` was not sent. `cached`, `throttled` and `lost` have no record: the
pipeline did not answer, or the answer is unknown.
"""
TRIES: Final = 3
"""How often a question is sent to an application that is busy."""


@dataclass(frozen=True)
class GoldQuestion:
    """A gold question.

    Attributes:
        place: Its index in its gold set.
        qid: Its id.
        text: The text of the question.
        tries: How often it was sent before.
    """

    place: int
    qid: str
    text: str
    tries: int = 0


@dataclass
class InFlight:
    """The state of a question in flight.

    Attributes:
        qid: The question's id.
        probe: The probe's name.
        deadline: When to give up, on the monotonic clock.
        trace_id: Its trace id, 32 hex digits; "" before it is sent.
        from_cache: A cache declared that it answered.
        came_back: When its target returned, on the monotonic clock; without the time of capture and judges.
    """

    qid: str
    probe: str
    deadline: float
    trace_id: str = ""
    from_cache: bool = False
    came_back: float = inf

    def left(self) -> float:
        """Seconds until its deadline.

        Raises:
            TimeoutError: It has passed.
        """
        seconds = self.deadline - monotonic()
        if seconds <= 0:
            raise TimeoutError("the time for the answer is up")
        return seconds


@dataclass(frozen=True)
class ProbeResult:
    """The result of a question.

    Attributes:
        question: The question.
        result: One of the constants above.
        record: The record to score; None without one.
        wait: Seconds the application asks to wait; None if it does not say.
        overloaded: Sending less may help: the application was unreachable, too slow or busy.
        unreachable: Why the application could not be reached; "" if it was.
    """

    question: GoldQuestion
    result: str
    record: Record | None = None
    wait: float | None = None
    overloaded: bool = False
    unreachable: str = field(default="", repr=False)


class Target(Protocol):
    """The target of a probe.

    Attributes:
        traced_function: The settings of its own decorator; None where it is not traced.
    """

    traced_function: TracedFunction | None

    def __call__(self, text: str, sending: InFlight) -> Any:
        """Send the question; returns an answer, a stream of one, or an awaitable."""
