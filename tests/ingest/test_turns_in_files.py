"""A session whose turns share one trace id, in a file of spans: each turn is a record, as on a server."""

from __future__ import annotations

import pytest

from ragmon.core import semconv
from ragmon.ingest.trace_buffer import LATE, FileTraceBuffer
from tests.server.test_turns_of_one_trace import MODEL, bare, remote, span, turn
from tests.support.recorded_spans import made

START = 1_764_000_000


def read(spans, service="trams"):
    """The records of spans in order, and how many spans are in none."""
    buffer = FileTraceBuffer()
    found = [mapped for one in spans for mapped in buffer.add(one, service, "1.0")]
    found += buffer.end()
    return [mapped.record for mapped in found if mapped.record is not None], buffer.left_out


@pytest.mark.parametrize("gap", [12, 400])
@pytest.mark.parametrize("spans_of", [turn, bare], ids=["chains", "web servers' spans"])
def test_each_turn_is_a_record_however_far_apart(gap, spans_of):
    turns = [spans_of(number, START + number * gap, remote(number)) for number in range(4)]
    records, left_out = read([one for spans in turns for one in spans])
    assert [record.q for record in records] == [f"question {number}?" for number in range(4)]
    assert ({record.trace_id for record in records}, left_out) == ({turns[0][0].trace_id}, {})


def test_a_turn_that_stands_in_the_file_again_makes_no_second_record():
    first, second = turn(0, START), turn(1, START + 400)
    records, left_out = read([*first, *second, *first, *second])
    assert (len(records), left_out) == (2, {LATE: 3}), "the second waits, and has each span once"


def test_work_left_over_is_late():
    title = span(0, 7, 1, "title", MODEL, START + 400)
    records, left_out = read([*turn(0, START), title])
    assert (len(records), left_out) == (1, {LATE: 1})


def test_the_record_of_a_call_that_took_long_is_none_that_is_late():
    """Calls of a session share the trace id; one began before another, and ended ten minutes after it."""
    line = '{"v":1,"trace_id":"%032x","ts":%d,"source":"live","q":"question %d?"}'
    calls = [
        made({semconv.RAGMON_RECORD: line % (7, START, number)}, start=number, end=end)
        for number, end in ((1, 2), (0, 700))
    ]
    other = made({semconv.RAGMON_RECORD: line % (8, START, 9)}, start=600, end=601)._replace(trace_id="8" * 32)
    records, left_out = read([calls[0], other, calls[1]])
    assert sorted(record.q for record in records) == ["question 0?", "question 1?", "question 9?"]
    assert left_out == {}
