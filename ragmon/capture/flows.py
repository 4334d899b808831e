"""What is known of a stream while it is followed: its call, what it has given so far, whether it is over."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final, final

from ragmon.capture.calls import Call, Mark, active, leave
from ragmon.capture.outcomes import ABANDONED, CUT, ended, raised, streamed

ITEMS: Final = 65_536
SIZE: Final = 4 * 1024 * 1024
"""Items, and characters or bytes, of a stream that are held; of a longer one the answer is unknown."""


@final
class Flow:
    """A stream of one call.

    Args:
        call: The call; None where the stream is part of another call, and followed by that.
        started: When the call began, by `perf_counter`.
    """

    __slots__ = ("_call", "_over", "_room", "_started")

    def __init__(self, call: Call | None, started: float) -> None:
        self._call = call
        self._started = started
        self._room = SIZE
        self._over = call is None
        if call is not None and (call.odds.audit or call.plan.keep):
            call.items = []

    def enter(self) -> Mark | None:
        """Put the call's context in place, to make one part."""
        return None if self._call is None else active.set(self._call)

    @staticmethod
    def leave(mark: Mark | None) -> None:
        """Take it away again."""
        if mark is not None:
            leave(mark)

    def add(self, item: Any) -> None:
        """Hold a part that was made."""
        call = self._call
        if self._over or call is None or call.items is None:
            return
        self._room -= len(item) if isinstance(item, str | bytes) else 1
        if self._room < 0 or len(call.items) >= ITEMS:
            call.items, call.ending = None, CUT
        else:
            call.items.append(item)

    def finish(self) -> None:
        """It gave its last part."""
        if not self._over and self._call is not None:
            self._over = True
            streamed(self._call, perf_counter() - self._started)

    def abandon(self) -> None:
        """Nobody asks for the rest."""
        if not self._over and self._call is not None:
            self._over = True
            ended(self._call, perf_counter() - self._started, ABANDONED)

    def fail(self, error: BaseException) -> None:
        """Making a part raised."""
        if not self._over and self._call is not None:
            self._over = True
            raised(self._call, perf_counter() - self._started, error)
