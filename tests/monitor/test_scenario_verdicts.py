"""Alarms held against what happened in a stream, and the monitors ragmon is compared with."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.scenario import Stream, judge
from bench.scenario.__main__ import Plan, arguments, main, measure, plans
from bench.scenario.incidents import Incident
from bench.scenario.published import scores
from bench.scenario.reference import REFERENCES
from bench.scenario.table import HEAD
from bench.scenario.verdicts import FalseAlarms
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer
from tests.support.scenario_data import TOKEN, gold_rows, stream

# --- judging alarms ---------------------------------------------------------------------------------------------------

DRIFT = Incident(0, "index_drift", 1000.0, 2000.0, 0.6, ramp=False)
BURST = Incident(1, "traffic_burst", 10_000.0, 11_000.0, 4, ramp=False)


def edge(ts, metric="answer_precision", severity="page", state="firing"):
    return {"ts": ts, "alert": metric, "metric": metric, "severity": severity, "state": state}


@pytest.mark.parametrize(
    ("edges", "delay", "page"),
    [
        pytest.param([edge(1300, severity="look"), edge(1500)], 300, 500, id="look, then page"),
        pytest.param([edge(1300, "recall@5", "look")], 300, None, id="depth is ignored"),
        pytest.param([edge(1500), edge(1200)], 200, 200, id="in any order"),
        pytest.param([edge(1000)], 0, 0, id="at once"),
        pytest.param([edge(2900)], 1900, 1900, id="last second of grace"),
        pytest.param([edge(2901)], None, None, id="after grace"),
        pytest.param([edge(999), edge(1200, state="resolved")], None, None, id="began before"),
        pytest.param([edge(1300, "error_rate"), edge(1400, "latency")], None, None, id="other metrics"),
        pytest.param([], None, None, id="silence"),
    ],
)
def test_an_incident_is_found_by_the_first_alert_on_an_expected_metric_while_it_lasts(edges, delay, page):
    (finding,) = judge([DRIFT, BURST], edges).findings
    assert (finding.incident, finding.delay, finding.page_delay) == (DRIFT, delay, page)


def test_false_alarms_are_told_apart_by_severity_and_by_whether_users_behaved_differently():
    edges = [edge(1500, "error_rate"), edge(500), edge(501, severity="look"), edge(11_900, severity="look")]
    edges += [edge(10_500, severity="ticket"), edge(12_000), edge(12_100), edge(12_200, state="resolved")]
    verdict = judge([DRIFT, BURST], edges)
    assert verdict.outside == FalseAlarms(pages=3, looks=1, tickets=0)
    assert verdict.in_benign == FalseAlarms(pages=0, looks=1, tickets=1)


@given(st.lists(st.tuples(st.integers(0, 15_000), st.sampled_from(["page", "look", "ticket"]), st.booleans())))
def test_an_alert_that_begins_outside_of_real_incidents_is_false_exactly_once(drawn):
    edges = [edge(ts, severity=severity, state="firing" if fires else "resolved") for ts, severity, fires in drawn]
    verdict = judge([DRIFT, BURST], edges)
    parts = (verdict.outside, verdict.in_benign)
    assert sum(p.pages + p.looks + p.tickets for p in parts) == sum(
        fires and not 1000 <= ts <= 2900 for ts, _, fires in drawn
    )


def test_the_median_delay_is_over_what_was_found():
    later = [Incident(n, "errors", 10_000.0 * n, 10_000.0 * n + 100, 1, ramp=False) for n in (2, 3, 4)]
    verdict = judge([DRIFT, *later], [edge(1300), *(edge(i.start + i.id, "error_rate") for i in later[:1])])
    assert (verdict.found, verdict.median_delay) == (2, 300)
    assert judge([DRIFT], []).median_delay is None


# --- monitors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "cited", "scored"),
    [
        ("It is Paris.", ["d1"], {"answer_precision": 1, "citation_hit_rate": 1}),
        ("It is Paris.", ["d1", "d9"], {"answer_precision": 0, "citation_hit_rate": 0}),
        ("It is Paris.", ["d2"], {"answer_precision": 0, "citation_hit_rate": 0}),
        ("It is Rome.", ["d1"], {"answer_precision": 0, "citation_hit_rate": 1}),
        (" NOT in context ", [], None),
    ],
)
def test_an_answer_counts_by_the_published_rules(claim, cited, scored):
    """All citations were retrieved and one is gold; `Rome` is too short a phrase to count."""
    item = GoldItem("a", "where?", answerable=True, claim_substrings=["Paris", "Rome"], citations=["d1"])
    expected = {"over_refusal_rate": 1} if scored is None else {"over_refusal_rate": 0} | scored
    assert scores(Answer(claim, cited), ["d1", "d2"], item) == expected


def brute_force(chosen, breaks, hold):
    """The alerts of the four gates, every window counted anew; 1 is right for the first two metrics."""
    rows, gates = gold_rows(), {"answer_precision": 0.80, "citation_hit_rate": 0.75}
    gates |= {"under_refusal_rate": 0.05, "over_refusal_rate": 0.10}
    probes = [record for record in chosen.records() if record.source == "probe"]
    broken, alerts = dict.fromkeys(gates, 0), []
    for minute in range(1, int(chosen.hours * 60)):
        now, seen = chosen.start + 60 * minute, defaultdict(list)
        for r in (r for r in probes if now - 900 < r.ts <= now):
            row, refused, cited = rows[r.qid], r.answer_json.claim == TOKEN, set(r.answer_json.citations or ())
            seen["over_refusal_rate" if row["answerable"] else "under_refusal_rate"].append(
                refused == row["answerable"]
            )
            if not refused:
                hit = bool(row["answerable"] and cited & set(row["gold_citations"]) and cited <= set(r.retrieved_ids))
                claim = r.answer_json.claim.lower()
                seen["citation_hit_rate"].append(hit)
                seen["answer_precision"].append(
                    hit and any(len(p) >= 5 and p.lower() in claim for p in row["gold_claim_substr"])
                )
        for metric, bar in gates.items():
            n, fired = len(seen[metric]), broken[metric] > hold
            breach = n >= 10 and breaks(sum(seen[metric]) / n, n, bar, floor=bar > 0.5)
            broken[metric] = broken[metric] + 1 if breach else 0
            if (broken[metric] > hold) != fired:
                alerts.append((now, metric, "resolved" if fired else "firing"))
    return alerts


def point(p, n, bar, *, floor):
    return p < bar if floor else p > bar


def score_test(p, n, bar, *, floor):
    """Wilson's interval lies beyond the bar exactly where the score test rejects it."""
    return point(p, n, bar, floor=floor) and (p - bar) ** 2 > 1.959963984540054**2 * bar * (1 - bar) / n


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "breaks", "hold"), [("point", point, 0), ("point, 5m", point, 5), ("wilson", score_test, 0)]
)
def test_a_reference_monitor_fires_as_counting_every_window_anew_does(name, breaks, hold):
    alerts = [(e["ts"], e["metric"], e["state"]) for e in REFERENCES[name](stream("standard"))]
    assert sorted(alerts) == sorted(brute_force(stream("standard"), breaks, hold))
    assert alerts


