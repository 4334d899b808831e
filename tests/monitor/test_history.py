"""The history of gates: every point is what the gate's window said at its end, and past windows are computed once."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from ragmon.config.load import load
from ragmon.core.errors import UnknownNameError
from ragmon.core.record import Record
from ragmon.monitor import engine as history
from ragmon.monitor.engine import LATE, SPANS, Engine, MonitorHistory, gate_history
from ragmon.scoring.snapshot import point_ends

START = 1_763_683_200.0
CONFIG = """
windows = ["10m", "24h"]
[pipelines.support.gates.errors]
metric = "error_rate"
at_most = 0.1
window = "10m"
[pipelines.support.gates.index]
kind = "distinct"
at_most = 1
"""


class Monitored:
    """An engine that gets a request every ten seconds; every `period`-th one is an error in the second half hour."""

    def __init__(self, folder):
        (folder / "ragmon.toml").write_text(CONFIG)
        self.engine, self.now, self.reads = Engine(load(folder / "ragmon.toml", environ={})), START, []
        self.histories = MonitorHistory(self.locked)

    @contextmanager
    def locked(self):
        yield self.engine, self.now

    def counted(self, engine, end, *rest):
        """The points of a window; its end is remembered."""
        self.reads.append(end)
        return gate_history(engine, end, *rest)

    def run(self, seconds, period=0):
        """Go on for some time; returns what the gate said at the end of every ten minutes."""
        verdicts = {}
        for _ in range(int(seconds // 10)):
            number = int(self.now - START) // 10
            error = "timeout" if period and number % period == 0 else None
            self.engine.observe(Record(ts=self.now, pipeline="support", source="live", error=error), self.now)
            self.now += 10.0
            if self.now % 600 == 0:
                outcomes = self.engine.gates.judge(self.engine.gates.snapshot(self.now - 1))
                verdicts[self.now] = next(found for found in outcomes if found.gate.name == "errors")
        return verdicts


@pytest.fixture
def monitored(tmp_path, monkeypatch):
    monitored = Monitored(tmp_path)
    monkeypatch.setattr(history, "gate_history", monitored.counted)
    return monitored


def test_every_point_is_what_the_gate_said_at_its_end(monitored):
    verdicts = monitored.run(1800) | monitored.run(1800, period=4)
    for end, outcome in verdicts.items():
        point = gate_history(monitored.engine, int(end), 600)["support", "errors"]
        assert (point.value, point.lower, point.upper, point.n) == (
            outcome.value,
            outcome.lower,
            outcome.upper,
            outcome.n,
        )
    assert sorted({round(outcome.value, 2) for outcome in verdicts.values()}) == [0.0, 0.25]


def test_gates_on_distinct_values_have_no_history(monitored):
    monitored.run(600)
    _, histories = monitored.histories.of_pipeline("support")
    assert ("support", "errors") in histories
    assert ("support", "index") not in histories


def test_windows_that_are_over_are_computed_once(monitored):
    monitored.run(3600)
    monitored.histories.of_pipeline("support", "1h")
    assert len(monitored.reads) == 60
    monitored.reads.clear()
    _, histories = monitored.histories.of_pipeline("support", "1h")
    late = min(LATE, 2 * SPANS["1h"].step)
    assert monitored.reads == [
        end for end in reversed(point_ends(monitored.now, 3600, 60)) if end + late > monitored.now
    ]
    assert len(histories["support", "errors"].points) == 60


def test_a_young_monitor_is_shown_over_a_shorter_span(monitored):
    monitored.run(120)
    assert monitored.histories.overview()[0].name == "10m"
    monitored.run(1800)
    assert monitored.histories.overview()[0].name == "1h"
    monitored.run(4 * 3600)
    assert monitored.histories.overview()[0].name == "24h"
    assert monitored.histories.of_pipeline("support")[0].name == "6h"


def test_an_unknown_span_is_refused_with_those_there_are(monitored):
    with pytest.raises(UnknownNameError, match="unknown span: '1y'"):
        monitored.histories.of_pipeline("support", "1y")


def test_the_time_in_which_an_alarm_fired_is_part_of_the_history(monitored):
    monitored.run(1800)
    monitored.run(1800, period=2)
    monitored.engine.advance(monitored.now)
    _, histories = monitored.histories.of_pipeline("support", "1h")
    ((begin, end),) = histories["support", "errors"].alarms
    assert START + 1800 < begin < end
    assert end == monitored.now


def test_a_gate_is_shown_up_to_a_time_that_is_over(monitored):
    monitored.run(7200)
    span, histories = monitored.histories.of_pipeline("support", "1h", START + 3600)
    history = histories["support", "errors"]
    assert (span.name, history.now) == ("1h", START + 3600)
    assert [point.end for point in history.points] == point_ends(START + 3600, 3600, 60)


def test_an_overview_that_lacks_windows_says_how_many(tmp_path, monkeypatch):
    monitored = Monitored(tmp_path)
    monitored.run(1800)
    monkeypatch.setattr(history, "BUDGET", -1.0)  # no past window is read
    span, _ = monitored.histories.overview()
    assert monitored.histories.unread == span.seconds // span.step - 1
    monkeypatch.setattr(history, "BUDGET", 60.0)
    monitored.histories.overview()
    assert monitored.histories.unread == 0
