"""Whatever an instrumentation writes, mapping it never raises, and what comes out is a record anybody can read."""

from __future__ import annotations

import json
from operator import attrgetter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core import semconv
from ragmon.core.record import Answer, Record, encode
from ragmon.core.written import REDACTED
from ragmon.ingest.spans.mapper import fill, per_request, to_record
from ragmon.ingest.spans.span import Event, Span, SpanOptions
from tests.support.recorded_spans import TRACE

WORDS = st.sampled_from(
    [
        *("id", "node", "id_", "metadata", "chunk_id", "doc_id", "text", "page_content", "content", "score", "lc"),
        *("kwargs", "documents", "nodes", "query", "question", "input", "inputs", "messages", "role", "type", "parts"),
        *("data", "claim", "answer", "citations", "outputs", "replies", "generations", "user", "assistant", "human"),
    ]
)
KNOWN = [value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)]
FLAT = st.builds(
    "{}.{}.{}".format,
    st.sampled_from(
        [semconv.RETRIEVED, semconv.RERANKER_INPUT, semconv.RERANKER_OUTPUT, semconv.LLM_INPUT, semconv.LLM_OUTPUT]
    ),
    st.sampled_from(["0", "1", "2", "x", "-1", "9" * 12, "²"]),
    st.sampled_from(["document.id", "document.content", "document.metadata", "message.role", "message.content", ""]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=12),
    WORDS,
    st.sampled_from([REDACTED, "", "[", "{", '{"id": ', "[1, 2", "<NodeWithScore(node=TextNode(id_=a), score=x)>"]),
    st.binary(max_size=3),
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4), st.tuples(inner, inner)
    ),
    max_leaves=6,
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), WORDS, st.just({"lc": 1})),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=6,
).map(json.dumps)
DOCUMENT = st.dictionaries(
    st.sampled_from(["id", "id_", "content", "page_content", "metadata", "score", "node", "lc", "kwargs"]),
    st.sampled_from(["d1", "d2", 3, None, 0.5, {"chunk_id": "c1"}, {"id": "d4", "metadata": {"id": "m"}}, 1]),
    max_size=4,
)
LISTS = st.lists(DOCUMENT, max_size=3)
DOCUMENTS = st.one_of(LISTS, LISTS.map(json.dumps), LISTS.map(lambda found: json.dumps({"documents": found})))
SAID = st.sampled_from(
    ["Yes.", '{"claim": "Yes.", "citations": ["d1"]}', '{"answer": {"claim": 7}}', '"Yes."', REDACTED]
)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        semconv.SPAN_KIND: st.sampled_from(["CHAIN", "RETRIEVER", "RERANKER", "LLM", "EVALUATOR"]),
        semconv.OPERATION: st.sampled_from(["chat", "retrieval", "rerank", "invoke_workflow"]),
        semconv.DOCUMENTS: DOCUMENTS,
        semconv.OUTPUT_VALUE: DOCUMENTS | SAID,
        semconv.ENTITY_OUTPUT: DOCUMENTS | SAID,
        semconv.INPUT_VALUE: SAID | st.just('{"question": "Is it?"}'),
    },
)
ATTRIBUTES = st.builds(
    lambda likely, others: {**others, **likely},
    LIKELY,
    st.dictionaries(st.one_of(st.sampled_from(KNOWN), FLAT, st.text(max_size=6)), NESTED | JSON, max_size=3),
)
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from([semconv.QUERY_RESULT, semconv.SEARCH_RESULT, semconv.EXCEPTION, ""]),
        st.dictionaries(WORDS | st.just(f"{semconv.QUERY_RESULT}.id"), NESTED, max_size=3),
    ),
    max_size=3,
)
NAMES = st.sampled_from([format(number, "016x") for number in range(6)])
TIMES = st.integers(0, 2**64 - 1)
SPANS = st.lists(
    st.builds(
        Span,
        trace_id=st.just(TRACE),
        span_id=NAMES,
        parent_id=st.none() | NAMES,
        name=st.text(max_size=4),
        start_ns=TIMES,
        end_ns=TIMES,
        attributes=ATTRIBUTES,
        events=EVENTS,
        failed=st.sampled_from([False, False, False, True]),
        dropped=st.sampled_from([0, 0, 0, 0, 0, 5]),
        dropped_events=st.sampled_from([0, 0, 0, 1]),
        scope=st.sampled_from(["", "ragmon"]),
        sampled=st.none() | st.booleans(),
    ),
    max_size=5,
)
OPTIONS = st.fixed_dictionaries(
    {
        "merge": st.sampled_from(["last", "concat", "rrf"]),
        "id_from": st.none() | st.lists(WORDS | st.integers(-2, 2), min_size=1, max_size=3).map(tuple),
    }
)
RECORDS = st.builds(
    Record,
    q=st.none() | st.text(max_size=4),
    retrieved_ids=st.none() | st.lists(st.text(max_size=2), max_size=3),
    contexts=st.none() | st.lists(st.text(max_size=2), max_size=3),
    answer_json=st.none() | st.builds(Answer, st.none() | st.text(max_size=3), st.none() | st.lists(st.text())),
)


@pytest.mark.slow
@given(SPANS, OPTIONS)
def test_any_spans_become_a_record_that_can_be_read_or_a_reason(spans, options):
    record, reason, missing, *_ = to_record(spans, SpanOptions(**options))
    assert (record is None) == bool(reason)
    if record is not None:
        assert msgspec.json.decode(encode(record), type=Record) == record
        assert all(attrgetter(field)(record) is None and why for field, why in missing.items())


@pytest.mark.slow
@given(SPANS, OPTIONS, st.randoms(use_true_random=False))
def test_the_order_in_which_spans_arrive_does_not_matter(spans, options, random):
    distinct = [
        span._replace(span_id=format(place, "016x"), start_ns=place * 10, end_ns=place * 100 + 7)
        for place, span in enumerate(spans, start=1)
    ]
    shuffled = random.sample(distinct, len(distinct))
    assert to_record(shuffled, SpanOptions(**options)) == to_record(distinct, SpanOptions(**options))


@given(RECORDS, SPANS, OPTIONS)
def test_filling_never_overrides(record, spans, options):
    filled = fill(record, spans, SpanOptions(**options))
    for field in ("q", "retrieved_ids", "contexts"):
        assert getattr(record, field) in (None, getattr(filled, field))
    before = record.answer_json or Answer()
    after = filled.answer_json or Answer()
    assert before.claim in (None, after.claim)
    assert before.citations in (None, after.citations)
    ids, texts = filled.retrieved_ids, filled.contexts
    agreed = record.retrieved_ids is not None and record.contexts is not None
    assert agreed or ids is None or texts is None or len(ids) == len(texts)


@pytest.mark.slow
@given(SPANS)
def test_no_span_belongs_to_two_requests(spans):
    requests = per_request(spans)
    taken = [span.span_id for request in requests for span in request.spans]
    assert len(taken) == len(set(taken))
