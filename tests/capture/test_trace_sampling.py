"""Which calls are kept: the draw comes first, rates mean what they say, and every call is counted, kept or not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon
from ragmon.capture.call import CODES, RANDOM_BITS, CaptureSettings, Runtime, install_runtime, threshold
from ragmon.capture.trace import probe
from ragmon.core import constants
from ragmon.testing import capture_traces
from tests.support.capturing import BrokenError, capturing, pipeline, raises, returns

traced = ragmon.trace(pipeline)
DRAWS = 1 << RANDOM_BITS
shares = st.floats(0, 1)


def live(found):
    """User calls of the default pipeline by stratum."""
    return {stratum: n for (_, source, stratum), n in found.totals().items() if source == constants.LIVE}


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 0), (1.0, 500)])
def test_nothing_is_kept_at_0_and_everything_at_1(rate, expected):
    with capturing(rate) as (found, kept):
        for _ in range(500):
            traced("q")
    assert len(kept) == expected
    assert live(found)["rest"] == 500


def test_a_share_is_kept_at_a_share():
    """20,000 draws at 0.3 lie within six standard deviations: once in five hundred million runs they would not."""
    with capturing(0.3) as (_, kept):
        for _ in range(20_000):
            traced("q")
    assert abs(len(kept) - 6000) < 6 * (20_000 * 0.3 * 0.7) ** 0.5


def test_the_record_says_how_likely_it_was_to_be_kept(configured):
    """The decorator's own rate goes before the configured one of its pipeline, and that before the common one."""
    settings = configured("[sampling]\nrate = 0.9\n[pipelines.support.sampling]\nrate = 0.5")
    with capture_traces(settings) as records:
        for _ in range(60):
            ragmon.trace(name="other")(pipeline)("common")
            ragmon.trace(name="support")(pipeline)("support")
            ragmon.trace(name="support", sample=1.0)(pipeline)("own")
    found = {record.q: (record.sampling.p_audit, record.sampling.p) for record in records}
    assert found == {"common": (0.9, 0.9), "support": (0.5, 0.5), "own": (1.0, 1.0)}


def test_capture_traces_keeps_every_call_whatever_its_decorator_says():
    """Else a test of a pipeline that is sampled at 5 % would fail nineteen times out of twenty."""
    with capture_traces() as records:
        ragmon.trace(sample=0.0)(pipeline)("q")
    assert len(records) == 1


@given(shares, shares, st.integers(0, DRAWS - 1))
def test_a_higher_rate_keeps_all_that_a_lower_one_keeps(one, other, draw):
    low, high = sorted((one, other))
    assert draw < threshold(low) or draw >= threshold(high)


@given(shares)
def test_the_share_of_draws_that_are_kept_is_the_rate(rate):
    assert 0 <= threshold(rate) <= DRAWS
    assert (DRAWS - threshold(rate)) / DRAWS == pytest.approx(rate, abs=1e-15)


def test_the_draw_precedes_the_call():
    """The function can hand its trace id on; outside there is none."""
    inside = []

    @ragmon.trace
    def answer(question):
        inside.append(ragmon.trace_id())
        return question

    with capture_traces() as records:
        answer("q")
    assert inside == [records[0].trace_id]
    assert len(bytes.fromhex(inside[0])) == 16
    assert ragmon.trace_id() is None
    with capturing(0.0):
        answer("q")
    assert inside[1:] == [None]


def test_the_low_bits_of_the_trace_id_are_the_draw():
    """So that every replica and every language decides alike on a trace id."""
    with capturing(0.25) as (_, kept):
        for _ in range(400):
            traced("q")
    assert kept
    assert all(int(call.trace_id, 16) % DRAWS >= threshold(0.25) for call in kept)
    assert len({call.trace_id for call in kept}) == len(kept)


