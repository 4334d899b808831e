"""The exposition: every documented series under its documented labels, no number where there is no data."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from ragmon.config.load import defaults
from ragmon.core import constants
from ragmon.core.record import Latency
from ragmon.export.families import FAMILIES, LONGEST, PREFIX, SeriesScope, label, series_of
from ragmon.export.prometheus import Collector
from ragmon.export.status import SdkStats
from ragmon.monitor.embedded import Monitor
from ragmon.stats.intervals import wilson
from ragmon.testing import FakeClock, make_record

QUALITY = {"pipeline", "source", "gold", "window"}
COUNTED = {"pipeline", "source", "gold", "gold_version"}
GATE = {"pipeline", "gate"}
DOCUMENTED = {
    "rag_answer_precision": QUALITY,
    "rag_answer_precision_lower": QUALITY,
    "rag_answer_precision_upper": QUALITY,
    "rag_answer_precision_samples": QUALITY,
    "rag_answer_precision_score_total": COUNTED,
    "rag_answer_precision_scored_total": COUNTED,
    "rag_recall": QUALITY | {"k"},
    "rag_recall_score_total": COUNTED | {"k"},
    "rag_recall_score_squares_total": COUNTED | {"k"},
    "rag_compliance": QUALITY,
    "rag_slice_score_total": {"pipeline", "metric", "source", "slice", "gold", "gold_version"},
    "rag_slice_scored_total": {"pipeline", "metric", "source", "slice", "gold", "gold_version"},
    "rag_requests_total": {"pipeline", "source", "stratum"},
    "rag_errors_total": {"pipeline", "code"},
    "rag_e2e_latency_seconds_bucket": {"pipeline", "source", "le"},
    "rag_stage_latency_seconds_bucket": {"pipeline", "source", "stage", "le"},
    "rag_retrieved_documents_bucket": {"pipeline", "source", "le"},
    "ragmon_gate_threshold": GATE,
    "ragmon_gate_value": GATE,
    "ragmon_gate_lower": GATE,
    "ragmon_gate_upper": GATE,
    "ragmon_gate_samples": GATE,
    "ragmon_gate_status": GATE | {"status"},
    "ragmon_gate_info": GATE | {"metric", "source", "gold", "direction", "window", "estimand"},
    "ragmon_gold_lower": {"pipeline", "metric", "source", "gold", "window", "estimand"},
    "ragmon_gold_upper": {"pipeline", "metric", "source", "gold", "window", "estimand"},
    "ragmon_gold_n_eff": {"pipeline", "metric", "source", "gold", "window", "estimand"},
    "ragmon_gold_match_total": {"pipeline", "how"},
    "ragmon_gold_items_seen": {"pipeline", "source", "gold", "window"},
    "ragmon_records_received_total": {"stage"},
    "ragmon_records_scored_total": {"stage"},
    "ragmon_records_dropped_total": {"stage", "reason"},
    "ragmon_records_duplicate_total": {"stage"},
    "ragmon_records_pending": {"stage"},
    "ragmon_accounting_residual": {"stage"},
    "ragmon_unassessed_total": {"metric", "reason"},
    "ragmon_orphan_records_total": set(),
    "ragmon_gold_info": {"gold", "version"},
    "ragmon_gold_items": {"gold"},
    "ragmon_build_seen_info": {"pipeline", "build", "index_hash"},
    "ragmon_config_last_reload_successful": set(),
    "ragmon_last_scored_timestamp_seconds": set(),
    "ragmon_series": set(),
    "ragmon_build_info": {"version"},
}
CONFIG = """
[slices]
lang = ["de"]
[gold.gold]
path = "gold.jsonl"
[gates.of_users]
metric = "answer_precision"
at_least = 0.8
source = "match"
[gates]
preset = "default"
"""
GOLD = """
{"qid": "a", "question": "A?", "answerable": true, "gold_claim_substr": ["answer"], "gold_citations": ["d1", "d9"]}
{"qid": "b", "question": "B?", "answerable": false}
"""


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def monitor(configured, clock):
    """A monitor with gold and slices that has seen users and probes."""
    settings = configured(CONFIG)
    (settings.path.parent / "gold.jsonl").write_text(GOLD)
    found = Monitor(settings, clock=clock)
    found.captured = lambda: SdkStats(
        calls={("default", "live", "rest"): 40, ("default", "live", "error"): 2},
        errors={("default", "TimeoutError"): 2},
    )
    timed = {"ts": clock(), "latency_ms": Latency(total=700.0, retrieve=40.0, generate=660.0)}
    for number in range(40):
        found.submit(make_record(source="live", build="b1", index_hash="i1", tags={"lang": "de"}, **timed))
        found.submit(make_record("ab"[number % 2], source="probe", **timed))
    found.submit(make_record(source="live", ts=clock() + 10_000))
    found.submit(make_record(source="live", ts=clock(), retrieved=None))
    return found


def expose(monitor, render=generate_latest):
    """What is sent to Prometheus."""
    registry = CollectorRegistry()
    registry.register(Collector(monitor.snapshot))
    return render(registry).decode()


def read(text):
    """Samples by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_every_documented_series_is_there_under_its_labels(monitor):
    found = {}
    for name, *labels in read(expose(monitor)):
        found.setdefault(name, set()).add(frozenset(key for key, _ in labels))
    assert {name: found.get(name) for name in DOCUMENTED} == {
        name: {frozenset(labels)} for name, labels in DOCUMENTED.items()
    }


