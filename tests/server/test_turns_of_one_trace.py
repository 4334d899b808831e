"""A session whose turns share one trace id: each turn is a record, however far apart; what is sent again is none."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from ragmon.ingest.spans.span import Span
from tests.support.manual_writer import HOUR, ManualWriter, body
from tests.support.serving import journalled

TRACE = f"{5 << 64:032x}"
CHAIN = {"openinference.span.kind": "CHAIN", "output.value": "so [1]"}
SEARCH = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.id": "h1"}
MODEL = {
    "openinference.span.kind": "LLM",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "so [1]",
}


def span(number, part, parent, name, attributes, at, **fields):
    """A span of a turn, which ended before a time; each turn took a second."""
    start, end = int((at - 1) * 1e9) + part, int(at * 1e9) - 10 * part
    parent = f"{16 * number + parent:016x}" if isinstance(parent, int) else parent
    fields = {"scope": "openinference", **fields}
    return Span(TRACE, f"{16 * number + part:016x}", parent, name, start, end, attributes, **fields)


def turn(number, at, parent=None):
    """A turn as a chain with a root of its own, or below a span that nobody sends."""
    return [
        span(number, 1, parent, "chain", {**CHAIN, "input.value": f"question {number}?"}, at),
        span(number, 2, 1, "search", SEARCH, at),
        span(number, 3, 1, "model", MODEL, at),
    ]


def bare(number, at, parent):
    """A turn without a chain: a web server's span with a retrieval and a model call."""
    asked = {**SEARCH, "input.value": f"question {number}?"}
    return [
        span(number, 1, parent, "POST /chat", {"http.request.method": "POST"}, at),
        span(number, 2, 1, "search", asked, at),
        span(number, 3, 1, "model", MODEL, at),
    ]


def remote(number):
    return f"{0xFF0000 + number:016x}"


@pytest.mark.parametrize("gap", [6, 30, 400, 2 * HOUR])
@pytest.mark.parametrize(
    "spans_of",
    [
        turn,
        lambda number, at: turn(number, at, remote(number)),
        lambda number, at: bare(number, at, remote(number)),
        lambda number, at: bare(number, at, None),
    ],
    ids=["roots", "remote parents", "web servers' spans", "roots of web servers"],
)
def test_each_turn_is_a_record(tmp_path, gap, spans_of):
    """Seconds, minutes or hours apart; the server is killed between two of them."""
    with ManualWriter(tmp_path, '[capture]\ncontent = "full"\n') as manual:
        for number in range(4):
            manual.send(body(*spans_of(number, manual.time.now)))
            if number == 1:
                manual.again()
            manual.tick(max(gap, 70))
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (4, 4, 0)
        assert manual.agrees()
    records = journalled(tmp_path)
    assert [record.q for record in records] == [f"question {number}?" for number in range(4)]
    assert [record.retrieved_ids for record in records] == 4 * [["h1"]]
    assert {record.trace_id for record in records} == {TRACE}


def test_turns_that_end_within_ten_seconds_are_records_of_their_own(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.time.now = manual.time.now // 10 * 10 + 1
        for number in range(2):
            manual.send(body(*turn(number, manual.time.now)))
            manual.tick(5.5)
        assert (manual.books.scored, manual.books.duplicate, manual.books.residual) == (2, 0, 0)


@pytest.mark.parametrize("crash", [False, True])
def test_a_turn_that_is_sent_again_makes_no_second_record(tmp_path, crash):
    """An exporter that got no answer sends it again: at once, or after turns that came later."""
    with ManualWriter(tmp_path) as manual:
        sent = []
        for number in range(3):
            sent.append(body(*turn(number, manual.time.now)))
            manual.send(sent[-1])
            manual.tick(20)
            if crash:
                manual.again()
            manual.send(*sent)
            manual.tick(20)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (3, 3, 0)
        assert manual.server_state.counts.spans == {"late": 3 * (1 + 2 + 3)}


def test_turns_that_wait_together_are_one_export_and_two_records(tmp_path):
    with ManualWriter(tmp_path) as manual:
        now = manual.time.now
        manual.send(body(*turn(0, now - 30)))
        manual.tick(20)
        manual.send(body(*turn(1, now), *turn(2, now + 10)))
        manual.tick(20)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (3, 3, 0)


@pytest.mark.parametrize(
    ("attributes", "parent"),
    [(MODEL, 1), (SEARCH, 1), ({"http.request.method": "POST"}, 1), (MODEL, remote(1)), (CHAIN, 1)],
    ids=["a title", "a search", "a call", "a model call below a span that nobody sends", "a chain that only answers"],
)
def test_work_left_over_is_late_and_no_turn(tmp_path, attributes, parent):
    """It began when the request had ended: a title for the conversation, a note for the memory."""
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*turn(0, manual.time.now)))
        manual.tick(10)
        manual.send(body(span(0, 7, parent, "later", attributes, manual.time.now)))
        manual.tick(100)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (2, 1, 0)
        assert (manual.books.ignored, manual.server_state.counts.spans) == ({"late": 1}, {"late": 1})
        assert manual.agrees()