def test_calls_are_counted_by_how_they_ended():
    """Errors before refusals before slow calls, by a look at the outside of the result, where one of them is kept."""
    refusals = [" Not in context ", {"answer": "NOT IN CONTEXT"}, {"claim": "not in context", "answer": "yes"}]
    others = ["an answer", {"answer": None}, {"claim": ["not in context"]}, 7, None, {"answer": "not in context" * 9}]
    with capturing(0.0, slow_above=0.0, keep={"slow": 1e-9}) as (found, _):
        for result in (*refusals, *others):
            ragmon.trace(returns(result))("q")
        with pytest.raises(BrokenError):
            traced("raise")
    assert live(found) == {"error": 1, "refusal": len(refusals), "slow": len(others), "rest": 0}
    assert found.errors() == {("default", "BrokenError"): 1}


def test_refusal_tokens_are_those_of_the_pipeline(configured):
    settings = configured('[pipelines.support.refusal]\ntokens = [" Weiß nicht "]')
    with capture_traces(settings) as records:
        for name in ("support", "other"):
            ragmon.trace(name=name, sample=1.0)(returns("weiss nicht"))("q")
    assert [(r.pipeline, r.sampling.stratum) for r in records] == [("support", "refusal"), ("other", "rest")]


def test_kinds_of_errors_are_counted_by_name_up_to_a_cap():
    kinds = [type(f"Error{number}", (ValueError,), {}) for number in range(CODES + 20)]
    with capturing(0.0) as (found, _):
        for kind in kinds:
            with pytest.raises(ValueError):
                ragmon.trace(raises(kind))("q")
    errors = found.errors()
    assert len(errors) == CODES + 1
    assert errors["default", constants.OTHER] == 20
    assert sum(errors.values()) == live(found)["error"] == len(kinds)


def test_probes_are_always_kept_and_never_counted_as_user_traffic():
    with capturing(0.0) as (found, kept):
        with probe("q1"):
            traced("asked by a probe")
            with pytest.raises(BrokenError):
                traced("raise")
        traced("asked by a user")
    assert [call.probe for call in kept] == ["q1", "q1"]
    assert live(found) == {"error": 0, "refusal": 0, "slow": 0, "rest": 1}
    assert found.totals()["default", "probe", "rest"] == found.totals()["default", "probe", "error"] == 1
    assert found.errors() == {}


def test_counting_among_threads_loses_nothing():
    with capturing(0.5) as (found, kept), ThreadPoolExecutor(8) as pool:
        list(pool.map(traced, ["q"] * 4000))
    assert live(found)["rest"] == 4000
    assert 0 < len(kept) < 4000


def test_a_worker_that_cannot_take_a_call_does_not_reach_the_application():
    def full(call):
        raise MemoryError(call)

    before = install_runtime(Runtime(full))
    try:
        assert traced("q")["answer"] == "q"
        with pytest.raises(BrokenError):
            traced("raise")
    finally:
        install_runtime(before)


def test_a_function_follows_the_installed_runtime_also_back_to_an_earlier_one():
    first, second = [], []
    runtimes = [Runtime(kept.append) for kept in (first, second)]
    before = install_runtime(None)
    try:
        for found in (*runtimes, *runtimes, None, runtimes[0]):
            install_runtime(found)
            traced("q")
            traced("q")
    finally:
        install_runtime(before)
    assert (len(first), len(second)) == (6, 4)
    assert [live(found)["rest"] for found in runtimes] == [6, 4]


def test_a_plan_that_is_made_while_another_runtime_is_installed_is_used_once():
    """As if another thread had installed one just then."""
    first, second = [], []

    def interrupted(_):
        install_runtime(later)
        return CaptureSettings()

    later = Runtime(second.append)
    function = ragmon.trace(pipeline)
    before = install_runtime(Runtime(first.append, settings=interrupted))
    try:
        for _ in range(3):
            function("q")
    finally:
        install_runtime(before)
    assert (len(first), len(second)) == (1, 2)