def test_values_are_those_of_the_records(monitor):
    found = read(expose(monitor))

    def of(name, **labels):
        return found[(name, *sorted({"pipeline": "default", **labels}.items()))]

    probe = {"source": "probe", "gold": "gold"}
    version = monitor.snapshot().snapshot.golds[0].version
    # Of every two probes one is right, the other answers what nobody can.
    assert of("rag_answer_precision", **probe, window="5m") == 0.5
    assert of("rag_answer_precision_samples", **probe, window="5m") == 40
    lower, upper = wilson(20, 40)
    assert of("rag_answer_precision_lower", **probe, window="1h") == lower
    assert of("rag_answer_precision_upper", **probe, window="24h") == upper
    assert of("rag_under_refusal_rate_score_total", **probe, gold_version=version) == 20
    assert of("rag_under_refusal_rate_scored_total", **probe, gold_version=version) == 20
    # d1 of d1 and d9 came back, first of three.
    for k, recall in (("", 0.5), ("1", 0.5), ("10", 0.5)):
        assert of("rag_recall", **probe, window="5m", k=k) == recall
        assert of("rag_recall_score_total", **probe, gold_version=version, k=k) == 20 * recall
        assert of("rag_recall_score_squares_total", **probe, gold_version=version, k=k) == 20 * recall**2
    assert of("rag_compliance_scored_total", source="live", gold="", gold_version="") == 41
    german = {"metric": "coverage", "source": "live", "slice": "lang=de", "gold": "", "gold_version": ""}
    assert of("rag_slice_scored_total", **german) == 40
    assert of("rag_slice_score_total", **german) == 40
    assert of("rag_requests_total", source="live", stratum="rest") == 40
    assert of("rag_errors_total", code="TimeoutError") == 2
    assert of("ragmon_gate_threshold", gate="coverage") == 0.70
    assert found["ragmon_records_dropped_total", ("reason", "too_future"), ("stage", "score")] == 1
    assert found["ragmon_gold_items", ("gold", "gold")] == 2


def test_slices_are_counted_for_gated_metrics_alone(monitor):
    gated = {outcome.gate.metric for outcome in monitor.outcomes()}
    sliced = {dict(labels)["metric"] for name, *labels in read(expose(monitor)) if name == "rag_slice_scored_total"}
    assert sliced
    assert sliced <= gated


