"""What is forgotten leaves nothing behind but a number: no failure, no record, and no request that is missing."""

from __future__ import annotations

import pytest

from ragmon.ingest.receiver import Encoding
from ragmon.server.pending import decode_traces
from tests.support.manual_writer import HOUR, NO_ERRORS, ManualWriter, body
from tests.support.otlp_requests import as_json, export
from tests.support.serving import asked, foreign, whole

LOST, WON = f"{1 << 64:032x}", f"{(1 << 64) - 1:032x}"
"""Trace ids that have the lowest and the highest draw."""


@pytest.mark.parametrize("away", [0.0, 2 * HOUR, 30 * HOUR])
def test_a_trace_that_was_forgotten_while_nobody_served_is_accounted_for_hours_later(tmp_path, away):
    """It waited for the rest of its spans when the server was killed."""
    with ManualWriter(tmp_path) as manual:
        one = foreign(1, at=manual.time.now)
        manual.send(body(*one))
        manual.kill()
        assert manual.forget(one[0].trace_id).spans == 2
        manual.time.now += away
        manual.open()
        assert (manual.books.pending, manual.books.residual) == (1, 0)
        manual.tick(1)
        assert (manual.books.received, manual.books.ignored, manual.books.residual) == (1, {"forgotten": 1}, 0)
        assert manual.agrees()


def test_a_trace_that_was_forgotten_is_counted_by_one_server_alone(tmp_path):
    """The next one knows that it is done."""
    with ManualWriter(tmp_path) as manual:
        one = foreign(1, at=manual.time.now)
        manual.send(body(*one))
        manual.kill()
        manual.forget(one[0].trace_id)
        for _ in range(3):
            manual.open()
            manual.tick(1)
            manual.kill()
        assert (manual.books.received, manual.books.ignored, manual.books.residual) == (1, {"forgotten": 1}, 0)


def test_forgetting_a_trace_of_a_request_that_was_repaired_loses_no_other_trace(tmp_path):
    """A program cut a text inside of a character; the request is JSON, which holds UTF-8 alone."""
    with ManualWriter(tmp_path) as manual:
        one, other = (foreign(n, at=manual.time.now) for n in (1, 2))
        manual.take(decode_traces(as_json(export([*one, *other])).replace(b"an answer", b"an answ\xc3"), Encoding.JSON))
        manual.kill()
        assert manual.forget(one[0].trace_id).spans == 2
        manual.open()
        manual.tick(10)
        assert (manual.books.received, manual.books.scored, manual.books.ignored) == (2, 1, {"forgotten": 1})
        assert manual.books.residual == 0


def test_forgetting_a_trace_that_lost_the_draw_changes_no_account(tmp_path):
    """Its spans are in the journal all the same: they came with others that wait."""
    with ManualWriter(tmp_path, "[sampling]\nrate = 0.5\n") as manual:
        at = manual.time.now
        manual.send(body(*(span._replace(trace_id=trace) for trace in (WON, LOST) for span in foreign(1, at=at))))
        manual.kill()
        assert manual.forget(LOST).spans == 2
        manual.open()
        manual.tick(10)
        assert (manual.books.received, manual.books.scored, manual.books.ignored) == (2, 1, {"unsampled": 1})


def test_forgetting_a_decorated_call_changes_nothing_of_a_trace_that_came_with_it(tmp_path):
    """The export is kept since the other trace waits: the call's own span in it is forgotten, and waits for nothing."""
    with ManualWriter(tmp_path) as manual:
        record = asked(1, ts=manual.time.now)
        manual.send(whole([record]) + body(*foreign(2, at=manual.time.now)))
        manual.kill()
        assert manual.forget(record.trace_id).records == 1
        manual.open()
        assert (manual.books.received, manual.books.pending, manual.books.residual) == (2, 1, 0)
        manual.tick(10)
        assert (manual.books.scored, manual.books.ignored, manual.books.residual) == (1, {"forgotten": 1}, 0)
        assert manual.verified().holds


def test_a_failure_that_was_forgotten_before_it_could_be_found_is_never_found(tmp_path):
    """Failures are written after their row; the trace was forgotten in between."""
    with ManualWriter(tmp_path, NO_ERRORS) as manual:
        forgotten, stays = (asked(n, ts=manual.time.now, error="TimeoutError") for n in (1, 2))
        manual.send(whole([forgotten, stays]))
        manual.forget(forgotten.trace_id)
        manual.tick(1)
        assert [failure.trace_id for failure in manual.failures()] == [stays.trace_id]


def test_a_trace_that_is_forgotten_while_it_waits_makes_no_record_when_the_rest_comes(tmp_path):
    """Beside a server that holds its first spans in memory."""
    with ManualWriter(tmp_path) as manual:
        root, retrieval = foreign(1, at=manual.time.now)
        manual.send(body(retrieval))
        manual.forget(root.trace_id)
        manual.send(body(root))
        manual.tick(10)
        assert (manual.books.received, manual.books.scored, manual.books.ignored) == (1, 0, {"forgotten": 1})
        manual.again()
        assert (manual.books.pending, manual.books.residual) == (0, 0)
