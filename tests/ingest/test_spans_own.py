"""Spans of ragmon's own: the record they carry, the gaps other spans fill, several of them in one trace."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from ragmon.core import constants, semconv
from ragmon.core.record import Answer, Latency, Record, TextFacts, encode
from ragmon.ingest.lines import decode
from ragmon.ingest.spans.mapper import fill, per_request, to_record
from ragmon.ingest.spans.span import OWN_SCOPE, Mapped, SpanOptions
from tests.support.recorded_spans import START, TRACE, made, recorded


def root(record=None, line=None, **fields):
    """A root span of ragmon's."""
    text = encode(record)[:-1].decode() if line is None else line
    return made({semconv.RAGMON_RECORD: text, semconv.OPERATION: semconv.INVOKE_WORKFLOW}, scope=OWN_SCOPE, **fields)


FULL = Record(
    v=1,
    trace_id="1" * 32,
    ts=1_700_000_000.5,
    pipeline="support",
    source=constants.PROBE,
    qid="A1",
    q="Is it?",
    retrieved_ids=["d1"],
    candidate_ids=["d1", "d2"],
    scores=[0.5],
    contexts=["text"],
    answer_json=Answer(claim="Yes.", citations=["d1"]),
    latency_ms=Latency(total=9.0, retrieve=2.0, generate=3.0),
    session="s1",
)


@pytest.fixture
def foreign(data):
    """A recorded request of LangChain's."""
    return recorded(data / "spans" / "oi_langchain.json")[0]


class TestARootSpan:
    def test_is_complete_alone(self):
        assert to_record([root(FULL)]) == Mapped(FULL)

    def test_gives_its_trace_id_and_its_end_to_a_record_without(self):
        record = to_record([root(Record(v=1, answer_json=Answer(claim="Yes.")), end=2)]).record
        assert (record.trace_id, record.ts) == (TRACE, START / 1e9 + 2)

    def test_other_spans_change_nothing_it_says(self, foreign):
        assert to_record([*foreign, root(FULL)]).record == FULL

    def test_other_spans_fill_what_it_lacks(self, foreign):
        seen = Record(v=1, trace_id=TRACE, ts=5.0, pipeline="support", q="Is it?")
        record = to_record([*foreign, root(seen)], SpanOptions(id_from=("metadata", "page"))).record
        assert (record.q, record.pipeline, record.ts) == ("Is it?", "support", 5.0)
        assert record.retrieved_ids == ["2", "1"]
        assert record.answer_json == Answer(claim="X is 1", citations=["S1#0"])

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("{", constants.MALFORMED_JSON),
            ("\ud83d", constants.MALFORMED_JSON),
            ('{"v": 2}', constants.INVALID_SCHEMA),
            ('{"v": 1, "kind": "totals"}', constants.INVALID_SCHEMA),
            ('{"q": "Is it?"}', constants.INVALID_SCHEMA),
            (7, constants.INVALID_SCHEMA),
            pytest.param('{"v": 1, "of a later version": ' + "[" * 100_000, constants.DEPTH, id="too deep"),
        ],
    )
    def test_that_cannot_be_read_is_no_record_and_says_why(self, foreign, line, reason):
        assert to_record([*foreign, root(line=line)]) == Mapped(None, reason)

    @pytest.mark.parametrize("member", ['"retrieved_ids": "d1"', '"source": "elsewhere"', '"latency_ms": "soon"'])
    def test_a_field_that_cannot_be_read_is_unknown_and_may_be_filled_by_others(self, foreign, member):
        mapped = to_record([*foreign, root(line='{"v": 1, "q": "Is it?", %s}' % member)])  # noqa: UP031 - braces
        assert mapped.record.q == "Is it?"
        assert [*mapped.missing.values()] == ["unreadable"]
        assert mapped.record.retrieved_ids is not None


STAGES = {"total": 9.0, "retrieve": 2.0, "generate": 3.0}


@pytest.mark.parametrize("known", [set(names) for n in range(4) for names in combinations(STAGES, n)], ids=sorted)
def test_a_record_has_the_same_latency_as_a_span_and_in_a_file(known):
    """Whichever way a line is decoded: a total that is not there is unknown, not the sum of what is."""
    latency = {stage: STAGES[stage] for stage in STAGES if stage in known}
    line = json.dumps({"v": 1, "q": "Is it?", "latency_ms": latency})
    in_span = to_record([root(line=line)]).record.latency_ms
    assert in_span == Latency(**latency)
    assert decode(line.encode()).latency_ms == in_span
    for further in ({}, {"qid": "a", "retrieved_ids": ["d1"], "answer_json": {"claim": "yes"}}, {"probe": True}):
        written = json.dumps({"q": "Is it?", "latency_ms": latency} | further)
        assert decode(written.encode()).latency_ms == in_span