def test_histograms_are_cumulative_and_say_how_many_and_how_much(monitor):
    found = read(expose(monitor))
    of_live = {key: value for key, value in found.items() if ("source", "live") in key}

    def buckets(name):
        return {
            float(dict(labels)["le"]): value for (key, *labels), value in of_live.items() if key == f"{name}_bucket"
        }

    latency, documents = buckets("rag_e2e_latency_seconds"), buckets("rag_retrieved_documents")
    assert latency == {bound: 40.0 if bound >= 0.7 else 0.0 for bound in latency}
    assert documents == {bound: 40.0 if bound >= 3 else 0.0 for bound in documents}
    labels = (("pipeline", "default"), ("source", "live"))
    assert found["rag_e2e_latency_seconds_count", *labels] == found["rag_retrieved_documents_count", *labels] == 40
    assert found["rag_retrieved_documents_sum", *labels] == 120
    assert found["rag_e2e_latency_seconds_sum", *labels] == pytest.approx(40 * 0.7, rel=0.01)
    retrieve = (("pipeline", "default"), ("source", "live"), ("stage", "retrieve"))
    assert found["rag_stage_latency_seconds_sum", *retrieve] == pytest.approx(40 * 0.04, rel=0.01)


def exemplars(monitor):
    """Trace, bucket and time of every exemplar of the latency, by source."""
    return {
        sample.labels["source"]: (sample.exemplar.labels["trace_id"], sample.labels["le"], sample.exemplar.value)
        for family in parse_openmetrics(expose(monitor, generate_openmetrics))
        for sample in family.samples
        if sample.exemplar
    }


@pytest.mark.slow
def test_the_newest_trace_somebody_can_open_marks_the_bucket_of_its_time(monitor, clock):
    assert exemplars(monitor) == {}, "no tracer kept a trace"

    def come(trace, seconds, **fields):
        latency = Latency(total=1000 * seconds)
        monitor.submit(make_record(trace_id=trace, latency_ms=latency, ts=clock(), **{"exported": True, **fields}))

    come("a" * 32, 0.7, source="live")
    come("b" * 32, 31.0, source="live")
    come("c" * 32, 0.01, source="live", exported=False)
    come("d" * 32, 0.01, source="live", exported=None)
    come("no trace id", 0.01, source="live")
    come("e" * 32, 1.0, source="probe", qid="a")
    assert exemplars(monitor) == {"live": ("b" * 32, "+Inf", 31.0), "probe": ("e" * 32, "1.0", 1.0)}
    assert "trace_id" not in expose(monitor), "the older format has no exemplars"


def test_a_gate_has_one_verdict_and_no_number_it_does_not_know(monitor):
    found = read(expose(monitor))
    for outcome in monitor.outcomes():
        labels = (("gate", outcome.gate.name), ("pipeline", "default"))
        status = {s: found["ragmon_gate_status", *labels, ("status", s)] for s in ("pass", "fail", "insufficient")}
        assert status == {s: float(s == outcome.verdict) for s in status}
        assert found.get(("ragmon_gate_value", *labels)) == outcome.value
        assert found.get(("ragmon_gate_lower", *labels)) == outcome.lower
        assert found["ragmon_gate_samples", *labels] == outcome.n
    assert any(outcome.value is None for outcome in monitor.outcomes()), "no user asks what is in gold"


def test_before_the_first_record_nothing_is_said_of_quality(configured, clock):
    """No data is no sample: neither 0, nor NaN, nor a counter that would make PromQL divide 0 by 0."""
    found = read(expose(Monitor(configured('[pipeline]\nname = "support"\n'), clock=clock)))
    assert {name for name, *_ in found if name.startswith("rag_")} == set()
    assert "ragmon_last_scored_timestamp_seconds" not in {name for name, *_ in found}
    assert found["ragmon_gate_samples", ("gate", "coverage"), ("pipeline", "support")] == 0
    assert not [key for key in found if key[0] in ("ragmon_gate_value", "ragmon_gate_lower", "ragmon_gate_upper")]


