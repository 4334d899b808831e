"""Clocks that jump: windows, counts and alarms are those of a clock that does not."""

from __future__ import annotations

import shutil

import pytest

from ragmon.alarms.pipelines import as_alert_line
from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.core.record import Totals
from ragmon.server.state import BELIEVED
from ragmon.server.store import JournalReader
from ragmon.stream.assembler import AssemblyLimits
from tests.support.alarming import Traffic
from tests.support.otlp_requests import export
from tests.support.serving import (
    BEGIN,
    QUICK,
    Time,
    accounted,
    asked,
    between_rows,
    digest,
    foreign,
    journalled,
    pass_by,
    replayed,
    send_body,
    serving,
    whole,
)

HOUR = 3600.0
MINUTES = 16
TRAFFIC = Traffic(3, live=12, gold=0, pipeline="support", v=1)
RECORDS = [list(TRAFFIC.minute(int(BEGIN // 60) + n, foreign=0.6 if 5 <= n < 11 else 0.0)) for n in range(MINUTES)]
"""A quarter of an hour in which for six minutes most answers are no answers."""


def quarter_of_an_hour(folder, off):
    """Serve the requests minute by minute; the clock is off for five of each ten seconds, now ahead and now behind."""
    time = Time()
    with serving(folder, clock=time.clock()) as running:
        for n, records in enumerate(RECORDS):
            send_body(running, whole(records))
            send_body(running, export(foreign(n, at=time.now)).SerializeToString())
            for k in range(6):
                pass_by(running, time, 5.0, off if k % 2 else -off)
                pass_by(running, time, 5.0)
        books, shown = accounted(running), running.metrics()
        found = [as_alert_line(edge) for edge in running.server.writer.server_state.engine.transitions]
        jumps = shown["ragmon_clock_jumps_total"]
        told = {name: value for name, value in shown.items() if name.startswith(("rag_", "ragmon_gate_", "ragmon_rec"))}
        return jumps, (books, digest(running), found, told)


@pytest.mark.slow
def test_a_hundred_jumps_of_an_hour_change_nothing(tmp_path):
    """Counts, windows, gates, and when each alarm began and ended."""
    found = {}
    for name, off in (("steady", 0.0), ("jumping", HOUR)):
        (tmp_path / name).mkdir()
        found[name] = quarter_of_an_hour(tmp_path / name, off)
    assert {name: jumps for name, (jumps, _) in found.items()} == {"steady": 0, "jumping": 6 * MINUTES}
    steady, jumping = found["steady"][1], found["jumping"][1]
    assert {edge["state"] for edge in steady[2]} == {"firing", "resolved"}
    assert jumping == steady
    assert [replayed(tmp_path / name) for name in found] == [steady[1]] * 2


@pytest.mark.slow
def test_a_clock_that_is_set_right_neither_empties_a_window_nor_fills_it_twice(tmp_path):
    """It was an hour ahead. What came is as old as it says; rows come in the order they came in."""
    time = Time(off=HOUR)
    with serving(tmp_path, clock=time.clock()) as running:
        for n, records in enumerate(RECORDS[:6]):
            send_body(running, whole(records))
            pass_by(running, time, BELIEVED, off=HOUR if n < 3 else 0.0)
        books = accounted(running)
        assert (books["scored"], books["dropped"]) == (6 * 12, {})
        assert running.metrics()["ragmon_clock_jumps_total"] == 1
        assert abs(running.status()["now"] - time.now) < 1
        window = running.metrics()['rag_compliance_samples{gold="",pipeline="support",source="live",window="1h"}']
        assert window == 6 * 12
        found = digest(running)
    with JournalReader(tmp_path / "state") as journal:
        arrivals = [row.arrival for row in journal.rows()]
    assert arrivals == sorted(arrivals)
    assert replayed(tmp_path) == found


@pytest.mark.slow
def test_a_clock_that_is_behind_drops_what_seems_to_come_from_the_future_and_says_so(tmp_path):
    time = Time(off=-HOUR)
    with serving(tmp_path, clock=time.clock()) as running:
        send_body(running, whole(RECORDS[0]))
        assert accounted(running)["dropped"] == {"too_future": 12}
        pass_by(running, time, BELIEVED)
        pass_by(running, time, 1.0)
        send_body(running, whole(RECORDS[1]))
        books = accounted(running)
        assert (books["scored"], books["dropped"]) == (12, {"too_future": 12})
        found = digest(running)
    assert replayed(tmp_path) == found


@pytest.mark.slow
def test_a_clock_that_is_set_back_while_the_server_is_down_changes_nothing(tmp_path):
    """An hour back, and later forth again: each start goes on where the one before was."""
    time = Time()
    for n, off in enumerate((0.0, -HOUR / 20, 0.0)):
        time.off = off
        with serving(tmp_path, clock=time.clock()) as running:
            send_body(running, whole(RECORDS[n]))
            time.now += 60.0
            books, found = accounted(running), digest(running)
        assert (books["scored"], books["dropped"]) == (12 * (n + 1), {})
    assert replayed(tmp_path) == found
    with JournalReader(tmp_path / "state") as journal:
        arrivals = [row.arrival for row in journal.rows()]
    assert arrivals == sorted(arrivals)


@pytest.mark.slow
def test_a_request_that_was_scored_is_not_scored_again_after_hours_of_silence(tmp_path):
    """It came together with one that still waited when the server was killed; it is started again much later."""
    time, left = Time(), tmp_path / "left"
    (tmp_path / "folder").mkdir()
    with serving(
        tmp_path / "folder", clock=time.clock(), assembly_limits=AssemblyLimits(idle=1.0, rootless=600.0)
    ) as running:
        done, waits = foreign(1, at=time.now), foreign(2, at=time.now)[1:]
        send_body(running, export(done + waits).SerializeToString())
        pass_by(running, time, 2.0)
        running.wait_for(lambda books: (books["scored"], books["pending"]) == (1, 1))
        between_rows(running, lambda: shutil.copytree(tmp_path / "folder", left))
    time.now += 5 * HOUR
    with serving(left, clock=time.clock(), assembly_limits=QUICK) as running:
        pass_by(running, time, 40.0)  # exporters may try again for half a minute
        books = accounted(running)
    assert (books["received"], books["scored"], books["ignored"]) == (2, 2, {})
    assert len({record.trace_id for record in journalled(left)}) == 2


def test_a_producer_whose_clock_is_wrong_spoils_no_other_ones_counts(tmp_path):
    """One is a year ahead, one is a year behind; the third is right. Each tells what it kept, and sends it."""
    time = Time()
    offs = {"ahead": 365 * 24 * HOUR, "behind": -365 * 24 * HOUR, "right": 0.0}
    with serving(tmp_path, clock=time.clock()) as running:
        sinks = {name: OtlpExporter(running.otlp, resource={"service.instance.id": name}) for name in offs}
        for hour in range(1, 4):
            for name, off in offs.items():
                told = {"instance": name, "started": BEGIN + off - 60, "pipeline": "support", "source": "live"}
                line = Totals(ts=time.now + off, calls=4 * hour, kept=4 * hour, **told)
                assert sinks[name].report([line])
            send_body(running, whole([asked(100 * hour + n, ts=time.now) for n in range(12)]))
            pass_by(running, time, HOUR)
        accounted(running)
        assert running.status()["producers"] == {"missing": 0, "dropped": {}}
        for sink in sinks.values():
            sink.close()


@pytest.mark.parametrize("first", ["the call", "what it retrieved"])
def test_spans_that_waited_in_an_exporter_while_the_server_was_down_join_their_trace(tmp_path, first):
    """The server is down for ten minutes, longer than any trace waits; the exporter tries again half a minute later."""
    time, limits = Time(), AssemblyLimits(idle=5.0, rootless=60.0)
    spans = foreign(1, at=time.now)
    sent, kept = spans if first == "the call" else spans[::-1]
    with serving(tmp_path, clock=time.clock(), assembly_limits=limits) as running:
        send_body(running, export([sent]).SerializeToString())
        running.wait_for(lambda books: (books["received"], books["pending"]) == (1, 1))
    time.now += HOUR / 6
    with serving(tmp_path, clock=time.clock(), assembly_limits=limits) as running:
        pass_by(running, time, 28.0)
        assert running.books()["pending"] == 1
        send_body(running, export([kept]).SerializeToString())
        pass_by(running, time, 100.0)
        books = accounted(running)
    assert (books["received"], books["scored"], books["ignored"]) == (1, 1, {})
    (record,) = journalled(tmp_path)
    assert (record.facts.answered, record.retrieved_ids, record.partial) == (True, ["d1"], False)


def test_a_trace_whose_spans_never_come_ends_soon_after_a_downtime(tmp_path):
    time, limits = Time(), AssemblyLimits(idle=5.0, rootless=60.0)
    with serving(tmp_path, clock=time.clock(), assembly_limits=limits) as running:
        send_body(running, export(foreign(1, at=time.now)).SerializeToString())
        running.wait_for(lambda books: books["pending"] == 1)
    time.now += HOUR / 6
    with serving(tmp_path, clock=time.clock(), assembly_limits=limits) as running:
        pass_by(running, time, 36.0)
        assert accounted(running)["scored"] == 1
