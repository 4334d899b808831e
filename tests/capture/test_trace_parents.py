"""In a trace of the application's own tracer: the same trace id, the same draw everywhere, its sampler respected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

import ragmon
from ragmon.capture import call as parent
from ragmon.capture.call import threshold
from ragmon.capture.convert import call_to_record
from ragmon.core.sampling import SPAN
from tests.support.capturing import capturing, pipeline

traced = ragmon.trace(pipeline)
trace_ids = st.integers(1, (1 << 128) - 1)


def under(trace_id, *, sampled=True, ot=None):
    """A span of another service, as its headers say."""
    state = TraceState([("ot", ot)]) if ot else TraceState()
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else 0)
    return trace.use_span(
        NonRecordingSpan(SpanContext(trace_id, 0xABC, is_remote=True, trace_flags=flags, trace_state=state))
    )


def record_under(trace_id, rate=1.0, **told):
    """The record of a call under a span; None where the call is not kept."""
    terms = {name: told.pop(name) for name in ("keep", "parent") if name in told}
    with capturing(rate, **terms) as (_, kept), under(trace_id, **told):
        traced("q")
    return call_to_record(kept[0]) if kept else None


def test_the_record_has_the_trace_id_of_the_span_the_call_runs_in():
    tracer = TracerProvider(sampler=ALWAYS_ON).get_tracer("app")
    with capturing() as (_, kept), tracer.start_as_current_span("request") as span:
        traced("q")
    assert call_to_record(kept[0]).trace_id == f"{span.get_span_context().trace_id:032x}"


@pytest.mark.parametrize(("sampler", "exported"), [(ALWAYS_ON, True), (ALWAYS_OFF, False)])
def test_the_record_says_whether_the_applications_tracer_kept_the_trace(sampler, exported):
    with capturing() as (_, kept), TracerProvider(sampler=sampler).get_tracer("app").start_as_current_span("request"):
        traced("q")
    assert call_to_record(kept[0]).exported is exported


def test_without_a_span_nothing_is_said_of_one():
    with capturing() as (_, kept):
        traced("q")
    assert call_to_record(kept[0]).exported is None


@given(trace_ids, st.floats(0.01, 1), st.floats(0.01, 1))
def test_two_services_agree_on_a_trace_and_a_higher_rate_keeps_a_superset(trace_id, one, other):
    """Each decides alone, from the trace id: whoever keeps fewer keeps some of the other's."""
    low, high = sorted((one, other))
    kept = [record_under(trace_id, rate) is not None for rate in (low, high)]
    assert kept == [trace_id % SPAN >= threshold(rate) for rate in (low, high)]
    assert kept[1] or not kept[0]


@given(st.integers(0, SPAN - 1), st.floats(0.01, 1))
def test_a_trace_that_carries_its_own_randomness_is_drawn_by_that(draw, rate):
    found = record_under(1 << 100, rate, ot=f"rv:{draw:014x}")
    assert (found is not None) is (draw >= threshold(rate))


@pytest.mark.parametrize("sampled", [True, False])
def test_ignored_the_parents_sampler_decides_nothing(sampled):
    record = record_under(SPAN - 1, 0.5, sampled=sampled, ot="th:8")
    assert (record.sampling.audit, record.sampling.p_audit) == (True, 0.5)


@pytest.mark.parametrize(
    ("ot", "rate", "p_audit"),
    [("th:8", 0.2, 0.2), ("th:8", 0.9, 0.5), ("th:0", 0.2, 0.2), ("th:c;rv:ffffffffffffff", 1.0, 0.25)],
)
def test_respected_the_smaller_of_both_rates_is_the_probability(ot, rate, p_audit):
    """Both samplers read the same randomness, so a trace both keep is one the stricter keeps."""
    record = record_under(SPAN - 1, rate, ot=ot, parent="respect")
    assert (record.sampling.audit, record.sampling.p_audit) == (True, p_audit)


def test_respected_an_unsampled_parent_decides_against_the_call_whatever_its_outcome():
    with capturing(1.0, parent="respect", keep={"refusal": 1.0}) as (found, kept), under(SPAN - 1, sampled=False):
        traced("not in context")
    assert kept == []
    assert sum(found.totals().values()) == 1, "it is counted all the same"


def test_respected_a_call_kept_for_its_outcome_is_as_likely_as_its_parent_allows():
    record = record_under(SPAN // 2, 0.1, ot="th:8", parent="respect", keep={"refusal": 1.0})
    assert record is None
    with capturing(0.1, parent="respect", keep={"refusal": 0.5}) as (_, kept):
        for _ in range(60):
            with under(SPAN // 2, ot="th:8"):
                traced("not in context")
    sampling = call_to_record(kept[0]).sampling
    assert (sampling.audit, sampling.p_audit) == (False, 0.1)
    assert sampling.p == pytest.approx(0.5 * (1 - (1 - 0.1 / 0.5) * (1 - 0.5)))


def test_respected_a_parent_sampled_nobody_knows_how_is_in_no_estimate_and_counted():
    """The sampler left no threshold: how many calls this one stands for is unknown."""
    with capturing(1.0, parent="respect") as (found, kept), under(SPAN - 1):
        traced("q")
    sampling = call_to_record(kept[0]).sampling
    assert (sampling.audit, sampling.stratum, sampling.p_audit) == (False, "unknown_weight", 0.0)
    assert found.totals()["default", "live", "unknown_weight"] == 1


@pytest.mark.parametrize("ot", ["th:", "th:xyz", "rv:12", "th:123456789abcdef", "p:8;r:62", "th", ";;:"])
def test_a_tracestate_that_says_nothing_useful_is_as_none(ot):
    assert record_under(SPAN - 1, 0.5, ot=ot).sampling.p_audit == 0.5


def test_a_context_without_a_span_is_no_parent():
    token = context.attach(context.set_value("user", "someone"))
    try:
        with capturing() as (_, kept):
            traced("q")
    finally:
        context.detach(token)
    assert call_to_record(kept[0]).exported is None


def test_opentelemetry_is_noticed_when_the_application_begins_to_use_it(monkeypatch):
    monkeypatch.setattr(parent.sys, "modules", {})
    with capturing() as (found, kept):
        with under(SPAN - 1):
            traced("before")
        monkeypatch.undo()
        found.refresh()
        with under(SPAN - 1):
            traced("after")
    assert [call_to_record(call).exported for call in kept] == [None, True]


def test_without_the_private_variable_the_public_function_is_asked(monkeypatch):
    """OpenTelemetry may move the one at any time; the other is its interface."""
    monkeypatch.delattr(context, "_RUNTIME_CONTEXT", raising=False)
    assert parent.watcher() is context.get_current
