"""Complete traces become records: mapped, redacted, and with how likely they were to be kept."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ragmon.capture.draws import SPAN, threshold
from ragmon.config.settings import Settings
from ragmon.contract import Record, Sampling
from ragmon.journal.entries import encode
from ragmon.names import DEFAULT_PIPELINE, INVALID_SCHEMA
from ragmon.privacy import Redactions
from ragmon.server.complaints import complain
from ragmon.server.keeping.accepting import STEP_NS
from ragmon.server.keeping.counts import Counts, count
from ragmon.server.keeping.waiting import Waiting
from ragmon.spans import Mapped, to_record
from ragmon.terms import asked

UNSAMPLED: Final = "unsampled"
"""Why a trace is no record: it lost the draw."""
DECORATED: Final = "decorated"
"""Why a trace is no record: a whole one came of a decorated call in it."""


class Assembled(NamedTuple):
    """What became of a trace.

    Attributes:
        trace_id: The trace.
        waiting: Its spans, until it is on disk what became of them.
        key: What tells its record from all others; None where there is none.
        record: The record, as it is journalled and scored.
        line: The same as the journal holds it.
        counts: What became of it where it is none, and what its spans do not tell.
    """

    trace_id: bytes
    waiting: Waiting
    key: tuple[int, bytes] | None
    record: Record | None
    line: bytes
    counts: Counts


def drawn(trace_id: bytes, lowest: int) -> bool:
    """Whether a trace won the draw that its id is, before anything else of it is read.

    Args:
        trace_id: 16 bytes.
        lowest: The smallest draw that wins.
    """
    return int.from_bytes(trace_id, "big") % SPAN >= lowest


class Assembler:
    """Makes records of foreign traces.

    Args:
        settings: The configuration.

    Attributes:
        lowest: The smallest draw of a trace that is to be a record; 0 where nobody set a rate.
    """

    def __init__(self, settings: Settings) -> None:
        self._asked = asked(settings)
        told = settings.origins.get("sampling.rate", "default") != "default"
        self._rate = self._asked.rate if told else 1.0
        self.lowest = threshold(self._rate)
        self._redact = Redactions(settings)

    def assemble(self, trace_id: bytes, waiting: Waiting, *, decorated: bool = False) -> Assembled:
        """What becomes of a trace.

        Args:
            trace_id: The trace.
            waiting: All its spans.
            decorated: A whole record came of a decorated call in it.
        """
        counts = Counts()
        if decorated:
            count(counts.ignored, DECORATED)
            return Assembled(trace_id, waiting, None, None, b"", counts)
        try:
            mapped = self._map(waiting)
            record = mapped.record if mapped.record is None else self._treated(mapped.record, waiting)
        except Exception as error:  # noqa: BLE001 - attributes are foreign data, and redactors foreign code
            count(counts.dropped, INVALID_SCHEMA)
            complain("a trace's spans could not be read", error)
            return Assembled(trace_id, waiting, None, None, b"", counts)
        if record is None:
            count(counts.ignored, mapped.reason)
            return Assembled(trace_id, waiting, None, None, b"", counts)
        for field, reason in mapped.missing.items():
            count(counts.unknown, f"{field}|{reason}")
        key = (round((record.ts or 0.0) * 1e9) // STEP_NS, trace_id)
        return Assembled(trace_id, waiting, key, record, encode(record), counts)

    def _map(self, waiting: Waiting) -> Mapped:
        pieces = waiting.pieces.values()
        service = next((piece.service for piece in pieces if piece.service), None)
        build = next((piece.build for piece in pieces if piece.build), None)
        return to_record(
            (piece.span() for piece in pieces),
            id_from=self._asked.id_from,
            merge=self._asked.merge,
            pipeline=self._asked.pipeline,
            service=service,
            build=build,
        )

    def _treated(self, record: Record, waiting: Waiting) -> Record:
        sampling = Sampling(p_audit=self._rate, p=self._rate)
        record.pipeline = record.pipeline or DEFAULT_PIPELINE
        kept = msgspec.structs.replace(record, sampling=sampling, partial=record.partial or not waiting.complete)
        return self._redact(kept)
