"""Writing one batch in a transaction: native records, complete traces, probe replies, labels and their counts.

A label is stored together with the answer it rates, so that a replay need not search for it. The two records of a
probe, the application's and the prober's, are joined into one here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ragmon.core import constants
from ragmon.core.record import Entry, ErasedTraces, Label, Record, encode_entry
from ragmon.ingest.trace_buffer import LATE
from ragmon.server.journal.erasure import RECORD
from ragmon.server.journal.failures import Failure
from ragmon.server.journal.journal import Journal, JournalBatch
from ragmon.server.journal.reader import trace_id_ends
from ragmon.server.pipeline.decode import QueuedRequest, WriteBatch
from ragmon.server.pipeline.probe_replies import PendingProbeRecord, ProbeReply, is_from_prober, join_reply
from ragmon.server.pipeline.trace_buffer import TraceTracker
from ragmon.stream.accounts import ERASED, BatchCounts, count
from ragmon.stream.assembler import AssembledTrace


def labels_of(requests: Sequence[QueuedRequest]) -> list[Label]:
    """The labels in a list of requests."""
    return [entry for request in requests for entry in request.entries if isinstance(entry, Label)]


def answers_to(batch: JournalBatch, labels: Iterable[Label], row: WriteBatch) -> Mapping[str, Record]:
    """The answers that labels rate, where they arrived with this row or before it."""
    trace_ids = {label.trace_id for label in labels}
    if not trace_ids:
        return {}
    in_row = {
        entry.trace_id: entry for entry in row.entries if isinstance(entry, Record) and entry.trace_id in trace_ids
    }
    in_journal = batch.answers(trace_ids - in_row.keys())
    return in_journal | {trace_id: record for trace_id, record in in_row.items() if trace_id is not None}


def lines_of(entries: Iterable[Entry], stored_answers: set[str]) -> Iterator[bytes]:
    """Journal lines of entries; of all labels on one answer in a row, only the first holds the answer.

    Args:
        entries: Entries of a row.
        stored_answers: Trace ids whose answers a label of this row holds; those of these entries are added.
    """
    for entry in entries:
        if isinstance(entry, Label) and entry.answer is not None:
            is_stored = entry.trace_id in stored_answers
            stored_answers.add(entry.trace_id)
            yield encode_entry(msgspec.structs.replace(entry, answer=None) if is_stored else entry)
        else:
            yield encode_entry(entry)


def with_answer(entry: Entry, answers: Mapping[str, Record]) -> Entry:
    """A label with the answer it rates, where that is known; any other entry unchanged."""
    return msgspec.structs.replace(entry, answer=answers.get(entry.trace_id)) if isinstance(entry, Label) else entry


JOINED: Final = "joined"
NO_REPLY: Final = "no_reply"
"""Results for an application's own record of a probe: joined with the reply, or the reply did not arrive in time."""


def is_probed(trace_id: bytes, traces: TraceTracker, row: WriteBatch) -> bool:
    """Whether a native record of a trace arrived and was counted as a probe."""
    return trace_id in row.probe_traces or traces.is_probe(trace_id)


