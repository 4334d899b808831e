"""Correlation of probe replies with the application's own records of the same requests.

A probe over HTTP may be seen twice: by the prober, which holds the reply, and by the application, which knows what was
retrieved. Both carry the trace id that the prober chose, and are one request. A reply waits a while for the
application's record, and a record that arrives first waits, on disk, for the reply.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.core.constants import PROBE_TAG
from ragmon.core.record import Answer, Record, Sampling, TextFacts, decode_entry
from ragmon.server.journal.reader import JournalReaderBase

WAIT: Final = 10.0
"""Seconds a reply waits for the application's own record, which takes some seconds to arrive."""
LATELY: Final = 600.0
"""Seconds of rows that are searched for probes at start: a prober on another host sends its own record soon after."""
MOST: Final = 10_000
"""Replies that may wait at once."""


class ProbeReply(NamedTuple):
    """A reply that waits for the application's record, or that is expected.

    Attributes:
        record: The reply; before it arrived, what is known of the request.
        due: When it is scored alone, or is no longer expected, seconds since the epoch.
        arrived: Whether it has arrived.
    """

    record: Record
    due: float
    arrived: bool


class PendingReplies:
    """Probe replies that wait for records, by trace.

    Attributes:
        hurried: Nothing waits any longer: the server is stopping.
    """

    def __init__(self) -> None:
        self.hurried = False
        self._lock = Lock()
        self._waiting: dict[bytes, ProbeReply] = {}
        self._numbers: dict[bytes, int] = {}

    def put(self, record: Record, due: float, *, arrived: bool) -> bool:
        """Add a reply; safe in any thread.

        Args:
            record: The reply, with a trace id.
            due: When it is scored alone, seconds since the epoch.
            arrived: False where the reply is only expected: the request is in flight.

        Returns:
            Whether the reply was accepted; False where too many wait.
        """
        trace_id = bytes.fromhex(record.trace_id or "")
        with self._lock:
            if len(self._waiting) >= MOST and trace_id not in self._waiting:
                return False
            self._waiting[trace_id] = ProbeReply(record, due, arrived)
        return True

    def get(self, trace_id: bytes) -> ProbeReply | None:
        """The reply, arrived or expected, of a trace."""
        return self._waiting.get(trace_id)

    def due(self, now: float, with_record: Container[bytes]) -> list[tuple[bytes, Record]]:
        """The replies that wait no longer; expected replies that did not arrive in time are dropped.

        Args:
            now: Seconds since the epoch.
            with_record: Traces whose records the application has sent already.
        """
        if not self._waiting:
            return []
        with self._lock:
            overdue = [trace_id for trace_id, reply in self._waiting.items() if not reply.arrived and reply.due <= now]
            for trace_id in overdue:
                del self._waiting[trace_id]
            arrived = [(trace_id, reply) for trace_id, reply in self._waiting.items() if reply.arrived]
        return [
            (trace_id, reply.record)
            for trace_id, reply in arrived
            if reply.due <= now or trace_id in with_record or self.hurried
        ]

    def commit(self, trace_ids: Iterable[bytes]) -> None:
        """Remove the replies of these traces: their outcome is on disk."""
        with self._lock:
            for trace_id in trace_ids:
                self._waiting.pop(trace_id, None)
                self._numbers.pop(trace_id, None)

    def loose(self) -> dict[bytes, Record]:
        """The replies that arrived and are not on disk."""
        if not self._waiting:
            return {}
        with self._lock:
            unstored = [(trace_id, reply) for trace_id, reply in self._waiting.items() if trace_id not in self._numbers]
        return {trace_id: reply.record for trace_id, reply in unstored if reply.arrived}

    def mark_stored(self, numbers: Mapping[bytes, int]) -> None:
        """Note the journal numbers of replies that were stored."""
        self._numbers.update(numbers)

    def number(self, trace_id: bytes) -> int:
        """The journal number of a stored reply; 0 where it is not stored."""
        return self._numbers.get(trace_id, 0)

    def reset_journal(self) -> None:
        """Forget all numbers: the journal was lost."""
        self._numbers.clear()


def is_from_prober(record: Record) -> bool:
    """Whether a prober made a record, not the application."""
    return record.source == constants.PROBE and PROBE_TAG in (record.tags or ())


