"""Finding the answer that a label rates, where it came shortly before in the same log: it is read there again.

Only where a trace stands in the log is remembered, not what it holds: a number for a message. Labels are few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ragmon.core.record import Label, Record
from ragmon.ingest.lines import Rejected, decode

ReadMessages = Callable[[Sequence[int]], Sequence[bytes]]
"""Reads messages of a partition again, by their offsets; those that are not there any more are left out."""
LABEL_LINE: Final = b'{"kind":"label"'
"""How a label begins that ragmon sends."""
_TRACE_ID: Final = re.compile(rb'"trace_id"\s*:\s*"([^"\\]{1,1024})"')
_Offsets = int | tuple[int, ...]


class TraceOffsets:
    """Where traces stand in a log, as far as it is remembered.

    It is kept in generations by the log's own time, as `Recent` keeps messages, and follows from the log alike.

    Args:
        span: Seconds of a generation.
        generations: How many are remembered.
    """

    def __init__(self, span: float, generations: int) -> None:
        self._span, self._most = span, generations
        self._generations: dict[int, dict[int, _Offsets]] = {}

    def see(self, trace_ids: Iterable[bytes], offset: int, now: float) -> None:
        """Remember the traces of a message.

        Args:
            trace_ids: Their ids.
            offset: The offset of the message.
            now: When it came, in the log's time.
        """
        current = int(now // self._span)
        generation = self._generations.get(current)
        if generation is None:
            generation = self._generations[current] = {}
            for number in [number for number in self._generations if number <= current - self._most]:
                del self._generations[number]
        for trace_id in trace_ids:
            key = hash(trace_id)
            known = generation.get(key)
            if known is None:
                generation[key] = offset
            elif offset not in (known := _several(known)):
                generation[key] = (*known, offset)

    def of(self, trace_id: bytes, now: float) -> list[int]:
        """The offsets of the messages of a trace, in order.

        Args:
            trace_id: Its id.
            now: The log's time.
        """
        oldest, key = int(now // self._span) - self._most, hash(trace_id)
        found = (offsets.get(key, ()) for number, offsets in self._generations.items() if number > oldest)
        return sorted(offset for offsets in found for offset in _several(offsets))


def _several(offsets: _Offsets) -> tuple[int, ...]:
    return (offsets,) if isinstance(offsets, int) else offsets


def traces_in(message: bytes) -> list[bytes]:
    """The traces of the records in lines of a trace log, in lower case.

    >>> traces_in(b'{"v":1,"trace_id":"5A"}'), traces_in(b'{"kind":"label","trace_id":"5a"}')
    ([b'5a'], [])
    """
    lines = message.splitlines() if LABEL_LINE in message else (message,)
    return [found.lower() for line in lines if not line.startswith(LABEL_LINE) for found in _TRACE_ID.findall(line)]


def answer_in(bodies: Iterable[bytes], trace_id: str) -> Record | None:
    """The last record of a trace in messages of lines; None where there is none.

    Args:
        bodies: The messages.
        trace_id: The trace, in lower case.
    """
    found = None
    for body in bodies:
        for line in body.splitlines():
            try:
                record = decode(line) if line else None
            except Rejected:
                continue
            if isinstance(record, Record) and (record.trace_id or "").lower() == trace_id:
                found = record
    return found


def labels_in(message: bytes) -> Iterator[Label]:
    """The labels in lines that were counted before; what cannot be read was accounted for."""
    for line in message.splitlines():
        try:
            label = decode(line) if line else None
        except Rejected:
            continue
        if isinstance(label, Label):
            yield label
