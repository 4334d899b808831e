"""What becomes of the records of a probe that is seen twice, in the row that is written."""

from __future__ import annotations

from ragmon.contract import Record
from ragmon.journal import Batch
from ragmon.journal.entries import encode
from ragmon.server.keeping.replies import joined
from ragmon.server.keeping.row import Row
from ragmon.server.keeping.traces import Traces


def is_probed(trace_id: bytes, traces: Traces, row: Row) -> bool:
    """Whether a whole record of a trace came, and counted as a probe."""
    return trace_id in row.probed or traces.probed(trace_id)


def put_joined(trace_id: bytes, record: Record, batch: Batch, traces: Traces, row: Row) -> bool:
    """Put the application's own record of a probe whose reply waits for it, and both are accounted for."""
    reply = traces.replies.get(trace_id)
    if reply is None:
        return False
    if trace_id in row.answered:
        row.counts.duplicate += 1
    else:
        row.counts.received += reply.came
        row.counts.duplicate += reply.came
        row.answered.add(trace_id)
        row.own.append(trace_id)
        row.probed.add(trace_id)
        found = joined(record, reply.record)
        row.put(found, encode(found))
        batch.remember([trace_id], row.arrival, recorded=True)
    return True


def put_alone(batch: Batch, traces: Traces, row: Row) -> None:
    """The replies to probes of which the application tells nothing more; what it tells later is there already."""
    found = [one for one in traces.alone(row.arrival) if one[0] not in row.answered]
    for trace_id, record in found:
        row.counts.received += 1
        row.answered.add(trace_id)
        if is_probed(trace_id, traces, row):
            row.counts.duplicate += 1
        else:
            row.put(record, encode(record))
            batch.remember([trace_id], row.arrival, recorded=True)