def test_spans_that_ran_while_the_request_did_are_late(tmp_path):
    """Its root, after ten minutes, and a child that another service sends later than all."""
    with ManualWriter(tmp_path) as manual:
        now = manual.time.now
        manual.send(body(*turn(0, now, f"{8:016x}")))
        manual.tick(70)
        root = span(0, 8, None, "GET /chat", {}, now)
        manual.send(body(root._replace(start_ns=root.start_ns - 10**9, end_ns=root.end_ns + 10**12)))
        manual.send(body(span(0, 9, 1, "search", SEARCH, now)))
        manual.tick(70)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (1, 1, 0)
        assert manual.server_state.counts.spans == {"late": 2}


def test_a_turn_that_waits_survives_a_crash(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*turn(0, manual.time.now)))
        manual.tick(20)
        first, *others = turn(1, manual.time.now)
        manual.send(body(*others))
        manual.again()
        assert (manual.books.pending, manual.books.residual) == (1, 0)
        manual.send(body(first))
        manual.tick(20)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (2, 2, 0)
    assert [record.partial for record in journalled(tmp_path)] == [False, False]


def test_what_was_forgotten_stays_out_and_a_turn_that_waited_is_accounted_for(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*turn(0, manual.time.now)))
        manual.tick(20)
        manual.send(body(*turn(1, manual.time.now)))
        manual.forget(TRACE)
        manual.tick(20)
        assert (manual.books.received, manual.books.ignored, manual.books.residual) == (2, {"forgotten": 1}, 0)
        manual.send(body(*turn(2, manual.time.now)))
        manual.tick(20)
        assert (manual.books.scored, manual.books.residual) == (1, 0), "the record of the first turn was counted"
    assert journalled(tmp_path) == []


def test_a_turn_that_waited_and_was_forgotten_while_nobody_served_is_accounted_for_once(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*turn(0, manual.time.now)))
        manual.tick(20)
        manual.send(body(*turn(1, manual.time.now)))
        manual.kill()
        manual.forget(TRACE)
        for _ in range(2):
            manual.open()
            manual.tick(1)
            manual.kill()
        assert (manual.books.received, manual.books.ignored, manual.books.residual) == (2, {"forgotten": 2}, 0), (
            "with its first turn"
        )


def test_a_journal_that_does_not_say_when_traces_ended_is_read_and_nothing_of_them_is_taken_again(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*turn(0, manual.time.now)))
        manual.tick(20)
        manual.kill()
        with closing(sqlite3.connect(tmp_path / "state" / "journal.db")) as journal:
            journal.execute("ALTER TABLE assembled DROP COLUMN ended")
        manual.open()
        assert not list(tmp_path.glob("state/*corrupt*"))
        manual.send(body(*turn(1, manual.time.now)), body(*other_trace(manual.time.now)))
        manual.tick(20)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (2, 2, 0)
        assert manual.server_state.counts.spans == {"late": 3}


def other_trace(at):
    return [one._replace(trace_id=f"{6 << 64:032x}") for one in turn(0, at)]


def test_a_turn_waits_on_where_the_journal_was_lost(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*turn(0, manual.time.now)))
        manual.tick(20)
        manual.damage()
        manual.send(body(*turn(0, manual.time.now - 20)))
        manual.send(body(*turn(1, manual.time.now)))
        manual.tick(20)
        manual.again()
        manual.send(body(*turn(2, manual.time.now)))
        manual.tick(20)
        assert manual.books.residual == 0
    assert len(journalled(tmp_path)) == 2
