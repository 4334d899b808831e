"""How many questions were due, and what became of them.

What tells an application that a request is a probe: a trace of its own, and baggage only whoever has the key writes.

The other end reads it: `ragmon.capture.parent`.

One gold question on its way: what is asked, how it was sent, and what became of it.
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

from ragmon.capture.call import TracedFunction
from ragmon.capture.parent import PROBE, QID, TOKEN, sign
from ragmon.core.record import Record


class ProbeCounts:
    """By probe and result."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: Counter[tuple[str, str]] = Counter()

    def add(self, probe: str, result: str, n: int = 1) -> None:
        """Count."""
        if n:
            with self._lock:
                self._found[probe, result] += n

    def read(self) -> dict[tuple[str, str], int]:
        """All so far."""
        with self._lock:
            return dict(self._found)


def trace_headers(qid: str, probe: str, trace_id: str, key: bytes | None) -> dict[str, str]:
    """The headers of a question that is sent (W3C Trace Context, W3C Baggage).

    Args:
        qid: The question's id.
        probe: The probe's name.
        trace_id: The trace it belongs to, 32 hex digits.
        key: What the application believes; None where it is to believe nothing.

    >>> trace_headers("a b", "support", "0" * 31 + "1", None)["baggage"]
    'ragmon.qid=a%20b,ragmon.probe=support'
    """
    told = {QID: qid, PROBE: probe}
    if key is not None:
        told[TOKEN] = sign(key, int(trace_id, 16), qid, time())
    return {
        "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
        "baggage": ",".join(f"{name}={quote(value, safe='', errors='replace')}" for name, value in told.items()),
        "Cache-Control": "no-cache",
    }


OK: Final = "ok"
CACHED: Final = "cached"
FAILED: Final = "error"
TIMEOUT: Final = "timeout"
THROTTLED: Final = "throttled"
LOST: Final = "lost"
SKIPPED: Final = "skipped"
"""What becomes of a question that is due: `skipped` was not sent; of `cached`, `throttled` and `lost` ones there is no
record, since the pipeline did not answer, or nobody knows what."""
TRIES: Final = 3
"""How often a question is sent to an application that says it is busy."""


@dataclass(frozen=True)
class GoldQuestion:
    """A gold question.

    Attributes:
        place: Its place in its gold set.
        qid: Its id.
        text: What is asked.
        tries: How often it was sent before.
    """

    place: int
    qid: str
    text: str
    tries: int = 0


@dataclass
class InFlight:
    """A question that is under way.

    Attributes:
        qid: The question's id.
        probe: The probe's name.
        deadline: When to give up, on the monotonic clock.
        trace_id: The trace it runs in, 32 hex digits; "" before it runs.
        from_cache: A cache said that the answer is its own.
        came_back: When its target was done, on the monotonic clock; what capture and judges take is not the target's.
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
class Answered:
    """What became of a question.

    Attributes:
        question: The question.
        result: One of the words above.
        record: What is scored; None where there is nothing to score.
        wait: Seconds the application wants to be left alone; None where it did not say.
        overloaded: Sending less may help: nobody was there, in time, or with time to answer.
        unreachable: Nobody was there at all, and why.
    """

    question: GoldQuestion
    result: str
    record: Record | None = None
    wait: float | None = None
    overloaded: bool = False
    unreachable: str = field(default="", repr=False)


class Target(Protocol):
    """Where questions go.

    Attributes:
        site: What its own decorator was told of it; None where it is not traced.
    """

    site: TracedFunction | None

    def __call__(self, text: str, sending: InFlight) -> Any:
        """Ask, and return what comes back: an answer, a stream of one, or something to be awaited."""