def recently_probed(journal: JournalReaderBase) -> Iterator[bytes]:
    """The trace ids of probes in the newest rows."""
    pattern = f'"source":"{constants.PROBE}"'.encode()
    for row in journal.rows(after=journal.last_before(journal.last()[1] - LATELY)):
        for line in row.lines.split(b"\n") if pattern in row.lines else ():
            entry = decode_entry(line) if pattern in line else None
            if isinstance(entry, Record) and entry.source == constants.PROBE and entry.trace_id:
                yield bytes.fromhex(entry.trace_id)


def join_reply(own: Record, reply: Record) -> Record:
    """Join the application's record with the reply, which fills in the missing fields.

    Args:
        own: The application's record, which may have been taken for a user's request.
        reply: The prober's record.
    """
    sampling = own.sampling or reply.sampling
    stratum = constants.REST if sampling is None or sampling.stratum not in constants.STRATA else sampling.stratum
    return msgspec.structs.replace(
        own,
        source=constants.PROBE,
        pipeline=reply.pipeline,
        qid=reply.qid,
        q=own.q if own.q is not None else reply.q,
        error=own.error or reply.error,
        answer_json=_answer(own, reply),
        facts=_facts(own, reply),
        retrieved_ids=own.retrieved_ids if own.retrieved_ids is not None else reply.retrieved_ids,
        candidate_ids=own.candidate_ids if own.candidate_ids is not None else reply.candidate_ids,
        contexts=own.contexts if own.contexts is not None else reply.contexts,
        latency_ms=own.latency_ms or reply.latency_ms,
        index_hash=own.index_hash or reply.index_hash,
        build=own.build or reply.build,
        sampling=Sampling(stratum="error" if reply.error else stratum),
        tags={**(reply.tags or {}), **(own.tags or {})},
        measures={**(reply.measures or {}), **(own.measures or {})} or None,
        judge_versions={**(reply.judge_versions or {}), **(own.judge_versions or {})} or None,
        verdicts=own.verdicts if own.verdicts is not None else reply.verdicts,
    )


def _has_claim(record: Record) -> bool:
    """Whether a record has the text of its claim, or the result of comparing it with the gold."""
    has_text = record.answer_json is not None and record.answer_json.claim is not None
    return has_text or (record.facts is not None and record.facts.gold_version is not None)


def _answer(own: Record, reply: Record) -> Answer | None:
    own_answer, reply_answer = own.answer_json, reply.answer_json
    if own_answer is None or reply_answer is None:
        return own_answer or reply_answer
    claim = own_answer.claim if _has_claim(own) else reply_answer.claim
    return Answer(claim, own_answer.citations if own_answer.citations is not None else reply_answer.citations)


def _facts(own: Record, reply: Record) -> TextFacts | None:
    """The text facts: the application's, or the reply's where the application compared no claim."""
    if _has_claim(own) or reply.answer_json is None:
        return own.facts
    grounded = None if own.facts is None else own.facts.grounded
    if reply.facts is None:
        return None if grounded is None else TextFacts(grounded=grounded)
    return msgspec.structs.replace(reply.facts, grounded=grounded)


class PendingProbeRecord(NamedTuple):
    """A record that waits for the reply to its probe.

    Attributes:
        trace_id: Its trace id.
        record: The record, already marked as a probe.
        seq: Its number among the stored requests; 0 where that journal was lost.
    """

    trace_id: bytes
    record: Record
    seq: int


class PendingProbeRecords:
    """Records that arrived before the replies to their probes, by trace; at most as many as expected replies."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, PendingProbeRecord] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._waiting

    def add(self, found: Iterable[PendingProbeRecord]) -> None:
        """Add records."""
        self._waiting.update((record.trace_id, record) for record in found)

    def due(self, replies: PendingReplies, now: float) -> Iterator[tuple[PendingProbeRecord, ProbeReply | None]]:
        """The records that wait no longer, each with its reply; None where the reply is overdue.

        Args:
            replies: The replies that arrived or are expected.
            now: Seconds since the epoch.
        """
        for pending in self._waiting.values():
            reply = replies.get(pending.trace_id)
            if reply is not None and reply.arrived:
                yield pending, reply
            elif reply is None or reply.due <= now or replies.hurried:
                yield pending, None

    def commit(self, trace_ids: Iterable[bytes]) -> None:
        """Remove the records of these traces: their outcome is on disk."""
        for trace_id in trace_ids:
            self._waiting.pop(trace_id, None)

    def reset_journal(self) -> None:
        """Forget all numbers: the journal was lost."""
        self._waiting = {trace_id: pending._replace(seq=0) for trace_id, pending in self._waiting.items()}
