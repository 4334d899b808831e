"""Traces that a sampler in front has thinned: rates are of all traffic, or say that they are not."""

from __future__ import annotations

import json
import random

import pytest

import ragmon
from ragmon.core.sampling import SPAN
from ragmon.ingest.spans.mapper import per_request
from ragmon.ingest.spans.sampling import UpstreamSampling, probability
from tests.support.manual_writer import ManualWriter, body
from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.serving import foreign, journalled

ERRORS = '[gates.errors]\nmetric = "error_rate"\nat_most = 0.05\n'
N = 4000


def threshold(p):
    """The threshold of a probability, as samplers write it."""
    return f"{SPAN - round(p * SPAN):014x}".rstrip("0") or "0"


WAYS = {
    "a threshold in the tracestate": lambda p: {"state": f"vendor=x,ot=th:{threshold(p)}"},
    "a threshold as an attribute": lambda p: {"attributes": {"sampling.threshold": threshold(p)}},
    "a probability": lambda p: {"attributes": {"sampling.probability": p}},
    "a rate": lambda p: {"attributes": {"sampling.rate": 1 / p}},
    "Honeycomb's": lambda p: {"attributes": {"SampleRate": round(1 / p)}},
    "Jaeger's": lambda p: {"attributes": {"sampler.type": "probabilistic", "sampler.param": p}},
    "Logfire's": lambda p: {"attributes": {"logfire.sample_rate": p}},
}


def kept(way, *, seed=1, at=1_764_000_000.0, p=0.1):
    """Of requests of which 2 % fail, all that failed, and of the others one in ten; how they say so."""
    chance = random.Random(seed)
    for n in range(N):
        failed = n % 50 == 0
        if not failed and chance.random() >= p:
            continue
        told = way(1.0 if failed else p)
        call, found = foreign(chance.getrandbits(56), at=at + n / 100)
        call = call._replace(failed=failed, state=told.get("state", ""))
        call = call._replace(attributes={**call.attributes, **told.get("attributes", {})})
        if failed:
            call.attributes.pop("output.value")
        yield [call, found]


def errors(outcomes):
    return next(outcome for outcome in outcomes if outcome.gate.metric == "error_rate")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_in_a_file_errors_that_were_all_kept_weigh_as_little_as_they_are(tmp_path, way):
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(as_json(export(spans, **{"service.name": "s"})) + b"\n" for spans in kept(way)))
    (tmp_path / "ragmon.toml").write_text(ERRORS)
    outcome = errors(ragmon.replay([path], config=tmp_path / "ragmon.toml").outcomes)
    assert outcome.value == pytest.approx(0.02, abs=0.003)
    assert (outcome.verdict, outcome.of) == ("pass", "all calls")


def test_on_a_server_rates_are_of_all_traffic_and_alarms_and_gold_read_a_uniform_sample(tmp_path):
    with ManualWriter(tmp_path, ERRORS) as manual:
        spans = list(kept(WAYS["a threshold in the tracestate"], at=manual.time.now - N / 100))
        for start in range(0, len(spans), 50):
            manual.send(body(*(span for one in spans[start : start + 50] for span in one)))
        manual.tick(10)
        outcome = errors(manual.server_state.engine.monitor_snapshot(manual.time.now, {}).outcomes)
        assert outcome.value == pytest.approx(0.02, abs=0.003)
        assert outcome.of == "all calls"
        assert manual.agrees()
    records = journalled(tmp_path)
    uniform = [record for record in records if record.sampling.audit]
    assert sum(record.error is not None for record in uniform) / len(uniform) < 0.05
    assert {record.sampling.stratum for record in records} == {"1 in 1", "1 in 10"}


def test_spans_that_say_that_they_were_sampled_and_not_how_are_of_the_sampled_part(tmp_path):
    path = tmp_path / "traces.jsonl"
    spans = kept(lambda _: {"attributes": {"sampling.priority": 1}})
    path.write_bytes(b"".join(as_json(export(one)) + b"\n" for one in spans))
    (tmp_path / "ragmon.toml").write_text(ERRORS)
    outcome = errors(ragmon.replay([path], config=tmp_path / "ragmon.toml").outcomes)
    assert outcome.of == "the traffic that a sampler kept"


def test_one_rate_for_all_is_a_uniform_sample():
    sampling = UpstreamSampling()
    found = {sampling.of(one, "s") for n in range(50) for one in per_request(asked(n, state="ot=th:8"))}
    assert {(one.audit, one.p, one.p_audit, one.stratum) for one in found} == {(True, 0.5, 0.5, "1 in 2")}


def test_pipelines_have_lowest_probabilities_of_their_own():
    sampling, told = UpstreamSampling(), [("web", "f"), ("docs", "8"), ("docs", "0")]
    for name, th in told:
        (request,) = per_request(asked(1, state=f"ot=th:{th}"))
        sampling.of(request, name)
    assert sampling.lowest == {"web": 1 / 16, "docs": 0.5}


@pytest.mark.parametrize(
    "state", ["", "ot=th:", "ot=th:xyz", "ot=rv:0123456789abcd", "vendor=th:8", "ot=th:123456789012345"]
)
def test_a_tracestate_without_a_threshold_says_nothing(state):
    assert probability(made({}, state=state) if state else made({})) is None


@pytest.mark.parametrize(
    "attributes",
    [
        {"SampleRate": 0},
        {"sampling.probability": 0},
        {"sampling.probability": "often"},
        {"sampling.rate": -1},
        {"sampler.param": 0.5},
    ],
    ids=json.dumps,
)
def test_what_is_no_probability_says_nothing(attributes):
    assert probability(made(attributes)) is None


def asked(number, **fields):
    return [span._replace(**fields) for span in foreign(number)]
