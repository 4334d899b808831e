"""The text somebody reads at three in the morning: short, in UTC, and nothing in it that steers a terminal."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from ragmon.export.text import why_json, why_text
from ragmon.gates.change import Why
from tests.support.alarming import said
from tests.support.broken_pipelines import COVERAGE, ONE_INDEX, OVER_REFUSAL, P95, PRECISION, Pipeline

TRACES = [
    {
        "trace_id": f"{n:032x}",
        "ts": 1_763_690_390.0 - n,
        "build": "b1",
        "index_hash": "i2",
        "traits": ["retrieved no gold document", "cited no gold document"],
    }
    for n in range(8)
]


@pytest.fixture(scope="module")
def swapped():
    """The index was swapped at 01:40."""
    pipeline = Pipeline()
    pipeline.run(100)
    pipeline.run(20, index="i2", missed=0.6)
    return pipeline


def entry(text, name):
    """What stands behind a word at the beginning of a line."""
    (found,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
    return found.removeprefix(name).strip()


def test_the_answer_is_there_in_under_25_lines(swapped):
    """The gate, its threshold, before and now, since which minute, what changed with it, traces to open."""
    text = why_text(swapped.why(PRECISION, firing=1_763_689_500.0), TRACES)
    assert len(text.splitlines()) < 25
    assert re.fullmatch(
        r"default/answer_precision FAILS: 7\d\.\d % \(\d\d\.\d – \d\d\.\d %\) of [\d,]+, should be at least 80\.0 %",
        entry(text, "gate"),
    )
    assert "answer_precision of probe, gold gold; its alarm fires since 01:45; now 2025-11-21 01:59 UTC" in text
    assert re.match(r"01:\d\d UTC, (19|20) min ago", entry(text, "worse since"))
    assert re.match(r"answer_precision 9\d\.\d % \(.*\) of [\d,]+; [\d,]+ passed, \d+ failed", entry(text, "before"))
    assert re.match(
        r"answer_precision 3\d\.\d % \(.*\) of [\d,]+; [\d,]+ passed, \d+ failed", entry(text, "since then")
    )
    assert re.match(
        r"retrieved no gold document: \d\.\d % -> \d\d\.\d %; 9\d\.\d % of the failing requests",
        entry(text, "what broke"),
    )
    suspect = (
        r"index_hash i2: first seen 01:40, in 100\.0 % of requests since; with it 3\d\.\d % of \d+, "
        r"before it 9\d\.\d % of"
    )
    assert re.match(suspect, entry(text, "suspect"))
    assert "recall" in entry(text, "with it")
    assert "retrieve p50" in entry(text, "time")
    assert entry(text, "traffic").endswith("requests a minute")
    first = "01:59:50  00000000000000000000000000000000  build b1  index_hash i2  retrieved no gold document, cited no"
    assert entry(text, "traces").startswith(first)


def test_traces_are_linked_where_a_link_is_configured(swapped):
    hostile = [{"trace_id": "../x?a=b c", "ts": 1_763_690_390.0}]
    text = why_text(swapped.why(PRECISION), hostile, "https://traces.example/t/{trace_id}")
    assert entry(text, "traces") == "01:59:50  https://traces.example/t/..%2Fx%3Fa%3Db%20c"


def test_five_traces_are_enough(swapped):
    text = why_text(swapped.why(PRECISION), TRACES)
    assert len(re.findall(r"^.{12}01:59:\d\d  0", text, re.MULTILINE)) == 5


@pytest.mark.parametrize("traces", [[{}], [{"ts": "x", "traits": 3}], [{"trace_id": None, "traits": [None, 1]}]])
def test_traces_that_say_little_are_shown_as_they_are(swapped, traces):
    assert entry(why_text(swapped.why(PRECISION), traces), "traces")


def test_without_a_change_it_says_so_and_what_fails():
    pipeline = Pipeline()
    pipeline.run(60)
    text = why_text(pipeline.why(PRECISION))
    assert entry(text, "no change").startswith("nothing became worse: ")
    assert entry(text, "no change").endswith("(since 2025-11-20 22:55 UTC)"), "another day is named"
    assert re.match(r"9\d\.\d % \(.*\) of [\d,]+; [\d,]+ passed, \d+ failed", entry(text, "value"))
    assert "said something else than the gold claim (" in entry(text, "failing")
    assert entry(text, "note").endswith(": no lang is worse than the others, one build, one index_hash")


def test_too_little_data_is_said_plainly():
    pipeline = Pipeline(live=0, probes=1)
    pipeline.run(10)
    assert "are too few" in entry(why_text(pipeline.why(PRECISION)), "no change")


def test_a_gate_on_latency_is_told_in_times():
    pipeline = Pipeline()
    pipeline.run(60)
    pipeline.run(20, retrieve=40)
    text = why_text(pipeline.why(P95))
    assert re.search(r"p95 FAILS: \d\.\d+ x of 1,800, should be at most 1\.3", entry(text, "gate"))
    assert re.match(r"stage retrieve: retrieve p50 4\d -> 1\d\d\d, p95 ", entry(text, "suspect"))
    assert re.match(r"within \d+ ms \d\d\.\d % ", entry(text, "before"))


# --- every kind of suspect has its sentence ---------------------------------------------------------------------------


def told(pipeline, gate):
    return entry(why_text(pipeline.why(gate)), "suspect")


def bad_where(is_bad):
    """Breaks the answers of some records: they cite nothing."""

    def change(record, rng):
        bad = record.error is None and is_bad(record, rng)
        return replace(record, **said("that is right", [])) if bad else record

    return change


def of_b2(record, rng):
    return record.build == "b2"


def test_a_slice_in_which_alone_the_change_is():
    pipeline = Pipeline(live=60)
    pipeline.run(60)
    pipeline.run(15, change=bad_where(lambda record, rng: record.tags["lang"] == "de" and rng.random() < 0.8))
    sentence = r"lang de: 9\d\.\d % of \d+ -> [12]\d\.\d % of \d+; the rest 9\d\.\d % -> 9\d\.\d %$"
    assert re.match(sentence, told(pipeline, COVERAGE))


def test_a_build_that_was_bad_all_along():
    pipeline = Pipeline()
    pipeline.run(30, build=lambda rng: rng.choice(["b1", "b2"]), change=bad_where(of_b2))
    assert re.match(r"build b2: 0\.0 % of \d+, all others 9\d\.\d % of \d+, over the whole", told(pipeline, COVERAGE))


def test_a_bad_build_that_got_more_of_the_traffic():
    pipeline = Pipeline()
    pipeline.run(60, build=lambda rng: "b2" if rng.random() < 0.1 else "b1", change=bad_where(of_b2))
    pipeline.run(30, build=lambda rng: "b2" if rng.random() < 0.9 else "b1", change=bad_where(of_b2))
    sentence = (
        r"build b2: first seen 00:00, its share rose from \d+\.\d % to [89]\d\.\d %; with it 0\.0 % of \d+, without"
    )
    assert re.match(sentence, told(pipeline, COVERAGE))


def test_a_second_index():
    pipeline = Pipeline()
    pipeline.run(30)
    pipeline.run(10, index="i2")
    assert told(pipeline, ONE_INDEX).startswith("index_hash i2: first seen 00:30, in 100.0 % of requests since; ")


# --- what else it must keep -------------------------------------------------------------------------------------------


def test_an_episode_that_is_over_says_until_when(swapped):
    pipeline = Pipeline()
    pipeline.run(60)
    pipeline.run(15, missed=0.6)
    pipeline.run(30)
    assert re.search(
        r"^ +until 01:1[456] UTC: it has been better since$", why_text(pipeline.why(PRECISION)), re.MULTILINE
    )


@pytest.mark.slow
@given(st.text(max_size=300), st.text(max_size=300))
def test_text_from_requests_is_made_printable_and_adds_no_line(swapped, name, trace):
    why = swapped.why(PRECISION)
    changed = dataclasses.replace(
        why,
        suspects=tuple(dataclasses.replace(one, name=name) for one in why.suspects),
        notes=(name,),
        mechanism=name,
        traits=tuple(dataclasses.replace(one, name=name) for one in why.traits[:1]),
    )
    traces = [{"trace_id": trace, "ts": 1.0, "build": name, "traits": [name]}]
    text, usual = why_text(changed, traces), why_text(why, [{"trace_id": "a", "ts": 1.0}])
    assert "\x1b" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", text)
    assert abs(text.count("\n") - usual.count("\n")) <= 3
    assert text.encode("utf-8")


@pytest.mark.parametrize("gate", [PRECISION, OVER_REFUSAL, P95, COVERAGE, ONE_INDEX], ids=lambda gate: gate.name)
def test_every_answer_is_short_and_its_json_is_the_explanation(swapped, gate):
    why = swapped.why(gate)
    assert len(why_text(why, TRACES).splitlines()) < 25
    data = json.loads(why_json(why, TRACES))
    assert data.pop("traces") == TRACES
    assert convert(data, Why) == why
