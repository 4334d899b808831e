"""Where a prober of its own process sends what comes back: the server, or a file of traces."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from ragmon.capture.exporters import base
from ragmon.capture.exporters.base import BatchSink, Door, Sink
from ragmon.capture.exporters.jsonl import JsonlSink
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.record import Record
from ragmon.delivery import server, trace_log
from ragmon.privacy import Redactions
from ragmon.probes.lines import STDOUT, Lines

WAIT: Final = 10.0
"""Seconds an answer is held before it goes to a server: the application's own record of it knows more, and comes first.
"""
MOST: Final = 10_000
"""Records that are held at once."""


class Outlet:
    """Holds records for a while, and hands them on.

    Args:
        sink: Takes them.
        wait: Seconds for which each is held.

    Attributes:
        lost: Records that could not be handed on, by reason.
    """

    def __init__(self, sink: Sink | BatchSink, wait: float = 0.0) -> None:
        self.lost: Counter[str] = Counter()
        self._door = Door(sink)
        self._wait = wait
        self._held: deque[tuple[float, Record]] = deque()

    def put(self, record: Record) -> bool:
        """Take a record, in any thread; returns whether there was room."""
        if len(self._held) >= MOST:
            return False
        self._held.append((monotonic() + self._wait, record))
        return True

    def deliver(self, *, everything: bool = False) -> None:
        """Hand on what was held long enough, or everything; in one thread."""
        found: list[Record] = []
        while self._held and (everything or self._held[0][0] <= monotonic()):
            found.append(self._held.popleft()[1])
        for start in range(0, len(found), self._door.at_once):
            self.lost.update(self._door.give(found[start : start + self._door.at_once]))


@contextmanager
def outlet(settings: Settings, redact: Redactions, output: str | None) -> Iterator[Outlet]:
    """The outlet that is asked for, or configured.

    Args:
        settings: The configuration.
        redact: Takes out of records what must not leave.
        output: A file, `-` for standard output; None takes what the configuration names.

    Raises:
        RagmonError: Nothing is, or it cannot be written.
    """
    if output is not None:
        log = Lines(output, redact) if output == STDOUT else JsonlSink(output, redact)
        yield Outlet(log)
        return
    there = server(settings, lambda: redact)
    found = there or trace_log(settings, lambda: redact)
    if found is None:
        hint = "--once, --output FILE, or `[export] endpoint`"
        raise RagmonError("there is nowhere to send what comes back", hint=hint)
    try:
        yield Outlet(found, WAIT if there is not None else 0.0)
    finally:
        base.close(found)
