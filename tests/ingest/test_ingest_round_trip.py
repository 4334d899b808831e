"""The contract's own lines: what is written is read back, on the fast way and on the slow one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core import constants
from ragmon.core.record import LARGEST, LATEST, LONGEST_MS, Answer, Latency, Record, Sampling, TextFacts, Totals, encode
from ragmon.ingest.lines import AnyShape, adapt, decode
from tests.support.examples import cases

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
texts = st.lists(text, max_size=4)
numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(0, LATEST, exclude_max=True)
milliseconds = st.floats(0, LONGEST_MS)
shares = st.floats(0, 1)
flags = st.booleans()


def maybe(strategy):
    return st.none() | strategy


sampling = st.builds(
    Sampling,
    audit=flags,
    stratum=st.sampled_from(constants.STRATA),
    p_audit=shares,
    p=st.floats(0, 1, exclude_min=True),
)
records = st.builds(
    Record,
    v=st.just(constants.CONTRACT_VERSION),
    trace_id=maybe(text),
    ts=maybe(times),
    pipeline=maybe(text),
    source=maybe(st.sampled_from(constants.SOURCES)),
    qid=maybe(text),
    q=maybe(text),
    retrieved_ids=maybe(texts),
    candidate_ids=maybe(texts),
    scores=maybe(st.lists(numbers, max_size=4)),
    contexts=maybe(texts),
    answer_json=maybe(st.builds(Answer, claim=maybe(text), citations=maybe(texts))),
    error=maybe(text.filter(bool)),
    latency_ms=maybe(st.builds(Latency, milliseconds, maybe(milliseconds), maybe(milliseconds))),
    index_hash=maybe(text),
    build=maybe(text),
    session=maybe(text),
    sampling=maybe(sampling),
    facts=maybe(st.builds(TextFacts, maybe(text), *[maybe(flags)] * 6)),
    partial=flags,
    exported=maybe(flags),
    tags=maybe(st.dictionaries(text, text, min_size=1, max_size=3)),
    verdicts=maybe(st.lists(flags, max_size=4)),
    measures=maybe(st.dictionaries(text, numbers, max_size=3)),
    judge_versions=maybe(st.dictionaries(text, text, max_size=3)),
    instrumentation=maybe(text),
)
totals = st.builds(
    Totals,
    ts=times,
    instance=text,
    started=times,
    pipeline=text,
    source=st.sampled_from(constants.SOURCES),
    stratum=st.sampled_from(constants.STRATA),
    calls=st.integers(0, LARGEST),
    kept=st.integers(0, LARGEST),
    dropped=st.dictionaries(text, st.integers(0, 99), max_size=3),
    latency_ms=st.dictionaries(st.integers(-99, 99), st.integers(0, 99), max_size=3),
)


@pytest.mark.slow
@settings(max_examples=cases(400))
@given(records)
def test_a_record_comes_back_from_its_line_as_it_went(record):
    assert decode(encode(record)) == record


@pytest.mark.slow
@settings(max_examples=cases(400))
@given(records)
def test_the_second_look_reads_the_contract_as_the_first_pass_does(record):
    """One mistyped field sends a line the slow way; nothing else about the record may change by that."""
    found = AnyShape(**json.loads(encode(record)))
    assert adapt(found) == record


@given(totals)
def test_a_totals_line_comes_back_as_it_went(line):
    assert decode(encode(line)) == line
