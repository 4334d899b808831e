"""Foreign traces on their way to being records, and whose spans may still come when they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon.config.settings import Settings
from ragmon.ingest.otlp.requests import Foreign, read
from ragmon.ingest.rejected import Rejected
from ragmon.journal import Journal
from ragmon.server.assembling import DECORATED, UNSAMPLED, Assembled, Assembler
from ragmon.server.complaints import complain
from ragmon.server.desk import Form
from ragmon.server.ledger import Counts, count
from ragmon.server.row import Row
from ragmon.server.waiting import LATE, Limits, Room

REMEMBERED: Final = 200_000
"""Traces that are done and are remembered, to know their late spans."""
MEMORY: Final = 3600.0
"""Seconds for which they are, after the server began anew."""


class Traces:
    """Traces that wait, those that are complete and not on disk yet, and those that are done.

    Args:
        settings: The configuration.
        limits: How long and how much is waited for.

    Attributes:
        ready: Complete traces, until it is on disk what became of them.
        released: Journalled requests nothing waits for any more.
    """

    def __init__(self, settings: Settings, limits: Limits | None = None) -> None:
        self.ready: list[Assembled] = []
        self.released: list[int] = []
        self._room = Room(limits)
        self._assembler = Assembler(settings)
        self._done: dict[bytes, bool] = {}

    def configure(self, settings: Settings) -> None:
        """From now on read traces as another configuration says."""
        self._assembler = Assembler(settings)

    @property
    def pending(self) -> int:
        """Traces of which it is not on disk what became of them."""
        return len(self._room.traces) + len(self.ready)

    def sort(self, foreign: Sequence[Foreign], counts: Counts, begun: set[bytes]) -> list[Foreign]:
        """The spans of a request that belong to traces that wait, or begin one.

        Args:
            foreign: Its spans.
            counts: Where the others are counted, and traces that begin.
            begun: Traces that other requests of the same row began, and those this one begins.
        """
        kept = []
        for piece in foreign:
            trace_id = piece.trace_id
            if trace_id in self._done and trace_id not in self._room.traces:
                count(counts.spans, DECORATED if self._done[trace_id] else LATE)
            elif not self._assembler.drawn(trace_id):
                self._pass_over(piece, counts)
            else:
                kept.append(piece)
                if trace_id not in self._room.traces and trace_id not in begun:
                    begun.add(trace_id)
                    counts.received += 1
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
        for trace_id in row.own:
            self._remember(trace_id, decorated=True)
        for request, pieces, seq in row.held:
            self._hold(pieces, seq, row.arrival, len(request.body), counts)

    def _hold(self, pieces: Sequence[Foreign], request: int, now: float, size: int, counts: Counts) -> None:
        found = self._room.add(pieces, request, now, size // max(1, len(pieces)))
        del found["new"]
        for reason, n in found.items():
            count(counts.spans, reason, n)

    def _remember(self, trace_id: bytes, *, decorated: bool) -> None:
        self._done[trace_id] = decorated
        if len(self._done) > REMEMBERED:
            del self._done[next(iter(self._done))]

    def complete(self, now: float) -> None:
        """Make records of the traces nothing more is to be waited for."""
        for trace_id, waiting in self._room.due(now):
            decorated = self._done.get(trace_id, False)
            self.ready.append(self._assembler.assemble(trace_id, waiting, decorated=decorated))
            self._remember(trace_id, decorated=decorated)

    def restore(self, journal: Journal, now: float) -> None:
        """Let wait again what waited before this process began."""
        for trace_id in journal.assembled(now - MEMORY):
            self._remember(trace_id, decorated=False)
        unused = Counts()
        for body in journal.bodies():
            try:
                batch = read(body.body, json=body.form == Form.JSON.value)
            except Rejected as rejected:
                complain(f"a journalled request cannot be read any more ({rejected.reason})", rejected)
                self.released.append(body.seq)
                continue
            kept = [piece for piece in batch.foreign if self._waits(piece)]
            self._hold(kept, body.seq, body.arrival, len(body.body), unused)
            if not kept:
                self.released.append(body.seq)

    def _waits(self, piece: Foreign) -> bool:
        return piece.trace_id not in self._done and self._assembler.drawn(piece.trace_id)
