"""Foreign traces on their way to being records, and whose spans may still come when they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon.config.settings import Settings
from ragmon.ingest.otlp.requests import Foreign, read
from ragmon.ingest.rejected import Rejected
from ragmon.journal import Journal
from ragmon.server.complaints import complain
from ragmon.server.desk import Form
from ragmon.server.keeping.assembling import DECORATED, UNSAMPLED, Assembled, Assembler, drawn
from ragmon.server.keeping.counts import Counts, count
from ragmon.server.keeping.row import Row
from ragmon.server.keeping.waiting import LATE, Limits, Room

REMEMBERED: Final = 200_000
"""Traces that are done and are remembered, to know their late spans."""
MEMORY: Final = 3600.0
"""Seconds for which they are, after the server began anew."""
TRACE_ID: Final = 16
"""Bytes of a trace's id, with which every key begins."""
WHOLE: Final = 24
"""Bytes of the key of a whole record: its trace and its span."""


class Traces:
    """Traces that wait, those that are complete and not on disk yet, and those that are done.

    Args:
        settings: The configuration.
        limits: How long and how much is waited for.

    Attributes:
        ready: Complete traces, until it is on disk what became of them.
        released: Journalled requests nothing waits for any more.
        forgotten: Traces that were forgotten while nobody served, and are not accounted for yet.
    """

    def __init__(self, settings: Settings, limits: Limits | None = None) -> None:
        self.ready: list[Assembled] = []
        self.released: list[int] = []
        self.forgotten: list[bytes] = []
        self._room = Room(limits)
        self._assembler = Assembler(settings)
        self._done: dict[bytes, None] = {}
        self._own: dict[bytes, None] = {}

    def configure(self, settings: Settings) -> None:
        """From now on read traces as another configuration says."""
        self._assembler = Assembler(settings)

    @property
    def lowest(self) -> int:
        """The smallest draw of a trace that is to be a record."""
        return self._assembler.lowest

    @property
    def pending(self) -> int:
        """Traces of which it is not on disk what became of them."""
        return len(self._room.traces) + len(self.ready) + len(self.forgotten)

    def sort(self, foreign: Sequence[Foreign], row: Row) -> list[Foreign]:
        """The spans of a request that belong to traces that wait, or begin one; the row counts the others.

        Args:
            foreign: Its spans.
            row: The row they are written with.
        """
        kept = []
        for piece in foreign:
            trace_id = piece.trace_id
            if trace_id in self._done or trace_id in row.passed:
                count(row.counts.spans, DECORATED if trace_id in self._own else LATE)
            elif trace_id in self._room.traces or trace_id in row.begun:
                kept.append(piece)
            elif not drawn(trace_id, self.lowest):
                self._pass_over(piece, row.counts)
            else:
                row.counts.received += 1
                if trace_id in self._own:
                    row.passed.add(trace_id)
                    count(row.counts.ignored, DECORATED)
                    count(row.counts.spans, DECORATED)
                else:
                    row.begun.add(trace_id)
                    kept.append(piece)
        return kept

    @staticmethod
    def _pass_over(piece: Foreign, counts: Counts) -> None:
        """Count a trace that lost the draw once, by its root: nothing is remembered of it."""
        if piece.is_root:
            counts.received += 1
            count(counts.ignored, UNSAMPLED)

    def settle(self, row: Row, counts: Counts) -> None:
        """A row is on disk: what was ready is done, and what came with it waits.

        Args:
            row: The row.
            counts: Where spans are counted that belong to no record.
        """
        self.released.clear()
        for found in self.ready:
            self.released += self._room.release(found.waiting)
        self.ready.clear()
        self.forgotten.clear()
        for trace_id in row.own:
            _remember(self._own, trace_id)
        for trace_id in row.passed:
            _remember(self._done, trace_id)
        for request, pieces, seq in row.held:
            self._hold(pieces, seq, row.arrival, len(request.body), counts)

    def _hold(self, pieces: Sequence[Foreign], request: int, now: float, size: int, counts: Counts) -> None:
        found = self._room.add(pieces, request, now, size // max(1, len(pieces)))
        del found["new"]
        for reason, n in found.items():
            count(counts.spans, reason, n)
        if not self._room.holds(request):
            self.released.append(request)

    def complete(self, now: float, *, everything: bool = False) -> None:
        """Make records of the traces nothing more is to be waited for, or of all that wait."""
        for trace_id, waiting in self._room.due(now, everything=everything):
            self.ready.append(self._assembler.assemble(trace_id, waiting, decorated=trace_id in self._own))
            _remember(self._done, trace_id)

    def begin_again(self, now: float) -> None:
        """The journal was lost, and with it the requests that wait: traces are taken as they are."""
        self.complete(now, everything=True)
        for found in self.ready:
            found.waiting.requests.clear()
        self._room.forget_requests()
        self.released.clear()

    def restore(self, journal: Journal, now: float) -> None:
        """Let wait again what waited before this process began.

        Raises:
            JournalError: It cannot be read.
        """
        oldest = next((body.arrival for body in journal.bodies()), now)
        done = journal.assembled(min(oldest, now - MEMORY))
        for trace_id, arrival in done.items():
            _remember(self._done, trace_id)
            if arrival < 0:
                self.forgotten.append(trace_id)
        for unique in journal.recent():
            if len(unique) == WHOLE:
                _remember(self._own, unique[:TRACE_ID])
        unused = Counts()
        for body in journal.bodies():
            try:
                batch = read(body.body, json=body.form == Form.JSON.value)
            except Rejected as rejected:
                complain(f"a journalled request cannot be read any more ({rejected.reason})", rejected)
                self.released.append(body.seq)
                continue
            kept = [one for one in batch.foreign if one.trace_id not in done and drawn(one.trace_id, body.lowest)]
            self._hold(kept, body.seq, body.arrival, len(body.body), unused)


def _remember(traces: dict[bytes, None], trace_id: bytes) -> None:
    traces[trace_id] = None
    if len(traces) > REMEMBERED:
        del traces[next(iter(traces))]