def put_joined(trace_id: bytes, record: Record, batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> bool:
    """Add the application's own record of a probe whose reply has arrived, or let it wait for an expected reply.

    Returns:
        Whether the record is that of a probe; it is accounted for then.
    """
    is_final = trace_id in row.answered or trace_id in traces.ahead or trace_id in row.early_probe_records
    reply = traces.replies.get(trace_id)
    if is_final:
        row.counts.duplicate += 1
    elif reply is None:
        return False
    else:
        row.native_traces.append(trace_id)
        row.probe_traces.add(trace_id)
        if reply.arrived:
            _put_record(trace_id, record, reply, batch, traces, row)
        else:
            joined = join_reply(record, reply.record)
            seq = batch.add_pending(row.arrival, RECORD, encode_entry(joined), [trace_id])
            row.early_probe_records[trace_id] = PendingProbeRecord(trace_id, joined, seq)
    return True


def put_overdue(batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> None:
    """Add the application's records of probes whose replies have arrived since, or are overdue."""
    for pending, reply in list(traces.ahead.due(traces.replies, row.arrival)):
        row.overdue.append(pending.trace_id)
        row.probe_traces.add(pending.trace_id)
        if pending.seq and not batch.delete_pending([pending.seq]):  # another process erased it
            count(row.counts.ignored, ERASED)
            batch.mark_finished([pending.trace_id], row.arrival)
        else:
            _put_record(pending.trace_id, pending.record, reply, batch, traces, row)


def _put_record(
    trace_id: bytes,
    record: Record,
    reply: ProbeReply | None,
    batch: JournalBatch,
    traces: TraceTracker,
    row: WriteBatch,
) -> None:
    """Add the application's record of a probe, and settle the reply."""
    joined = record
    has_reply = reply is not None and _finalise_reply(trace_id, batch, traces, row)
    if reply is not None and has_reply:
        row.counts.duplicate += 1
        joined = join_reply(record, reply.record)
    count(row.counts.probed, JOINED if has_reply else NO_REPLY)
    row.put(joined, encode_entry(joined))
    batch.mark_finished([trace_id], row.arrival, recorded=True)


def _finalise_reply(trace_id: bytes, batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> bool:
    """Count a reply; returns whether it still exists: another process may have erased it."""
    row.counts.received += 1
    row.answered.add(trace_id)
    number = traces.replies.number(trace_id)
    exists = not number or bool(batch.delete_pending([number]))
    count(row.counts.ignored, ERASED, int(not exists))
    return exists


def store_replies(replies: Mapping[bytes, Record], batch: JournalBatch, arrival: float) -> dict[bytes, int]:
    """Store waiting replies in the journal; returns their numbers."""
    return {trace_id: batch.add_pending(arrival, RECORD, encode_entry(record)) for trace_id, record in replies.items()}


def put_unmatched_replies(batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> None:
    """Add the replies that wait no longer for the application's record, and store those that still wait.

    A record of the application that arrives later is a duplicate.
    """
    replies = [reply for reply in traces.overdue_replies(row.arrival) if reply[0] not in row.answered]
    for trace_id, record in replies:
        if not _finalise_reply(trace_id, batch, traces, row):
            continue
        if is_probed(trace_id, traces, row):
            row.counts.duplicate += 1
        else:
            row.put(record, encode_entry(record))
            batch.mark_finished([trace_id], row.arrival, recorded=True)
    waiting = {trace_id: reply for trace_id, reply in traces.replies.loose().items() if trace_id not in row.answered}
    row.replies.update(store_replies(waiting, batch, row.arrival))


OLDEST: Final = 86_400.0
"""Seconds for which the keys of earlier records are known; older records are dropped."""


def write_batch(
    batch: JournalBatch,
    requests: Sequence[QueuedRequest],
    traces: TraceTracker,
    loose: BatchCounts,
    now: float,
    wall: float,
) -> WriteBatch:
    """Write requests and complete traces to the journal; changes nothing outside the journal.

    Args:
        batch: The transaction.
        requests: The requests that arrived.
        traces: The open and the complete traces.
        loose: Counts of requests that added nothing to write.
        now: The arrival of the row.
        wall: The time of the clock; after a jump of the system clock that was undone, arrivals may still lie ahead of
            it.
    """
    row = WriteBatch(now)
    row.counts.add(loose)
    row.forgotten = batch.forgotten()
    if row.forgotten:
        row.put(erased := ErasedTraces(sorted(row.forgotten)), encode_entry(erased))
    _put_native(batch, requests, traces, row, min(now, wall) - OLDEST)
    labels = _put_assembled(batch, traces, row)
    put_overdue(batch, traces, row)
    put_unmatched_replies(batch, traces, row)
    answers = answers_to(batch, [*labels, *labels_of(requests)], row)
    _put_entries(row, labels, answers)
    for request in requests:
        row.counts.add(request.counts)
        _put_entries(row, request.entries, answers)
        if request.chunk is not None:
            _put_chunk_lines(batch, request.chunk.entries, row)
        pieces = traces.sort(request.external, row, batch.finished_traces(traces.new(request.external)))
        if pieces:
            trace_ids = sorted({span.trace_id for span in pieces})
            row.waiting_spans.append(
                (
                    request,
                    pieces,
                    batch.add_pending(now, request.encoding.value, request.body, trace_ids, traces.lowest),
                )
            )
    count(row.counts.ignored, ERASED, len(traces.forgotten))
    traces_of = trace_id_ends(entry.trace_id for entry in row.entries if isinstance(entry, Record))
    row.body = b"".join(row.lines)
    row.seq = batch.append(now, len(row.entries), row.counts.dump(), row.body, traces_of)
    batch.delete_pending(traces.released)
    batch.mark_finished([*row.ignored_traces, *traces.forgotten, *traces.unknown], now)
    return row


def write_without_row(journal: Journal, traces: TraceTracker, failures: list[Failure], now: float) -> None:
    """Write what needs no row: failures, waiting replies, and the release of requests whose text must be deleted.

    Args:
        journal: The journal.
        traces: Has the waiting spans and replies.
        failures: Requests that fail a gate and are not indexed yet; emptied.
        now: The time, seconds since the epoch.
    """
    unstored = traces.replies.loose()
    if not (failures or traces.released or unstored):
        return
    with journal.begin() as batch:
        batch.add_failures(failures)
        batch.delete_pending(traces.released)
        numbers = store_replies(unstored, batch, now)
    traces.replies.mark_stored(numbers)
    failures.clear()
    traces.released.clear()


def _put_entries(row: WriteBatch, entries: Iterable[Entry], answers: Mapping[str, Record]) -> None:
    """Add entries to the row, labels with the answers they rate."""
    entries_with_answers = [with_answer(entry, answers) for entry in entries]
    for entry, line in zip(entries_with_answers, lines_of(entries_with_answers, row.labelled), strict=True):
        row.put(entry, line)


def _put_chunk_lines(batch: JournalBatch, lines: Sequence[Entry], row: WriteBatch) -> None:
    """Add the lines of a chunk to the row, but nothing of traces that were erased.

    A label that found no answer where it was counted may find one among the samples here.
    """
    refused = batch.refused(entry.trace_id or "" for entry in lines if isinstance(entry, Label | Record))
    kept = [entry for entry in lines if not (isinstance(entry, Label | Record) and entry.trace_id in refused)]
    alone = [entry for entry in kept if isinstance(entry, Label) and entry.answer is None]
    answers = {trace_id: msgspec.structs.replace(r, kind=None) for trace_id, r in answers_to(batch, alone, row).items()}
    for place, entry in enumerate(kept):
        if isinstance(entry, Label):
            # The first one of a row holds the answer for all of them.
            answer = row.brought.get(entry.trace_id) or entry.answer or answers.get(entry.trace_id)
            if answer is not None:
                row.brought[entry.trace_id] = answer
            kept[place] = msgspec.structs.replace(entry, answer=answer)
    for entry, line in zip(kept, lines_of(kept, row.labelled), strict=True):
        row.put(entry, line)


def _put_native(
    batch: JournalBatch, requests: Sequence[QueuedRequest], traces: TraceTracker, row: WriteBatch, oldest: float
) -> None:
    """Add the native records, each once; the spans of a decorated call may have made a record before.

    Of the two records of a probe the first counts, where it did not wait for the other one.
    """
    records = [native for request in requests for native in request.native]
    row.counts.received += len(records)
    fresh = [native for native in records if native.ended >= oldest]
    if len(fresh) < len(records):
        count(row.counts.dropped, constants.TOO_OLD, len(records) - len(fresh))
        row.counts.native += len(records) - len(fresh)  # they arrived
    duplicates = batch.claim([native.key for native in fresh])
    recorded = batch.recorded({native.trace_id for native in fresh})
    for place, native in enumerate(fresh):
        row.counts.native += place not in duplicates
        from_prober = is_from_prober(native.record)
        is_known = is_probed(native.trace_id, traces, row) if from_prober else native.trace_id in recorded
        if place in duplicates or is_known:
            row.counts.duplicate += 1
        elif not put_joined(native.trace_id, native.record, batch, traces, row):
            row.put(native.record, native.line)
            row.native_traces.append(native.trace_id)
            if native.record.source == constants.PROBE:
                row.probe_traces.add(native.trace_id)
            if from_prober:
                recorded.add(native.trace_id)
                batch.mark_finished([native.trace_id], row.arrival, recorded=True)


def _put_assembled(batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> list[Label]:
    """Add the records of complete traces, each once; returns the ratings on their spans."""
    traces_ready = traces.ready
    if not traces_ready:
        return []
    done = batch.finished_traces(trace.trace_id for trace in traces_ready)
    forgotten = sum(arrival < 0 for arrival in done.values())
    count(row.counts.ignored, ERASED, forgotten)
    count(row.counts.ignored, LATE, len(done) - forgotten)
    new_traces = [trace for trace in traces_ready if trace.trace_id not in done]
    fresh = [trace for trace in new_traces if not _too_old(trace)]
    count(row.counts.dropped, constants.TOO_OLD, len(new_traces) - len(fresh))
    records = [assembled for trace in fresh for assembled in trace.made]
    duplicates = batch.claim([assembled.key for assembled in records])
    row.counts.duplicate += len(duplicates)
    for place, assembled in enumerate(records):
        if place not in duplicates and not put_joined(assembled.key[1][:16], assembled.record, batch, traces, row):
            row.put(assembled.record, assembled.line)
    for trace in fresh:
        row.counts.add(trace.counts)
        if trace.aside:
            batch.quarantine(trace.trace_id, trace.aside, trace.waiting.requests)
    batch.mark_finished([trace.trace_id for trace in traces_ready if not trace.made], row.arrival)
    written = [trace.trace_id for trace in traces_ready if trace.made and trace.trace_id not in row.early_probe_records]
    batch.mark_finished(written, row.arrival, recorded=True)
    return [label for trace in fresh for label in trace.labels]


def _too_old(trace: AssembledTrace) -> bool:
    """Whether a trace had ended so long before its first span arrived that its key may no longer be known."""
    ended = min(
        (assembled.record.ts for assembled in trace.made if assembled.record.ts is not None),
        default=trace.waiting.first,
    )
    return ended < trace.waiting.first - OLDEST
