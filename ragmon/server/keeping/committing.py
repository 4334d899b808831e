"""Writing a row: every request and every trace once, with its counts, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ragmon.core import constants
from ragmon.core.record import Entry, Label, Record
from ragmon.journal import Batch, Failure, Journal
from ragmon.journal.traced import ends
from ragmon.server.keeping.accepting import Request
from ragmon.server.keeping.assembling import Assembled
from ragmon.server.keeping.counts import FORGOTTEN, Counts, count
from ragmon.server.keeping.labelling import answers_to, labels_of, lines_of, with_answer
from ragmon.server.keeping.probed import hold, is_probed, put_alone, put_joined, put_overdue
from ragmon.server.keeping.replies import is_a_probers
from ragmon.server.keeping.row import Row
from ragmon.server.keeping.traces import Traces
from ragmon.server.keeping.waiting import LATE

OLDEST: Final = 86_400.0
"""Seconds for which it is known what came already; what is older is not taken."""


def write(batch: Batch, requests: Sequence[Request], traces: Traces, loose: Counts, now: float, wall: float) -> Row:
    """Put requests and complete traces on disk; nothing is changed beside the journal.

    Args:
        batch: The transaction.
        requests: What came.
        traces: Where spans wait, and those that are complete.
        loose: Counts that came with nothing to write.
        now: When the row came.
        wall: What time it is: after a jump of the clock that was taken back, rows still come in its future.
    """
    row = Row(now)
    row.counts.add(loose)
    row.forgotten = batch.forgotten()
    _whole(batch, requests, traces, row, min(now, wall) - OLDEST)
    labels = _complete(batch, traces, row)
    put_overdue(batch, traces, row)
    put_alone(batch, traces, row)
    answers = answers_to(batch, [*labels, *labels_of(requests)], row)
    _put(row, labels, answers)
    for request in requests:
        row.counts.add(request.counts)
        _put(row, request.entries, answers)
        kept = traces.sort(request.foreign, row, batch.known(traces.new(request.foreign)))
        if kept:
            waits = sorted({piece.trace_id for piece in kept})
            row.held.append((request, kept, batch.hold(now, request.form.value, request.body, waits, traces.lowest)))
    count(row.counts.ignored, FORGOTTEN, len(traces.forgotten))
    traces_of = ends(entry.trace_id for entry in row.entries if isinstance(entry, Record))
    row.seq = batch.append(now, len(row.entries), row.counts.dump(), b"".join(row.lines), traces_of)
    batch.release(traces.released)
    batch.remember([*row.passed, *traces.forgotten, *traces.unknown], now)
    return row


def tidy(journal: Journal, traces: Traces, failures: list[Failure], now: float) -> None:
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
        held = hold(loose, batch, now)
    traces.replies.held(held)
    failures.clear()
    traces.released.clear()


def _put(row: Row, entries: Iterable[Entry], answers: Mapping[str, Record]) -> None:
    """Add lines, labels with the answers they are about."""
    told = [with_answer(entry, answers) for entry in entries]
    for entry, line in zip(told, lines_of(told, row.labelled), strict=True):
        row.put(entry, line)


def _whole(batch: Batch, requests: Sequence[Request], traces: Traces, row: Row, oldest: float) -> None:
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
        probers = is_a_probers(one.record)
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


def _complete(batch: Batch, traces: Traces, row: Row) -> list[Label]:
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


def _too_old(found: Assembled) -> bool:
    """Whether a trace had ended so long before its first span came that nobody knows whether it came already."""
    ended = min((one.record.ts for one in found.made if one.record.ts is not None), default=found.waiting.first)
    return ended < found.waiting.first - OLDEST
