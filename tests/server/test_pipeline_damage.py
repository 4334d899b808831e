"""Lines that cannot be counted and journals that cannot be read cost nothing that came beside or before them."""

from __future__ import annotations

import logging

import pytest

from ragmon.core import constants
from ragmon.core.record import Totals
from ragmon.ingest.receiver import Encoding
from ragmon.metrics import Metric, base
from ragmon.monitor.producers import ProducerTotals
from ragmon.server.pending import QueuedRequest, decode_traces
from tests.support.manual_writer import ManualWriter
from tests.support.serving import BEGIN, asked, whole
from tests.support.small_disk import fill


@pytest.fixture
def picky():
    """A metric of somebody else's that cannot bear one record, registered for one test."""

    class Picky(Metric):
        """Share of answers it likes."""

        name = "picky"

        def measure(self, record, item):
            return 1 / len(record.tags or {})

    base.register(Picky)
    yield
    del base._families["picky"]


@pytest.fixture
def moody():
    """A metric of somebody else's that cannot bear errors, of which the facts alone tell."""

    class Moody(Metric):
        """Share of answers it likes."""

        name = "moody"

        def score(self, facts):
            return 1 / (not facts.error)

    base.register(Moody)
    yield
    del base._families["moody"]


@pytest.mark.usefixtures("moody")
def test_a_metric_that_fails_on_facts_spoils_no_page(tmp_path):
    """Nothing of such a request is counted, so nothing of it is added up later."""
    with ManualWriter(tmp_path) as manual:
        manual.send(whole([asked(n, ts=manual.time.now, **({"error": "X"} if n == 2 else {})) for n in range(5)]))
        assert (manual.books.scored, manual.books.dropped, manual.books.residual) == (4, {"scorer_error": 1}, 0)
        series = manual.server_state.monitor_snapshot(manual.time.now, 0).snapshot.series
        assert {one.estimate("moody").n for one in series if one.window == "all"} == {4}
        assert manual.agrees()


def test_a_listener_of_the_log_that_raises_costs_no_row(tmp_path, caplog):
    """Edges of alarms are logged while minutes are judged, and somebody else's handler may send them anywhere."""

    class Broken(logging.Handler):
        def emit(self, record):
            raise ConnectionError

    gate = '[gates.errors]\nmetric = "error_rate"\nat_most = 0.05\n'
    log = logging.getLogger(constants.ALARM_LOG)
    broken = Broken()
    log.addHandler(broken)
    try:
        with caplog.at_level(logging.INFO, constants.ALARM_LOG), ManualWriter(tmp_path, gate) as manual:
            for minute in range(30):
                told = {"error": "X"} if minute >= 5 else {}
                manual.send(whole([asked(20 * minute + n, ts=manual.time.now, **told) for n in range(20)]))
                manual.tick(60)
            assert manual.books.scored == manual.replayed().engine.scorer.scored == 600
            assert manual.server_state.engine.transitions or manual.replayed().engine.transitions, (
                "an alarm began, so the log was written to"
            )
    finally:
        log.removeHandler(broken)


@pytest.mark.usefixtures("picky")
def test_a_record_that_a_metric_fails_on_costs_no_other_line_of_its_row(tmp_path):
    """Before it and after it; a replay counts the same."""
    with ManualWriter(tmp_path) as manual:
        manual.send(whole([asked(n, ts=manual.time.now, tags={} if n == 2 else {"a": "b"}) for n in range(5)]))
        assert (manual.books.scored, manual.books.dropped, manual.books.residual) == (4, {"scorer_error": 1}, 0)
        assert manual.agrees()
        assert manual.replayed().counters(0) == manual.books
        manual.again()
        assert (manual.books.scored, manual.books.dropped) == (4, {"scorer_error": 1})


@pytest.mark.usefixtures("picky")
def test_a_record_that_a_metric_cannot_bear_costs_no_second_count(tmp_path):
    with ManualWriter(tmp_path) as manual:
        counting = manual.server_state
        manual.send(whole([asked(n, ts=manual.time.now, tags={} if n == 2 else {"a": "b"}) for n in range(5)]))
        assert (manual.books.scored, manual.books.dropped) == (4, {"scorer_error": 1})
        assert manual.server_state is counting


def test_totals_that_cannot_be_counted_cost_no_other_line_of_their_row(tmp_path, monkeypatch):
    """Whatever goes wrong with them: requests beside them are scored, other producers counted, in a replay too."""
    see = ProducerTotals.see

    def failing(self, line, now):
        if line.instance == "bad":
            raise ZeroDivisionError
        see(self, line, now)

    monkeypatch.setattr(ProducerTotals, "see", failing)
    with ManualWriter(tmp_path) as manual:
        known = {"ts": BEGIN, "started": BEGIN - 10, "pipeline": "support", "source": "live", "calls": 7}
        said = [QueuedRequest(entries=[Totals(instance=name, **known)]) for name in ("good", "bad", "better")]
        manual.take(*said, decode_traces(whole([asked(n, ts=BEGIN) for n in range(3)]), Encoding.PROTOBUF))
        assert [request.future.result().rejected for request in said] == [0, 0, 0]
        assert (manual.books.scored, manual.server_state.seq) == (3, 1)
        assert [key.instance for key in manual.server_state.producers.last] == ["good", "better"]
        assert manual.agrees()
        manual.send(whole([asked(3, ts=BEGIN)]))
        manual.again()
        assert (manual.books.scored, manual.server_state.seq) == (4, 2)


def test_what_came_before_a_damaged_journal_was_set_aside_is_no_news_when_it_comes_again(tmp_path):
    with ManualWriter(tmp_path) as manual:
        sent = whole([asked(1, ts=manual.time.now)])
        manual.send(sent)
        manual.damage()
        manual.send(sent)
        assert (manual.books.scored, manual.books.duplicate) == (1, 1)
        manual.again()
        manual.send(sent)
        assert (manual.books.scored, manual.books.duplicate) == (1, 2)


def test_what_was_counted_survives_a_damaged_journal_a_full_disk_and_a_crash(disk, caplog):
    """There is no room for a new journal at once; later there is; then the server is killed."""
    with ManualWriter(disk) as manual:
        manual.send(whole([asked(n, ts=manual.time.now) for n in range(10)]))
        fill(disk / "ballast")
        manual.damage()
        assert "no new journal can be started (disk_full)" in caplog.text
        (disk / "ballast").unlink()
        manual.send(whole([asked(n, ts=manual.time.now) for n in range(10, 20)]))
        assert manual.books.scored == 20
        assert manual.writer.resets == 1
        manual.writer._keep(ending=False)
        manual.again()
        assert (manual.books.scored, manual.books.residual) == (20, 0)