@pytest.mark.slow
def test_the_usual_rules_trade_false_pages_for_delay():
    """Quiet day: the plain rule pages without end, patience helps, the interval more. Loud incidents: all find them."""
    rules = [REFERENCES[name] for name in ("point", "point, 5m", "wilson")]
    pages = [judge(stream("quiet", 24).incidents, rule(stream("quiet", 24))).outside.pages for rule in rules]
    assert pages[0] > 2 * pages[1] > 2 * pages[2]
    verdicts = [judge(stream("standard").incidents, rule(stream("standard"))) for rule in rules]
    missed = [{f.incident.kind for f in verdict.findings if f.delay is None} for verdict in verdicts]
    assert missed == [{"latency"}] * 3
    assert verdicts[0].median_delay < verdicts[2].median_delay


def test_every_monitor_gets_a_row_and_sees_the_same_streams():
    seen = []

    def silent(chosen):
        seen.append(list(chosen.records()))
        return []

    def loud(chosen):
        assert list(chosen.records()) == seen[-1]
        return [edge(i.start + 60, i.expect[0], "look") for i in chosen.incidents if not i.benign] + [
            edge(chosen.start)
        ]

    rows = list(measure(Plan(("subtle", "quiet"), rps=0.01), 2, {"silent": silent, "loud": loud}))
    assert seen[:2] == [list(Stream("subtle", seed, 12, rps=0.01).records()) for seed in (1, 2)]
    told = [dict(zip(HEAD, row.cells, strict=True)) for row in rows]
    assert [(t["preset"], t["monitor"], t["found"]) for t in told] == [
        ("subtle", "silent", "0/8"),
        ("subtle", "loud", "8/8"),
        ("quiet", "silent", "-"),
        ("quiet", "loud", "-"),
    ]
    assert [t["false pages"] for t in told] == ["0", "2", "0", "2"]
    assert [t["median delay"] for t in told] == ["-", "60 / 60 s", "-", "-"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", [(5, 1.0, 0.05), (2, 1.0, 0.02), (2, 0.2, 0.05)]),
        ("--presets quiet subtle", [(2, 1.0, 0.05), (1, 1.0, 0.02), (1, 0.2, 0.05)]),
        ("--presets random", [(1, 1.0, 0.05)]),
        ("--rps 0.5", [(5, 0.5, 0.05)]),
        ("--probe-share 0.1", [(5, 1.0, 0.1)]),
    ],
)
def test_fewer_probes_and_less_traffic_are_tried_unless_a_load_was_asked_for(typed, expected):
    found = plans(arguments(typed.split()))
    assert [(len(plan.presets), plan.rps, plan.probe_share) for plan in found] == expected


@pytest.mark.slow
def test_the_command_prints_a_line_for_every_reference_monitor(capsys):
    main(["--presets", "subtle", "--seeds", "1", "--rps", "0.05"])
    out = capsys.readouterr().out
    for name in REFERENCES:
        assert sum(line.startswith(f"subtle     {name:<11}  1  ") for line in out.splitlines()) == 1, out


def test_without_a_stream_there_is_no_table(capsys):
    with pytest.raises(SystemExit):
        main(["--seeds", "0"])
    assert "--seeds" in capsys.readouterr().err
