"""The time of a log, told by its messages alone: whoever reads them, whenever, hears the same.

It is the running maximum of the messages' times, without those that a producer's clock set too far ahead. Such a
message waits. One after it that is not ahead shows that its clock is wrong: it is dropped. Time did pass, as over a
night without messages and workers, if a tick of a worker agrees with a message that waits, or if very many wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf
from statistics import median_low
from typing import Final, NamedTuple

from ragmon.scoring.scorer import FUTURE
from ragmon.stream.chunk import Chunk
from ragmon.stream.counting import GENERATIONS, CountingLimits

MOST: Final = 4096
"""Messages that wait at most: so many in a row show that time did pass."""
MOST_BYTES: Final = 16 << 20
"""Their bytes at most, likewise."""


class LogMessage(NamedTuple):
    """A message of a log: its offset, its time and its bytes; and whether its clock was ahead of the log's time."""

    offset: int
    time: float
    body: bytes
    is_ahead: bool = False


class LogClock:
    """Tells the time of one partition.

    Args:
        limits: How the partition is divided, and how long messages are remembered.
        last: The last chunk: it says what the time was at some offsets; None at the beginning of the log.

    Attributes:
        now: The time, seconds since the epoch.
        waiting: Messages that are ahead, and of which nothing after them tells yet whether time did pass.
    """

    def __init__(self, limits: CountingLimits, last: Chunk | None) -> None:
        self.now, self.waiting = -inf, list[LogMessage]()
        self._bytes, self._period = 0, limits.period
        # Where time passes by more, a new generation of what is remembered begins, and chunks tell where that is.
        self._ahead = max(FUTURE, limits.memory / (GENERATIONS - 1) + limits.period)
        self._known = deque(
            () if last is None else [*(last.times or [(last.low, last.until)]), (last.upto, last.until)]
        )

    def take(self, message: LogMessage) -> Iterator[LogMessage]:
        """Read a message; gives those of which it tells what they are, in order, each with the time of the log."""
        while self._known and self._known[0][0] <= message.offset:
            yield from self._drop()
            self.now = self._known.popleft()[1]
        unread = deque([message])
        while unread:
            message = unread.popleft()
            if message.time <= self.now + self._ahead:
                yield from self._drop()
                self.now = max(self.now, message.time)
                yield LogMessage(message.offset, self.now, message.body)
            else:
                self._wait(message, unread)

    def _drop(self) -> Iterator[LogMessage]:
        """Give those that wait: their clocks were ahead."""
        yield from (message._replace(time=self.now, is_ahead=True) for message in self.waiting)
        self.waiting, self._bytes = [], 0

    def _wait(self, message: LogMessage, unread: deque[LogMessage]) -> None:
        """Let a message wait; if those that wait show that time did pass, set the time, and they are read again."""
        self.waiting.append(message)
        self._bytes += len(message.body)
        if len(self.waiting) >= MOST or self._bytes >= MOST_BYTES:
            shown = median_low(waiting.time for waiting in self.waiting)
        elif not message.body and any(abs(message.time - other.time) <= self._ahead for other in self.waiting[:-1]):
            shown = message.time
        else:
            return
        first = next(waiting.time for waiting in self.waiting if waiting.time <= shown + self._ahead)
        # The edge of a period, because a chunk ends there, and whoever goes on knows no other time.
        self.now = first // self._period * self._period
        unread.extendleft(reversed(self.waiting))
        self.waiting, self._bytes = [], 0
