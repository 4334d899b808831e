"""What becomes of the records of a probe that is seen twice, in the row that is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragmon.core.record import Record, encode_entry
from ragmon.journal import Batch
from ragmon.journal.bodies import RECORD
from ragmon.server.keeping.ahead import Early
from ragmon.server.keeping.counts import FORGOTTEN, count
from ragmon.server.keeping.replies import Reply, joined
from ragmon.server.keeping.row import Row
from ragmon.server.keeping.traces import Traces

JOINED: Final = "joined"
NO_REPLY: Final = "no_reply"
"""What becomes of an application's own record of a probe: its reply came as well, or did not in time."""


def is_probed(trace_id: bytes, traces: Traces, row: Row) -> bool:
    """Whether a whole record of a trace came, and counted as a probe."""
    return trace_id in row.probed or traces.probed(trace_id)


def put_joined(trace_id: bytes, record: Record, batch: Batch, traces: Traces, row: Row) -> bool:
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
            _put(trace_id, record, reply, batch, traces, row)
        else:
            found = joined(record, reply.record)
            seq = batch.hold(row.arrival, RECORD, encode_entry(found), [trace_id])
            row.early[trace_id] = Early(trace_id, found, seq)
    return True


def put_overdue(batch: Batch, traces: Traces, row: Row) -> None:
    """The application's records of probes whose replies have come since, or are not waited for any longer."""
    for one, reply in list(traces.ahead.due(traces.replies, row.arrival)):
        row.overdue.append(one.trace_id)
        row.probed.add(one.trace_id)
        if one.seq and not batch.release([one.seq]):  # another process took it out
            count(row.counts.ignored, FORGOTTEN)
            batch.remember([one.trace_id], row.arrival)
        else:
            _put(one.trace_id, one.record, reply, batch, traces, row)


def _put(trace_id: bytes, record: Record, reply: Reply | None, batch: Batch, traces: Traces, row: Row) -> None:
    """Put the application's record, and account for the reply."""
    found = record
    is_there = reply is not None and _take(trace_id, batch, traces, row)
    if reply is not None and is_there:
        row.counts.duplicate += 1
        found = joined(record, reply.record)
    count(row.counts.probed, JOINED if is_there else NO_REPLY)
    row.put(found, encode_entry(found))
    batch.remember([trace_id], row.arrival, recorded=True)


def _take(trace_id: bytes, batch: Batch, traces: Traces, row: Row) -> bool:
    """Count that a reply came; returns whether it is still there: another process may have taken it out."""
    row.counts.received += 1
    row.answered.add(trace_id)
    number = traces.replies.number(trace_id)
    is_there = not number or bool(batch.release([number]))
    count(row.counts.ignored, FORGOTTEN, int(not is_there))
    return is_there


def hold(replies: Mapping[bytes, Record], batch: Batch, arrival: float) -> dict[bytes, int]:
    """Put replies that wait on disk; returns their numbers."""
    return {trace_id: batch.hold(arrival, RECORD, encode_entry(record)) for trace_id, record in replies.items()}


def put_alone(batch: Batch, traces: Traces, row: Row) -> None:
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
    row.replies.update(hold(waiting, batch, row.arrival))
