"""Writing a row: every request and every trace once, with its counts, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon import names
from ragmon.journal import Batch
from ragmon.journal.entries import encode
from ragmon.server.keeping.accepting import Request
from ragmon.server.keeping.counts import FORGOTTEN, Counts, count
from ragmon.server.keeping.row import Row
from ragmon.server.keeping.traces import Traces

OLDEST: Final = 86_400.0
"""Seconds for which it is known what came already; what is older is not taken."""


def write(batch: Batch, requests: Sequence[Request], traces: Traces, loose: Counts, now: float) -> Row:
    """Put requests and complete traces on disk; nothing is changed beside the journal.

    Args:
        batch: The transaction.
        requests: What came.
        traces: Where spans wait, and those that are complete.
        loose: Counts that came with nothing to write.
        now: When the row came.
    """
    row = Row(now)
    row.counts.add(loose)
    _whole(batch, requests, row)
    _complete(batch, traces, row)
    for request in requests:
        row.counts.add(request.counts)
        for entry in request.entries:
            row.put(entry, encode(entry))
        kept = traces.sort(request.foreign, row)
        if kept:
            row.held.append((request, kept, batch.hold(now, request.form.value, request.body, traces.lowest)))
    count(row.counts.ignored, FORGOTTEN, len(traces.forgotten))
    row.seq = batch.append(now, len(row.entries), row.counts.dump(), b"".join(row.lines))
    batch.release(traces.released)
    batch.remember([*row.passed, *traces.forgotten], now)
    return row


def _whole(batch: Batch, requests: Sequence[Request], row: Row) -> None:
    """The requests that came as one span, each once."""
    whole = [one for request in requests for one in request.whole]
    row.counts.received += len(whole)
    fresh = [one for one in whole if one.ended >= row.arrival - OLDEST]
    if len(fresh) < len(whole):
        count(row.counts.dropped, names.TOO_OLD, len(whole) - len(fresh))
    twice = batch.claim([one.key for one in fresh]) if fresh else set()
    row.counts.duplicate += len(twice)
    for place, one in enumerate(fresh):
        if place not in twice:
            row.put(one.record, one.line)
            row.own.append(one.trace_id)
            row.counts.own += 1


def _complete(batch: Batch, traces: Traces, row: Row) -> None:
    """The traces that are complete, each once."""
    ready = traces.ready
    if not ready:
        return
    forgotten = batch.known(found.trace_id for found in ready)
    fresh = [found for found in ready if found.trace_id not in forgotten]
    count(row.counts.ignored, FORGOTTEN, len(forgotten))
    made = [one for found in fresh for one in found.made]
    twice = batch.claim([one.key for one in made]) if made else set()
    row.counts.duplicate += len(twice)
    for place, one in enumerate(made):
        if place not in twice:
            row.put(one.record, one.line)
    for found in fresh:
        row.counts.add(found.counts)
    batch.remember([found.trace_id for found in ready], row.arrival)