def test_before_the_first_record_there_is_no_pipeline_that_nothing_names(clock):
    assert 'pipeline="' not in expose(Monitor(defaults(), clock=clock))


def test_an_empty_denominator_is_absent_everywhere(monitor, clock):
    """Users' answers without contexts: groundedness has requests, and no number."""
    monitor.submit(make_record(source="live", ts=clock()))
    found = read(expose(monitor))
    assert not {key[0] for key in found if key[0].startswith("rag_groundedness")}
    assert found["ragmon_unassessed_total", ("metric", "groundedness"), ("reason", "no_text")] > 0
    assert not [key for key, value in found.items() if math.isnan(value)]


def test_squares_are_exported_for_graded_metrics_and_only_there(monitor):
    """Where every score is 0 or 1, they would repeat the sum; where one may lie between, they must not come late."""
    exposed = {key[0] for key in read(expose(monitor))}
    found = {
        name.removesuffix("_score_total").removeprefix("rag_") for name in exposed if name.endswith("_score_total")
    }
    graded = {metric for metric in found if f"rag_{metric}_score_squares_total" in exposed}
    assert graded == {"recall", "precision", "mrr", "ndcg", "average_precision", "contextual_precision"}
    assert found - graded >= {"answer_precision", "full_recall", "hit_rate", "compliance", "slice"}


def test_the_number_of_series_is_the_number_of_samples(monitor):
    found = read(expose(monitor))
    assert found["ragmon_series",] == len(found)


def test_both_formats_parse_back_to_the_same_samples(monitor):
    plain = read(expose(monitor))
    open_ = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse_openmetrics(expose(monitor, generate_openmetrics))
        for sample in family.samples
    }
    assert open_ == plain


def test_every_family_stands_once_with_help_of_its_own(monitor):
    text = expose(monitor)
    help_ = re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE)
    named = [name for name, _ in help_]
    assert len(named) == len(set(named))
    assert named == re.findall(r"^# TYPE (\S+) \w+$", text, re.MULTILINE)
    assert all(said.strip() and said[0].isupper() for _, said in help_)
    assert len({said for _, said in help_}) == len(help_)
    for name, said in help_:
        assert ("Lower 95 %" in said) == name.endswith("_lower")
        assert ("Upper 95 %" in said) == name.endswith("_upper")


SUBJECT = {
    SeriesScope.GATE: GATE,
    SeriesScope.ALARM: GATE,
    SeriesScope.BASELINE: GATE,
    SeriesScope.SLICE: {"pipeline", "metric", "source", "slice", "gold", "gold_version"},
    SeriesScope.GATED_WINDOW: {"pipeline", "metric", "source", "gold", "window"},
    SeriesScope.GOLD_WINDOW: QUALITY,
    SeriesScope.SOURCE: {"pipeline", "source"},
    SeriesScope.STRATUM: {"pipeline", "source", "stratum"},
    SeriesScope.ERROR: {"pipeline", "code"},
    SeriesScope.BUILD: {"pipeline", "build", "index_hash"},
    SeriesScope.MATCHING: {"pipeline"},
    SeriesScope.GOLD: {"gold"},
    SeriesScope.METRIC: {"metric"},
    SeriesScope.MONITOR: set(),
}
"""The labels that name one thing of a scope."""


