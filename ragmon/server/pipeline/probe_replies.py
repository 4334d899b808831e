"""What probers of this server got, until the application's own records of the same requests have come, or do not.

A probe over HTTP may be seen twice: by the prober, which holds the reply, and by the application, which knows what was
retrieved. Both name the trace the prober began, and are one request.

The application's own records of probes whose replies have not come: they wait for them, on disk, for a while.
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
"""Seconds a reply waits for the application's own record, which is on its way for some seconds."""
LATELY: Final = 600.0
"""Seconds of rows in which probes are looked for at the start: a prober elsewhere sends its own record soon after."""
MOST: Final = 10_000
"""Replies that wait at once."""


class ProbeReply(NamedTuple):
    """A reply that waits, or is awaited.

    Attributes:
        record: It; before it came, what is known of the request.
        due: When it counts by itself, or is awaited no longer, seconds since the epoch.
        came: It came.
    """

    record: Record
    due: float
    came: bool


class PendingReplies:
    """Replies that wait, by trace.

    Attributes:
        hurried: Nothing is to be waited for any more.
    """

    def __init__(self) -> None:
        self.hurried = False
        self._lock = Lock()
        self._waiting: dict[bytes, ProbeReply] = {}
        self._held: dict[bytes, int] = {}

    def put(self, record: Record, due: float, *, came: bool) -> bool:
        """Take a reply, in any thread.

        Args:
            record: It, with a trace id.
            due: When it counts by itself, seconds since the epoch.
            came: False where it is only expected: the request is under way.

        Returns:
            Whether there was room.
        """
        trace_id = bytes.fromhex(record.trace_id or "")
        with self._lock:
            if len(self._waiting) >= MOST and trace_id not in self._waiting:
                return False
            self._waiting[trace_id] = ProbeReply(record, due, came)
        return True

    def get(self, trace_id: bytes) -> ProbeReply | None:
        """The reply that waits for a trace's own record."""
        return self._waiting.get(trace_id)

    def due(self, now: float, told: Container[bytes]) -> list[tuple[bytes, Record]]:
        """The replies nothing more is to be waited for; those that did not come in time are forgotten.

        Args:
            now: Seconds since the epoch.
            told: Traces of which the application has told already.
        """
        if not self._waiting:
            return []
        with self._lock:
            late = [trace_id for trace_id, reply in self._waiting.items() if not reply.came and reply.due <= now]
            for trace_id in late:
                del self._waiting[trace_id]
            found = [(trace_id, reply) for trace_id, reply in self._waiting.items() if reply.came]
        return [
            (trace_id, reply.record)
            for trace_id, reply in found
            if reply.due <= now or trace_id in told or self.hurried
        ]

    def commit(self, trace_ids: Iterable[bytes]) -> None:
        """It is on disk what became of some."""
        with self._lock:
            for trace_id in trace_ids:
                self._waiting.pop(trace_id, None)
                self._held.pop(trace_id, None)

    def loose(self) -> dict[bytes, Record]:
        """Those that came and are not on disk."""
        if not self._waiting:
            return {}
        with self._lock:
            found = [(trace_id, reply) for trace_id, reply in self._waiting.items() if trace_id not in self._held]
        return {trace_id: reply.record for trace_id, reply in found if reply.came}

    def held(self, numbers: Mapping[bytes, int]) -> None:
        """Some are on disk, under these numbers."""
        self._held.update(numbers)

    def number(self, trace_id: bytes) -> int:
        """The number under which one is on disk; 0 where it is not."""
        return self._held.get(trace_id, 0)

    def reset_journal(self) -> None:
        """The journal was lost, and with it what it held."""
        self._held.clear()


def is_from_prober(record: Record) -> bool:
    """Whether a prober made a record, and not the application."""
    return record.source == constants.PROBE and PROBE_TAG in (record.tags or ())


def recently_probed(journal: JournalReaderBase) -> Iterator[bytes]:
    """The traces of probes in the newest rows."""
    mark = f'"source":"{constants.PROBE}"'.encode()
    for row in journal.rows(after=journal.last_before(journal.last()[1] - LATELY)):
        for line in row.lines.split(b"\n") if mark in row.lines else ():
            found = decode_entry(line) if mark in line else None
            if isinstance(found, Record) and found.source == constants.PROBE and found.trace_id:
                yield bytes.fromhex(found.trace_id)


def join_reply(own: Record, reply: Record) -> Record:
    """One record of two: the application's, and from the reply what that does not say.

    Args:
        own: The application's, which may have taken the probe for a user's request.
        reply: The prober's.
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
        verdicts=own.verdicts if own.verdicts is not None else reply.verdicts,
    )


def _says_its_claim(record: Record) -> bool:
    """Whether the text of its claim is there, or was compared with the gold where it was."""
    has_text = record.answer_json is not None and record.answer_json.claim is not None
    return has_text or (record.facts is not None and record.facts.gold_version is not None)


def _answer(own: Record, reply: Record) -> Answer | None:
    mine, theirs = own.answer_json, reply.answer_json
    if mine is None or theirs is None:
        return mine or theirs
    claim = mine.claim if _says_its_claim(own) else theirs.claim
    return Answer(claim, mine.citations if mine.citations is not None else theirs.citations)


def _facts(own: Record, reply: Record) -> TextFacts | None:
    """What was decided about the text: the application's, or the reply's where the application compared no claim."""
    if _says_its_claim(own) or reply.answer_json is None:
        return own.facts
    grounded = None if own.facts is None else own.facts.grounded
    if reply.facts is None:
        return None if grounded is None else TextFacts(grounded=grounded)
    return msgspec.structs.replace(reply.facts, grounded=grounded)


class PendingProbeRecord(NamedTuple):
    """A record that waits for the reply to its probe.

    Attributes:
        trace_id: Its trace.
        record: It, as the probe it is.
        seq: Its number among what the journal lets wait; 0 where that journal is gone.
    """

    trace_id: bytes
    record: Record
    seq: int


class PendingProbeRecords:
    """Records that came before the replies to their probes, by trace. No more wait than replies are expected."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, PendingProbeRecord] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._waiting

    def add(self, found: Iterable[PendingProbeRecord]) -> None:
        """Let some wait."""
        self._waiting.update((one.trace_id, one) for one in found)

    def due(self, replies: PendingReplies, now: float) -> Iterator[tuple[PendingProbeRecord, ProbeReply | None]]:
        """Those that wait no longer, and the reply that has come; None where it is awaited in vain.

        Args:
            replies: What probers got, or expect.
            now: Seconds since the epoch.
        """
        for one in self._waiting.values():
            reply = replies.get(one.trace_id)
            if reply is not None and reply.came:
                yield one, reply
            elif reply is None or reply.due <= now or replies.hurried:
                yield one, None

    def commit(self, trace_ids: Iterable[bytes]) -> None:
        """It is on disk what became of some."""
        for trace_id in trace_ids:
            self._waiting.pop(trace_id, None)

    def reset_journal(self) -> None:
        """The journal was lost, and with it the numbers in it."""
        self._waiting = {trace_id: one._replace(seq=0) for trace_id, one in self._waiting.items()}
