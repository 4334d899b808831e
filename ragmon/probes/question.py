"""One gold question on its way: what is asked, how it was sent, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any, Final, Protocol

from ragmon.capture.call import Site
from ragmon.core.record import Record

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
class Question:
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
class Sending:
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

    question: Question
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

    site: Site | None

    def __call__(self, text: str, sending: Sending) -> Any:
        """Ask, and return what comes back: an answer, a stream of one, or something to be awaited."""