class TestFill:
    def test_a_record_that_knows_nothing_but_its_time(self, foreign):
        """A decorated endpoint streams a framework's answer and hands over neither question nor documents."""
        record = fill(Record(v=1, ts=5.0, answer_json=Answer(), latency_ms=Latency(total=77.0)), foreign)
        assert (record.q, record.retrieved_ids) == ("What is X?", ["S1#2", "S1#1"])
        assert record.contexts == ["chunk text 2", "chunk text 1"]
        assert record.answer_json == Answer(claim="X is 1", citations=["S1#0"])
        assert (record.ts, record.latency_ms.total) == (5.0, 77.0)
        assert record.latency_ms.retrieve == pytest.approx(15.722)

    def test_texts_and_scores_only_for_the_documents_the_record_names(self, foreign):
        assert fill(Record(retrieved_ids=["S1#2", "S1#1"]), foreign).contexts == ["chunk text 2", "chunk text 1"]
        assert fill(Record(retrieved_ids=["S1#1", "S1#2"]), foreign).contexts is None
        assert fill(Record(retrieved_ids=[]), foreign).retrieved_ids == []

    def test_ids_only_where_they_fit_the_texts_the_record_has(self, foreign):
        assert fill(Record(contexts=["one", "two"]), foreign).retrieved_ids == ["S1#2", "S1#1"]
        assert fill(Record(contexts=["one"]), foreign).retrieved_ids is None

    @pytest.mark.parametrize(
        ("mine", "expected"),
        [
            (None, Answer("X is 1", ["S1#0"])),
            (Answer(), Answer("X is 1", ["S1#0"])),
            (Answer("X is 1"), Answer("X is 1", ["S1#0"])),
            (Answer("Y is 2"), Answer("Y is 2")),
            (Answer(None, ["d9"]), Answer("X is 1", ["d9"])),
            (Answer("X is 1", []), Answer("X is 1", [])),
        ],
    )
    def test_each_part_of_an_answer(self, foreign, mine, expected):
        """Citations of another claim are none of this one."""
        assert fill(Record(answer_json=mine), foreign).answer_json == expected

    @pytest.mark.parametrize("kept", [{"error": "KeyError"}, {"ended": "abandoned"}, {"ended": "cancelled"}])
    def test_no_answer_for_a_call_that_gave_none(self, foreign, kept):
        assert fill(Record(**kept), foreign).answer_json is None

    def test_an_answer_that_was_too_long_to_hold(self, foreign):
        assert fill(Record(ended="cut"), foreign).answer_json.claim == "X is 1"

    def test_text_that_was_kept_back_stays_back(self, foreign):
        withheld = Record(v=1, answer_json=Answer(citations=["d1"]), facts=TextFacts(answered=True))
        record = fill(withheld, foreign)
        assert (record.q, record.contexts, record.answer_json) == (None, None, Answer(citations=["d1"]))
        assert record.retrieved_ids == ["S1#2", "S1#1"]

    def test_without_foreign_spans_a_record_stays_as_it_is(self):
        assert fill(FULL, []) is FULL
        assert fill(FULL, [made({"http.route": "/ask"})]) is FULL

    def test_ragmons_own_spans_tell_nothing_new(self, foreign):
        """Its retrieval child has no documents where the record had none; the retriever's span has."""
        own = root(Record(v=1))
        stage = made({semconv.OPERATION: semconv.RETRIEVAL}, parent=own, scope=OWN_SCOPE)
        assert fill(Record(v=1), [own, stage, *foreign]).retrieved_ids == ["S1#2", "S1#1"]

    def test_filling_twice_changes_nothing(self, foreign):
        once = fill(Record(v=1), foreign)
        assert fill(once, foreign) == once


def divided(*spans):
    """The requests among spans, each as the ids of its spans."""
    return [ids(*request.spans) for request in per_request(spans)]


def ids(*spans):
    return {span.span_id for span in spans}


class TestSeveralRequestsInOneTrace:
    def test_each_root_gets_what_lies_in_it_and_what_happened_in_its_time(self):
        first, second = root(FULL, start=0, end=2), root(FULL, start=3, end=5)
        mine, child = made({}, start=1, end=2), made({}, parent=second, start=4, end=9)
        grandchild = made({}, parent=child, start=0, end=1)
        around = made({}, start=0, end=6)
        found = divided(around, child, first, mine, second, grandchild)
        assert found == [ids(first, mine), ids(second, grandchild, child)]

    def test_what_fits_two_requests_belongs_to_none(self):
        first, second = root(FULL, start=0, end=4), root(FULL, start=1, end=5)
        assert divided(first, second, made({}, start=2, end=3)) == [ids(first), ids(second)]

    def test_clocks_may_differ_by_some_milliseconds(self):
        first, second = root(FULL, start=0, end=2), root(FULL, start=3, end=5)
        late = made({}, start=1, end=2.004)
        assert divided(first, second, late) == [ids(first, late), ids(second)]

    def test_a_trace_with_at_most_one_root_is_one_request(self, foreign):
        assert [len(request.spans) for request in per_request(foreign)] == [7]
        assert [len(request.spans) for request in per_request([*foreign, root(FULL)])] == [8]
