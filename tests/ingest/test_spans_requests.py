"""Several requests of other instrumentations in one trace: turns of a session, a batch; and what looks like them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core import semconv
from ragmon.ingest.spans.mapper import SLACK, per_request, to_record
from tests.support.effort import least_ratio
from tests.support.otlp_requests import export
from tests.support.recorded_spans import made
from tests.support.serving import accounted, journalled, replayed, send_body, serving
from tests.support.serving import digest as digest_of

CHAIN, RETRIEVER, LLM = ({semconv.SPAN_KIND: kind} for kind in (semconv.CHAIN, semconv.RETRIEVER, semconv.LLM))


def turn(n, at, parent=None):
    """A question with its documents and its answer, which cites the first of them."""
    chain = made(
        {**CHAIN, semconv.INPUT_VALUE: f"question {n}", semconv.OUTPUT_VALUE: f"answer {n} [1]"},
        start=at,
        end=at + 3,
        parent=parent,
    )
    documents = {semconv.DOCUMENTS: json.dumps([{"id": f"d{n}a"}, {"id": f"d{n}b"}])}
    return [
        chain,
        made({**RETRIEVER, **documents}, parent=chain, start=at + 0.5, end=at + 1),
        made(LLM, parent=chain, start=at + 1, end=at + 2),
    ]


def told(request):
    record = to_record(request).record
    said = record.answer_json
    return record.q, said and said.claim, said and said.citations, record.retrieved_ids, record.latency_ms.total


@pytest.mark.parametrize("later", [60, 1], ids=["one after the other", "at once"])
@pytest.mark.parametrize("within", [True, False], ids=["in a session", "side by side"])
def test_each_workflow_that_retrieves_and_answers_is_a_request_of_its_own(within, later):
    """Their documents, answers and times are not mixed."""
    session = made({"http.route": "/ws"}, end=100) if within else None
    around = [session] if within else []
    assert [told(one) for one in per_request([*around, *turn(1, 0, session), *turn(2, later, session)])] == [
        ("question 1", "answer 1 [1]", ["d1a"], ["d1a", "d1b"], 3000.0),
        ("question 2", "answer 2 [1]", ["d2a"], ["d2a", "d2b"], 3000.0),
    ]


def server_turn(n, at, parent=None):
    """A turn without a chain: a web server's span around a retrieval and a model call."""
    server = made({"http.route": "/chat"}, start=at, end=at + 3, parent=parent)
    answered = {semconv.OUTPUT_VALUE: f"answer {n} [1]"}
    documents = {semconv.INPUT_VALUE: f"question {n}", semconv.DOCUMENTS: json.dumps([{"id": f"d{n}a"}])}
    return [
        server,
        made({**RETRIEVER, **documents}, parent=server, start=at + 0.5, end=at + 1),
        made({**LLM, **answered}, parent=server, start=at + 1, end=at + 2),
    ]


def test_trees_of_spans_one_after_the_other_that_retrieved_and_asked_a_model_are_requests():
    first, second = per_request([*server_turn(1, 0), *server_turn(2, 20)])
    assert told(first) == ("question 1", "answer 1 [1]", ["d1a"], ["d1a"], 3000.0)
    assert told(second) == ("question 2", "answer 2 [1]", ["d2a"], ["d2a"], 3000.0)


@pytest.mark.parametrize(
    "spans",
    [
        [*server_turn(1, 0), *server_turn(2, 1)],
        [*server_turn(1, 0)[:2], *server_turn(2, 20)[::2]],
        [*server_turn(1, 0), made({**RETRIEVER, semconv.DOCUMENTS: '[{"id": "d"}]'}, start=20, end=21)],
    ],
    ids=["at once", "a service that searches and one that answers", "a search afterwards"],
)
def test_trees_of_spans_that_are_no_turns_are_one_request(spans):
    assert len(per_request(spans)) == 1


def agents(*parents):
    """Agents one after the other that ask a model and retrieve nothing."""
    turns = [made(CHAIN, start=20 * n, end=20 * n + 2, parent=parent) for n, parent in enumerate(parents)]
    return [*turns, *(made(LLM, start=20 * n + 1, end=20 * n + 2, parent=turn) for n, turn in enumerate(turns))]


def test_turns_that_retrieve_nothing_are_requests_where_each_has_a_parent_of_its_own():
    """Steps of one request share the parent that nobody sees."""
    one, other = made(), made()
    assert len(per_request(agents(None, None))) == len(per_request(agents(one, other))) == 2
    assert len(per_request(agents(one, one))) == 1
    assert len(per_request([made(LLM, parent=one), made(LLM, start=5, end=6, parent=other)])) == 1


