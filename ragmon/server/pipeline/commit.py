"""Labels and the answers they are about, brought together before a row is written: a replay then need not search.

What becomes of the records of a probe that is seen twice, in the row that is written.

Writing a row: every request and every trace once, with its counts, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ragmon.core import constants
from ragmon.core.record import Entry, Label, Record, encode_entry
from ragmon.server.journal import Failure, Journal, JournalBatch
from ragmon.server.journal.erasure import RECORD
from ragmon.server.journal.reader import trace_id_ends
from ragmon.server.pipeline.assembler import LATE, AssembledTrace
from ragmon.server.pipeline.decode import FORGOTTEN, BatchCounts, QueuedRequest, WriteBatch, count
from ragmon.server.pipeline.probe_replies import PendingProbeRecord, ProbeReply, is_from_prober, join_reply
from ragmon.server.pipeline.trace_buffer import TraceTracker


def labels_of(requests: Sequence[QueuedRequest]) -> list[Label]:
    """The labels of some requests."""
    return [entry for request in requests for entry in request.entries if isinstance(entry, Label)]


def answers_to(batch: JournalBatch, labels: Iterable[Label], row: WriteBatch) -> Mapping[str, Record]:
    """The answers that labels are about, as far as they came: with this row, or before it."""
    wanted = {label.trace_id for label in labels}
    if not wanted:
        return {}
    here = {entry.trace_id: entry for entry in row.entries if isinstance(entry, Record) and entry.trace_id in wanted}
    found = batch.answers(wanted - here.keys())
    return found | {trace_id: record for trace_id, record in here.items() if trace_id is not None}


def lines_of(entries: Iterable[Entry], told: set[str]) -> Iterator[bytes]:
    """Lines for a journal; of all labels on an answer in a row, the first holds it.

    Args:
        entries: Entries of a row.
        told: The traces whose answers a label of this row holds; those of these are added.
    """
    for entry in entries:
        if isinstance(entry, Label) and entry.answer is not None:
            again = entry.trace_id in told
            told.add(entry.trace_id)
            yield encode_entry(msgspec.structs.replace(entry, answer=None) if again else entry)
        else:
            yield encode_entry(entry)


def with_answer(entry: Entry, answers: Mapping[str, Record]) -> Entry:
    """A label with the answer it is about, where that came; any other entry as it is."""
    return msgspec.structs.replace(entry, answer=answers.get(entry.trace_id)) if isinstance(entry, Label) else entry


JOINED: Final = "joined"
NO_REPLY: Final = "no_reply"
"""What becomes of an application's own record of a probe: its reply came as well, or did not in time."""


def is_probed(trace_id: bytes, traces: TraceTracker, row: WriteBatch) -> bool:
    """Whether a whole record of a trace came, and counted as a probe."""
    return trace_id in row.probed or traces.probed(trace_id)


