"""What is read of gold items: the same whatever was folded, within a bound of CPU, and only of sets in force."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from ragmon.config.load import load
from ragmon.core.errors import UnknownNameError
from ragmon.core.record import Answer, Record
from ragmon.export.report import traced_items
from ragmon.gates.coverage import covered
from ragmon.gates.history import GoldFindings
from ragmon.metrics.facts import Facts
from ragmon.monitor import engine
from ragmon.monitor.engine import Engine, GoldReader
from ragmon.scoring.snapshot import ALL, SetPipeline, add_points, item_outcome

START = 1_763_683_200.0
ITEMS = 12


class Asked:
    """An engine whose probes ask every item every two minutes; what is wrong is told by the item and the time."""

    def __init__(self, folder, windows='["10m", "24h"]'):
        item = {"gold_claim_substr": ["x"], "gold_citations": ["d"], "answerable": True}
        rows = [json.dumps({"qid": f"q{k}", "question": f"what is {k}", **item}) for k in range(ITEMS)]
        (folder / "gold.jsonl").write_text("\n".join(rows))
        text = f'windows = {windows}\n[pipelines.support]\n[gold.main]\npath = "gold.jsonl"\n'
        (folder / "ragmon.toml").write_text(text)
        self.engine, self.now, self.locks = Engine(load(folder / "ragmon.toml", environ={})), START, 0
        self.reader = GoldReader(self.locked)

    @contextmanager
    def locked(self):
        self.locks += 1
        yield self.engine, self.now

    def run(self, seconds, is_wrong=lambda k, ts: False):
        """Go on for some time."""
        end = self.now + seconds
        while self.now < end:
            for k in range(ITEMS):
                answer = Answer(claim="x", citations=[] if is_wrong(k, self.now) else ["d"])
                told = {"pipeline": "support", "source": "probe", "qid": f"q{k}", "build": f"b{k % 2}"}
                assert self.engine.observe(Record(ts=self.now, answer_json=answer, **told), self.now)
            self.now += 120.0
        return self


@pytest.fixture
def asked(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "IDLE", 0)
    return Asked(tmp_path)


def only(findings: GoldFindings):
    ((key, found),) = findings.sets.items()
    assert (key.gold, key.pipeline) == ("main", "support")
    return found


def test_what_is_counted_of_items_is_what_a_report_and_the_coverage_count(asked):
    """Three hours: most of it is folded by the hour."""
    asked.run(3 * 3600, is_wrong=lambda k, ts: k == 3 and ts % 240 == 0)
    found = only(asked.reader.findings())
    outcomes = {}
    for item, counts in traced_items(asked.engine.scorer):
        for key, n in counts.items():
            outcome = item_outcome(Facts._make(key))
            outcomes[item.qid, outcome] = outcomes.get((item.qid, outcome), 0) + n
    (hard,) = found.hardest
    assert (hard.right, hard.wrong) == (outcomes["q3", "OK"], outcomes["q3", "ANS_NO_HIT"]) == (45, 45)
    snapshot = asked.engine.gates.snapshot(asked.now)
    (row,) = covered(snapshot, ALL)
    assert found.spread.asked == row.seen == ITEMS


def test_an_item_that_broke_is_found_in_every_span_with_the_time_of_its_turn(asked):
    broke = START + 3 * 3600
    asked.run(3.5 * 3600, is_wrong=lambda k, ts: k == 5 and ts >= broke)
    for span in ("10m", "1h"):
        findings = asked.reader.findings(span)
        (flip,) = only(findings).flips
        assert (flip.qid, flip.broke, flip.since) == ("q5", True, broke)
        assert findings.begin == START
        assert flip.after.judged == sum(
            broke - 1800 <= ts and ts >= findings.cut for ts in range(int(START), int(asked.now), 120)
        )


def test_a_turn_more_than_an_hour_ago_is_known_to_the_hour(asked):
    broke = START + 12 * 3600 + 600
    asked.run(18 * 3600, is_wrong=lambda k, ts: k == 5 and ts >= broke)
    findings = asked.reader.findings()
    (flip,) = only(findings).flips
    assert findings.span.name == "6h"
    assert (flip.since, flip.until) == (START + 12 * 3600, START + 13 * 3600)
    assert findings.cut % 3600 == 0
    assert flip.before.judged + flip.after.judged == 18 * 30


def test_without_enough_time_before_it_a_shorter_span_is_compared(asked):
    assert asked.reader.findings().sets == {}
    assert asked.run(300).reader.findings().span.name == "10m"
    assert asked.run(2 * 3600).reader.findings().span.name == "1h"
    assert [span.name for span in asked.reader.spans()] == ["10m", "1h", "6h"]


def test_a_day_can_be_compared_where_counts_are_kept_for_two(tmp_path):
    reader = Asked(tmp_path, windows='["48h"]').reader
    assert [span.name for span in reader.spans()] == ["10m", "1h", "6h", "24h"]


def test_a_span_that_does_not_exist_is_named(asked):
    with pytest.raises(UnknownNameError, match="1y"):
        asked.reader.findings("1y")


def test_what_was_read_is_shown_again_for_a_while_unless_another_engine_counts(asked, monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "IDLE", 10**9)
    asked.run(600)
    first = asked.reader.findings()
    asked.run(600, is_wrong=lambda *_: True)
    assert asked.reader.findings() is first
    other = Asked(tmp_path).run(1200, is_wrong=lambda *_: True)
    asked.engine = other.engine
    assert only(asked.reader.findings()).spread.never == ITEMS


def test_while_a_set_is_read_whoever_counts_waits_for_one_table_at_a_time(asked):
    asked.run(3 * 3600)
    tables = sum(1 for series in asked.engine.scorer.state.series.values() for _ in series.timed_items())
    before = asked.locks
    asked.reader.findings()
    assert asked.locks - before >= tables


def test_where_rows_are_folded_while_a_set_is_read_no_answer_is_counted_twice_or_lost(asked, monkeypatch):
    """Half an hour of records comes when the lock was free for the tenth time: among the tables of the first set."""
    asked.run(2 * 3600, is_wrong=lambda *_: True)
    read = []
    monkeypatch.setattr(engine, "add_points", lambda *told: (read.append(told), add_points(*told)))
    came = []

    @contextmanager
    def disturbed():
        yield asked.engine, asked.now
        came.append(len(read))
        if len(came) == 10:
            asked.run(1800, is_wrong=lambda *_: True)

    found = only(GoldReader(disturbed).findings("1h"))
    assert 0 < came[9] < len(read)
    assert [item.wrong for item in found.hardest] == [75] * ITEMS


def test_sets_that_are_not_in_force_are_not_read(asked, tmp_path):
    asked.run(600)
    (key,) = asked.reader.findings().sets
    (tmp_path / "gold.jsonl").write_text('{"qid": "q0", "question": "another", "answerable": false}')
    other = Engine(load(tmp_path / "ragmon.toml", environ={}))
    other.scorer.restore(asked.engine.scorer.state)
    asked.engine = other
    assert key == SetPipeline("main", key.version, "support")
    assert asked.reader.findings().sets == {}