@pytest.mark.parametrize("turns", [1, 2])
def test_what_two_instrumentations_tell_of_one_request_counts_once(turns):
    """Those of LangChain make no span current: under a web server's span theirs stand side by side."""
    server = made({"http.route": "/ask"}, end=100)
    spans = [
        span._replace(scope=scope)
        for n in range(turns)
        for scope in ("openinference.instrumentation.langchain", "opentelemetry.instrumentation.langchain")
        for span in turn(n, 10 * n, server)
    ]
    requests = per_request([server, *spans])
    assert [told(request)[:4] for request in requests] == [
        (f"question {n}", f"answer {n} [1]", [f"d{n}a"], [f"d{n}a", f"d{n}b"]) for n in range(turns)
    ]


def test_one_that_failed_is_a_request_too():
    failed = made({**CHAIN, semconv.INPUT_VALUE: "question 1"}, end=1, failed=True)
    first, second = per_request([failed, *turn(2, 5)])
    assert (to_record(first).record.error, told(second)[0]) == ("error", "question 2")


@pytest.mark.parametrize(
    "spans",
    [
        lambda: [root := made(CHAIN, end=99), *turn(1, 0, root), *turn(2, 5, root)],
        lambda: [*turn(1, 0), made(LLM, start=4, end=5)],
        lambda: [made(CHAIN, end=1), *turn(1, 2)],
        lambda: [made(RETRIEVER, end=1), made(LLM, start=2, end=3)],
    ],
    ids=["an agent's steps", "a call that puts drafts together", "a chain that rewrites", "no workflow at all"],
)
def test_parts_of_one_request_stay_together(spans):
    assert len(per_request(spans())) == 1


@pytest.mark.slow
def test_the_server_counts_each_of_them_and_its_replay_does_so_too(tmp_path):
    """Sent twice they are scored once, whole or in pieces."""
    spans = [*turn(1, 0), *turn(2, 60), *turn(3, 120)]
    shift = time.time_ns() - max(span.end_ns for span in spans)
    spans = [span._replace(start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) for span in spans]
    with serving(tmp_path, '[capture]\ncontent = "full"\n') as running:
        for piece in (spans[::2], spans[1::2], spans):
            send_body(running, export(piece).SerializeToString())
        books = accounted(running)
        found = digest_of(running)
    assert (books["received"], books["scored"]) == (3, 3)
    assert sorted((record.q, record.retrieved_ids[0]) for record in journalled(tmp_path)) == [
        ("question 1", "d1a"),
        ("question 2", "d2a"),
        ("question 3", "d3a"),
    ]
    assert replayed(tmp_path) == found


def own(start, end):
    """The root of a decorated call."""
    return made({semconv.RAGMON_RECORD: '{"v":1}'}, start=start, end=end)


def whose(root, span):
    """Whether a span happened in the time of a call."""
    return root.start_ns - SLACK <= span.start_ns and span.end_ns <= root.end_ns + SLACK


TIMES = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda found: (found[0] / 1e3, sum(found) / 1e3))


@given(st.lists(TIMES, min_size=2, max_size=6), st.lists(TIMES, max_size=6))
def test_a_span_belongs_to_the_one_call_in_whose_time_it_happened(calls, others):
    """Held against a look at each call."""
    roots, spans = [own(*time) for time in calls], [made({}, start=start, end=end) for start, end in others]
    around = {span.span_id: [root.span_id for root in roots if whose(root, span)] for span in spans}
    expected = {root.span_id: {root.span_id} for root in roots}
    for span_id, found in around.items():
        if len(found) == 1:
            expected[found[0]].add(span_id)
    requests = per_request([*spans, *roots])
    assert sorted(map(sorted, expected.values())) == sorted(
        sorted(one.span_id for one in trace.spans) for trace in requests
    )


@pytest.mark.slow
def test_a_trace_of_thousands_of_calls_takes_no_more_time_for_each_than_one_of_hundreds():
    """Whoever waits for an answer waits for it: five thousand took 4.4 seconds."""
    few, many = ([own(0, 1) for _ in range(n)] + [made({}, start=0, end=1) for _ in range(n)] for n in (500, 4_000))
    assert len(per_request(many)) == 4_000
    assert least_ratio(lambda: per_request(many), lambda: per_request(few), enough=16) <= 16