def test_a_thing_has_as_many_series_as_are_declared_for_its_scope_and_never_more(monitor, clock):
    """The budget counts the declarations, so each sample belongs to one, under the labels that it declares."""
    clock.advance(120)  # alarms exist once a minute has ended
    declared = {str(family): family for family in FAMILIES}
    counts = Counter()
    for name, *labels in read(expose(monitor)):
        family = declared.get(name) or declared.get(re.sub("_(bucket|sum|count)$", "", name))
        if family is None:
            family = next(
                declared[ending] for ending in sorted(declared, key=len, reverse=True) if name.endswith(ending)
            )
            assert name.startswith(PREFIX)
        keys = {key for key, _ in labels}
        assert keys - {"le", "k"} == set(family.labels), name
        subject = SUBJECT.get(family.scope)
        metric = name.removesuffix(family) if subject is None else ""
        identity = [pair for pair in labels if subject is None or pair[0] in subject]
        counts[family.scope, metric, *identity] += 1
    most = Counter()
    for (scope, *_), n in counts.items():
        most[scope] = max(most[scope], n)
    assert all(n <= series_of(scope) for scope, n in most.items() if scope != SeriesScope.METRIC)
    exact = {
        SeriesScope.GATE,
        SeriesScope.ALARM,
        SeriesScope.METRIC_WINDOW,
        SeriesScope.METRIC_TOTAL,
        SeriesScope.SOURCE,
        SeriesScope.GOLD,
    }
    assert {scope: most[scope] for scope in exact} == {scope: series_of(scope) for scope in exact}
    assert most[SeriesScope.SLICE] == series_of(SeriesScope.SLICE) - 1, "the gates here are on shares, without squares"


def test_a_graded_metric_has_its_squares_in_slices_too(configured):
    settings = configured(CONFIG + '[gates."recall@5"]\nat_least = 0.5\nslice = { lang = "de" }\nsource = "match"\n')
    (settings.path.parent / "gold.jsonl").write_text(GOLD)
    with Monitor(settings) as found:
        for place in range(4):
            found.submit(make_record("a", source="live", retrieved=["d1", "d9"][: 1 + place % 2], tags={"lang": "de"}))
        sums = {
            name: value
            for (name, *labels), value in read(expose(found)).items()
            if name.startswith("rag_slice_") and ("metric", "recall@5") in labels and ("source", "match") in labels
        }
    assert sums == {
        "rag_slice_score_total": 3.0,
        "rag_slice_scored_total": 4.0,
        "rag_slice_score_squares_total": 2.5,
    }


anything = st.text(st.characters(), max_size=12) | st.sampled_from(
    ['"', "\\", "\n", "\r\n", "\0", "{}", "\ud800", "\udfff"]
)
name = st.tuples(anything, st.integers(0, 3)).map(lambda drawn: drawn[0] * (1 + drawn[1] * 1000))


@pytest.mark.slow
@given(st.lists(name, min_size=1, max_size=4, unique=True))
def test_any_label_renders_is_capped_and_keeps_series_apart(texts):
    """Half surrogate pairs, quotes, line ends, ten thousand characters: one of them must not cost a whole scrape."""
    monitor = Monitor(defaults(), clock=FakeClock())
    for text in texts:
        monitor.submit(make_record(source="live", pipeline=text, build=text, index_hash=text, ts=monitor._clock()))
    seen = {text or constants.DEFAULT_PIPELINE for text in texts}
    monitor.captured = lambda: SdkStats(
        calls={(text, "live", "rest"): 1 for text in texts}, errors={(text, text): 1 for text in texts}
    )
    text = expose(monitor)
    found = [sample for family in parse(text) for sample in family.samples]
    assert max(len(value) for sample in found for value in sample.labels.values()) <= LONGEST
    keys = [(sample.name, *sorted(sample.labels.items())) for sample in found]
    assert len(keys) == len(set(keys)), "two samples of one series would cost the scrape"
    scored = [sample for sample in found if sample.name == "rag_compliance_scored_total"]
    assert len(scored) == len(seen)
    assert len([sample for sample in found if sample.name == "rag_errors_total"]) == len(texts)


@given(st.text(st.characters(), max_size=300), st.text(st.characters(), max_size=300))
def test_labels_are_alike_only_where_texts_are(one, other):
    assert (label(one) == label(other)) == (one == other)
    assert len(label(one).encode().decode()) <= LONGEST
    assert label(label(one)) == label(one)