def put_joined(trace_id: bytes, record: Record, batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> bool:
    """Put the application's own record of a probe whose reply waits for it, or let it wait for one that is on its way.

    Returns:
        Whether that is what it is; it is accounted for then.
    """
    is_told = trace_id in row.answered or trace_id in traces.ahead or trace_id in row.early
    reply = traces.replies.get(trace_id)
    if is_told:
        row.counts.duplicate += 1
    elif reply is None:
        return False
    else:
        row.own.append(trace_id)
        row.probed.add(trace_id)
        if reply.came:
            _put_record(trace_id, record, reply, batch, traces, row)
        else:
            found = join_reply(record, reply.record)
            seq = batch.hold(row.arrival, RECORD, encode_entry(found), [trace_id])
            row.early[trace_id] = PendingProbeRecord(trace_id, found, seq)
    return True


def put_overdue(batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> None:
    """The application's records of probes whose replies have come since, or are not waited for any longer."""
    for one, reply in list(traces.ahead.due(traces.replies, row.arrival)):
        row.overdue.append(one.trace_id)
        row.probed.add(one.trace_id)
        if one.seq and not batch.release([one.seq]):  # another process took it out
            count(row.counts.ignored, FORGOTTEN)
            batch.remember([one.trace_id], row.arrival)
        else:
            _put_record(one.trace_id, one.record, reply, batch, traces, row)


def _put_record(
    trace_id: bytes,
    record: Record,
    reply: ProbeReply | None,
    batch: JournalBatch,
    traces: TraceTracker,
    row: WriteBatch,
) -> None:
    """Put the application's record, and account for the reply."""
    found = record
    is_there = reply is not None and _take(trace_id, batch, traces, row)
    if reply is not None and is_there:
        row.counts.duplicate += 1
        found = join_reply(record, reply.record)
    count(row.counts.probed, JOINED if is_there else NO_REPLY)
    row.put(found, encode_entry(found))
    batch.remember([trace_id], row.arrival, recorded=True)


def _take(trace_id: bytes, batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> bool:
    """Count that a reply came; returns whether it is still there: another process may have taken it out."""
    row.counts.received += 1
    row.answered.add(trace_id)
    number = traces.replies.number(trace_id)
    is_there = not number or bool(batch.release([number]))
    count(row.counts.ignored, FORGOTTEN, int(not is_there))
    return is_there


def store_replies(replies: Mapping[bytes, Record], batch: JournalBatch, arrival: float) -> dict[bytes, int]:
    """Put replies that wait on disk; returns their numbers."""
    return {trace_id: batch.hold(arrival, RECORD, encode_entry(record)) for trace_id, record in replies.items()}


def put_unmatched_replies(batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> None:
    """The replies to probes of which the application tells nothing more, and on disk, for a while, those that wait.

    What it tells later is there already.
    """
    found = [one for one in traces.alone(row.arrival) if one[0] not in row.answered]
    for trace_id, record in found:
        if not _take(trace_id, batch, traces, row):
            continue
        if is_probed(trace_id, traces, row):
            row.counts.duplicate += 1
        else:
            row.put(record, encode_entry(record))
            batch.remember([trace_id], row.arrival, recorded=True)
    waiting = {trace_id: one for trace_id, one in traces.replies.loose().items() if trace_id not in row.answered}
    row.replies.update(store_replies(waiting, batch, row.arrival))


OLDEST: Final = 86_400.0
"""Seconds for which it is known what came already; what is older is not taken."""


def write_batch(
    batch: JournalBatch,
    requests: Sequence[QueuedRequest],
    traces: TraceTracker,
    loose: BatchCounts,
    now: float,
    wall: float,
) -> WriteBatch:
    """Put requests and complete traces on disk; nothing is changed beside the journal.

    Args:
        batch: The transaction.
        requests: What came.
        traces: Where spans wait, and those that are complete.
        loose: Counts that came with nothing to write.
        now: When the row came.
        wall: What time it is: after a jump of the clock that was taken back, rows still come in its future.
    """
    row = WriteBatch(now)
    row.counts.add(loose)
    row.forgotten = batch.forgotten()
    _whole(batch, requests, traces, row, min(now, wall) - OLDEST)
    labels = _complete(batch, traces, row)
    put_overdue(batch, traces, row)
    put_unmatched_replies(batch, traces, row)
    answers = answers_to(batch, [*labels, *labels_of(requests)], row)
    _put_entries(row, labels, answers)
    for request in requests:
        row.counts.add(request.counts)
        _put_entries(row, request.entries, answers)
        kept = traces.sort(request.foreign, row, batch.known(traces.new(request.foreign)))
        if kept:
            waits = sorted({piece.trace_id for piece in kept})
            row.held.append((request, kept, batch.hold(now, request.form.value, request.body, waits, traces.lowest)))
    count(row.counts.ignored, FORGOTTEN, len(traces.forgotten))
    traces_of = trace_id_ends(entry.trace_id for entry in row.entries if isinstance(entry, Record))
    row.seq = batch.append(now, len(row.entries), row.counts.dump(), b"".join(row.lines), traces_of)
    batch.release(traces.released)
    batch.remember([*row.passed, *traces.forgotten, *traces.unknown], now)
    return row


def write_beside_batch(journal: Journal, traces: TraceTracker, failures: list[Failure], now: float) -> None:
    """Write what makes no row: failures, replies that wait, and which requests nothing waits for, whose text must go.

    Args:
        journal: The journal.
        traces: Where spans and replies wait.
        failures: Requests that fail a gate and are not in the index yet; none are left.
        now: When that is, seconds since the epoch.
    """
    loose = traces.replies.loose()
    if not (failures or traces.released or loose):
        return
    with journal.begin() as batch:
        batch.fail(failures)
        batch.release(traces.released)
        held = store_replies(loose, batch, now)
    traces.replies.held(held)
    failures.clear()
    traces.released.clear()


def _put_entries(row: WriteBatch, entries: Iterable[Entry], answers: Mapping[str, Record]) -> None:
    """Add lines, labels with the answers they are about."""
    told = [with_answer(entry, answers) for entry in entries]
    for entry, line in zip(told, lines_of(told, row.labelled), strict=True):
        row.put(entry, line)


def _whole(
    batch: JournalBatch, requests: Sequence[QueuedRequest], traces: TraceTracker, row: WriteBatch, oldest: float
) -> None:
    """The requests that came as one span, each once; a decorated call's spans may have become a record before it.

    Of a probe's two records the first counts, where it did not wait for the other one.
    """
    whole = [one for request in requests for one in request.whole]
    row.counts.received += len(whole)
    fresh = [one for one in whole if one.ended >= oldest]
    if len(fresh) < len(whole):
        count(row.counts.dropped, constants.TOO_OLD, len(whole) - len(fresh))
        row.counts.own += len(whole) - len(fresh)  # they came
    twice = batch.claim([one.key for one in fresh])
    there = batch.recorded({one.trace_id for one in fresh})
    for place, one in enumerate(fresh):
        row.counts.own += place not in twice
        probers = is_from_prober(one.record)
        known = is_probed(one.trace_id, traces, row) if probers else one.trace_id in there
        if place in twice or known:
            row.counts.duplicate += 1
        elif not put_joined(one.trace_id, one.record, batch, traces, row):
            row.put(one.record, one.line)
            row.own.append(one.trace_id)
            if one.record.source == constants.PROBE:
                row.probed.add(one.trace_id)
            if probers:
                there.add(one.trace_id)
                batch.remember([one.trace_id], row.arrival, recorded=True)


def _complete(batch: JournalBatch, traces: TraceTracker, row: WriteBatch) -> list[Label]:
    """The traces that are complete, each once; returns what people say on their spans."""
    ready = traces.ready
    if not ready:
        return []
    done = batch.known(found.trace_id for found in ready)
    forgotten = sum(arrival < 0 for arrival in done.values())
    count(row.counts.ignored, FORGOTTEN, forgotten)
    count(row.counts.ignored, LATE, len(done) - forgotten)
    new = [found for found in ready if found.trace_id not in done]
    fresh = [found for found in new if not _too_old(found)]
    count(row.counts.dropped, constants.TOO_OLD, len(new) - len(fresh))
    made = [one for found in fresh for one in found.made]
    twice = batch.claim([one.key for one in made])
    row.counts.duplicate += len(twice)
    for place, one in enumerate(made):
        if place not in twice and not put_joined(one.key[1][:16], one.record, batch, traces, row):
            row.put(one.record, one.line)
    for found in fresh:
        row.counts.add(found.counts)
        if found.aside:
            batch.quarantine(found.trace_id, found.aside, found.waiting.requests)
    batch.remember([found.trace_id for found in ready if not found.made], row.arrival)
    written = [found.trace_id for found in ready if found.made and found.trace_id not in row.early]
    batch.remember(written, row.arrival, recorded=True)
    return [label for found in fresh for label in found.labels]


def _too_old(found: AssembledTrace) -> bool:
    """Whether a trace had ended so long before its first span came that nobody knows whether it came already."""
    ended = min((one.record.ts for one in found.made if one.record.ts is not None), default=found.waiting.first)
    return ended < found.waiting.first - OLDEST
