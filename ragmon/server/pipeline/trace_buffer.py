"""Foreign traces on their way to being records, and whose spans may still come when they are."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from ragmon.config.settings import Settings
from ragmon.core.record import Record, decode_entry
from ragmon.ingest.otlp.batch import ExternalSpan
from ragmon.server.journal import Journal
from ragmon.server.journal.erasure import RECORD
from ragmon.server.journal.quarantine import ASSEMBLING, READING, Attempts, body_key, trace_key
from ragmon.server.journal.reader import JournalReaderBase, PendingRequest
from ragmon.server.journal.schema import TRACE_ID
from ragmon.server.pipeline.assembler import (
    DECORATED,
    LATE,
    UNSAMPLED,
    AssembledTrace,
    Assembler,
    AssemblyLimits,
    OpenTrace,
    TraceBuffer,
    is_sampled,
    quarantined_trace,
)
from ragmon.server.pipeline.clock import SLICE, Deadline
from ragmon.server.pipeline.decode import BatchCounts, WriteBatch, count, spans_of
from ragmon.server.pipeline.probe_replies import (
    WAIT,
    PendingProbeRecord,
    PendingProbeRecords,
    PendingReplies,
    recently_probed,
)

REMEMBERED: Final = 200_000
"""Traces that are done and are remembered, to know their late spans."""
MEMORY: Final = 3600.0
"""Seconds for which they are, after the server began anew."""
IN_MEMORY: Final = 3
"""Bytes in memory for a byte of a request that waits, at most: those of protobuf take two, those of JSON three."""
WHOLE: Final = TRACE_ID + 8
"""Bytes of the key of a whole record: its trace and its span."""


class TraceTracker:
    """Traces that wait, those that are complete and not on disk yet, and those that are done.

    Args:
        settings: The configuration.
        limits: How long and how much is waited for.

    Attributes:
        ready: Complete traces, until it is on disk what became of them.
        released: Journalled requests nothing waits for any more.
        forgotten: Traces that were forgotten while nobody served, and are not accounted for yet.
        unknown: Traces that are done, and of which a new journal does not know it yet.
        replies: What probers got, and the application may yet tell more of.
        ahead: What the application told of probes whose replies have not come.
        behind: Traces are due that are not assembled yet.
    """

    def __init__(self, settings: Settings, limits: AssemblyLimits | None = None) -> None:
        self.ready: list[AssembledTrace] = []
        self.released: list[int] = []
        self.forgotten: list[bytes] = []
        self.unknown: list[bytes] = []
        self.replies = PendingReplies()
        self.ahead = PendingProbeRecords()
        self.behind = False
        self._assembling = 0
        self._room = TraceBuffer(limits)
        self._assembler = Assembler(settings)
        self._done: dict[bytes, None] = {}
        self._own: dict[bytes, None] = {}
        self._probed: dict[bytes, None] = {}

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
        waiting = len(self._room.traces) + self._assembling + len(self.ready)
        return waiting + len(self.forgotten) + len(self.ahead)

    def has_news(self, now: float) -> bool:
        """Whether there is anything to write."""
        return bool(self.ready or self.forgotten or self.alone(now) or any(self.ahead.due(self.replies, now)))

    def alone(self, now: float) -> list[tuple[bytes, Record]]:
        """The replies to probes that nothing more is to be waited for."""
        found = self.replies.due(now, self._probed)
        if not found:
            return []
        ready = {one.trace_id for one in self.ready}
        held = [trace_id for trace_id, _ in found if trace_id in self._room.traces or trace_id in ready]
        return [one for one in found if one[0] not in held or self.replies.hurried]

    def probed(self, trace_id: bytes) -> bool:
        """Whether a whole record of a trace came lately, and counted as a probe."""
        return trace_id in self._probed

    def new(self, foreign: Sequence[ExternalSpan]) -> set[bytes]:
        """The traces of some spans that neither wait nor are remembered as done: the journal knows whether they are."""
        found = {piece.trace_id for piece in foreign}
        return found.difference(self._done).difference(self._room.traces) if found else found

    def sort(self, foreign: Sequence[ExternalSpan], row: WriteBatch, done: Container[bytes]) -> list[ExternalSpan]:
        """The spans of a request that belong to traces that wait, or begin one; the row counts the others.

        Args:
            foreign: Its spans.
            row: The row they are written with.
            done: Traces that are done although nobody here remembers.
        """
        kept = []
        for piece in foreign:
            trace_id = piece.trace_id
            if trace_id in self._done or trace_id in row.passed or trace_id in done:
                count(row.counts.spans, DECORATED if trace_id in self._own else LATE)
            elif trace_id in self._room.traces or trace_id in row.begun:
                kept.append(piece)
            elif not is_sampled(trace_id, self.lowest):
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
    def _pass_over(piece: ExternalSpan, counts: BatchCounts) -> None:
        """Count a trace that lost the draw once, by its root: nothing is remembered of it."""
        if piece.is_root:
            counts.received += 1
            count(counts.ignored, UNSAMPLED)

    def commit(self, row: WriteBatch, counts: BatchCounts) -> None:
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
        self.unknown.clear()
        self.replies.commit(row.answered)
        self.replies.held(row.replies)
        self.ahead.commit(row.overdue)
        self.ahead.add(row.early.values())
        for trace_id in row.own:
            _remember(self._own, trace_id)
        for trace_id in row.probed:
            _remember(self._probed, trace_id)
        for trace_id in row.passed:
            _remember(self._done, trace_id)
        for request, pieces, seq in row.held:
            self._hold(pieces, PendingRequest(seq, row.arrival, "", request.body, self.lowest), counts)

    def _hold(self, pieces: Sequence[ExternalSpan], body: PendingRequest, counts: BatchCounts) -> None:
        request = body.seq
        found = self._room.add(pieces, request, body.arrival, IN_MEMORY * len(body.body), body.lowest)
        del found["new"]
        for reason, n in found.items():
            count(counts.spans, reason, n)
        if not self._room.holds(request):
            self.released.append(request)

    def complete(self, now: float, attempts: Attempts, lock: AbstractContextManager[Any]) -> None:
        """Make records of traces nothing more is to be waited for: for a moment, or until the others have room.

        Args:
            now: Seconds since the epoch.
            attempts: Where what is begun is noted.
            lock: Held while it changes what waits, and not while a trace is assembled.
        """
        until = Deadline(SLICE)
        self.behind = False
        while not self.behind:
            with lock:
                found = next(self._room.due(now), None)
                self._assembling = int(found is not None)
            if found is None:
                return
            with attempts.attempt(trace_key(found[0])):
                assembled = self._assemble(*found)
            with lock:
                self._assembling = 0
                self._put(assembled)
            self.behind = until.passed and not self._room.crowded

    def _assemble(self, trace_id: bytes, waiting: OpenTrace) -> AssembledTrace:
        return self._assembler.assemble(trace_id, waiting, decorated=trace_id in self._own)

    def _put(self, assembled: AssembledTrace) -> None:
        """It is known what becomes of a trace; it is ready to be written."""
        self.ready.append(assembled)
        _remember(self._done, assembled.trace_id)

    def reset_journal(self, now: float) -> None:
        """The journal was lost, and with it the requests that wait: traces are taken as they are."""
        for trace in self._room.due(now, everything=True):
            self._put(self._assemble(*trace))
        for found in self.ready:
            found.waiting.requests.clear()
        self._room.forget_requests()
        self.ahead.reset_journal()
        self.replies.reset_journal()
        self.released.clear()
        self.unknown = list(self._done)

    def restore(self, journal: Journal, now: float, attempts: Attempts | None = None) -> None:
        """Let wait again what waited before this process began.

        Args:
            journal: Where it is.
            now: Seconds since the epoch.
            attempts: What the process ended over before; None where nobody assembles what waits.

        Raises:
            JournalError: It cannot be read.
        """
        for trace_id, arrival in journal.assembled(now - MEMORY).items():
            _remember(self._done, trace_id)
            if arrival < 0:
                self.forgotten.append(trace_id)
        for unique in journal.recent():
            if len(unique) == WHOLE:
                _remember(self._own, unique[:TRACE_ID])
        for trace_id in recently_probed(journal):
            _remember(self._probed, trace_id)
        for body in journal.bodies():
            if body.form == RECORD:
                self._wait_again(body, now)
        self._resume_all(journal, attempts)

    def _resume_all(self, journal: JournalReaderBase, attempts: Attempts | None) -> None:
        """Let spans wait again; what ended the process twice is set aside."""
        poison = {item.key for item in attempts.poison()} if attempts else set()
        for body in journal.bodies():
            key = body_key(body.seq, body.arrival)
            if body.form == RECORD:
                continue
            if key in poison:
                self._quarantine(body, journal)
            elif attempts is None:
                self._resume(body, journal)
            else:
                with attempts.attempt(key):
                    self._resume(body, journal)
        for trace_id in [one for one in self._room.traces if trace_key(one) in poison]:
            self._put(quarantined_trace(trace_id, self._room.take(trace_id), ASSEMBLING))

    def _resume(self, body: PendingRequest, journal: JournalReaderBase) -> None:
        """Let the spans of a request wait again whose traces became no record, not even one that waits itself."""
        foreign = spans_of(body)
        if foreign is None:
            self.released.append(body.seq)
            return
        waits = body.traces
        waits -= journal.known(waits)
        waits = {one for one in waits if one not in self.ahead and one not in self._done}
        self._hold([one for one in foreign if one.trace_id in waits], body, BatchCounts())

    def _quarantine(self, body: PendingRequest, journal: JournalReaderBase) -> None:
        """Set a request aside that cannot even be read, and its traces with it."""
        waits = {one for one in body.traces if one not in self.ahead and one not in self._done}
        for place, trace_id in enumerate(sorted(waits - journal.known(waits))):
            self._room.hold(trace_id, body.seq, body.arrival)
            step = "" if place else READING  # it is kept as a whole, and so once
            self._put(quarantined_trace(trace_id, self._room.take(trace_id), step))
        if not self._room.holds(body.seq):
            self.released.append(body.seq)

    def _wait_again(self, body: PendingRequest, now: float) -> None:
        """Let a reply wait again for the application's record; that waits for no reply: those to come are lost."""
        found = decode_entry(body.body)
        assert isinstance(found, Record)  # noqa: S101 - a checksum says it is what was written
        self.ahead.add(PendingProbeRecord(trace_id, found, body.seq) for trace_id in body.traces)
        if not body.traces:
            self.replies.put(found, now + WAIT, came=True)
            self.replies.held({bytes.fromhex(found.trace_id or ""): body.seq})


def _remember(traces: dict[bytes, None], trace_id: bytes) -> None:
    traces[trace_id] = None
    if len(traces) > REMEMBERED:
        del traces[next(iter(traces))]
