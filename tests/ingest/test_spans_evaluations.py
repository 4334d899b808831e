"""What others say of answers on spans: scores of judges become proxies, and what people say becomes labels."""

from __future__ import annotations

import pytest
from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from ragmon.core.record import Label
from ragmon.ingest.spans.mapper import evaluations, judge_scores, to_record
from ragmon.ingest.spans.span import Event, Span, SpanOptions
from tests.support.serving import journalled, serving
from tests.support.waiting import wait_for

TRACE, OTHER = "5a" * 16, "6b" * 16
JUDGED = '[pipeline]\nname = "support"\n[judges.faithfulness]\n'
"""A judge that somebody else asks."""


def span(trace_id=TRACE, links=(), events=(), **attributes):
    held = {name.replace("__", "."): value for name, value in attributes.items()}
    return Span(trace_id, "1" * 16, None, "said", 1, 2_000_000_000, held, events, links=links)


def annotation(name, *, place=0, kind="annotations", **members):
    inner = "evaluation" if kind == "evaluations" else "annotation"
    return {f"{kind}.{place}.{inner}.{member}": value for member, value in {"name": name, **members}.items()}


def told(*spans):
    return [(one.name, one.score, one.human) for one in evaluations(spans)]


def test_an_event_of_an_evaluation_is_a_score_by_its_name():
    held = {"gen_ai.evaluation.name": "Answer Relevance", "gen_ai.evaluation.score.value": 0.75}
    assert told(span(events=[Event("gen_ai.evaluation.result", held), Event("exception", held)])) == [
        ("answer_relevance", 0.75, False)
    ]


@pytest.mark.parametrize("kind", ["annotations", "evaluations", "trace.annotations"])
def test_every_annotation_of_a_list_says_something(kind):
    held = annotation("Faithfulness", kind=kind, score=1.0, annotator_kind="LLM")
    held |= annotation("correctness", kind=kind, place=1, label="Incorrect", annotator_kind="HUMAN", identifier="ada")
    assert told(span(**held)) == [("faithfulness", 1.0, False), ("correctness", 0.0, True)]


@pytest.mark.parametrize("members", [{"score": "NaN"}, {"label": "neutral"}, {}, {"score": True}])
def test_what_is_no_share_and_neither_yes_nor_no_says_nothing(members):
    assert told(span(**annotation("faithfulness", **members))) == []


@pytest.mark.parametrize(
    ("scale", "scores", "shares"),
    [
        ([1, 5], [1, 4, 5.0, 0, 6, "3"], [0.0, 0.75, 1.0, None, None, 0.5]),
        ([10, 0], [0, 10, 4, -1], [1.0, 0.0, 0.6, None]),
        ([0, 1], [0.5, 4.0, -0.1], [0.5, None, None]),
    ],
    ids=["stars", "the least is the best", "the usual one"],
)
def test_a_score_on_its_own_scale_is_brought_to_a_share(scale, scores, shares):
    spans = [span(**annotation("Harm-lessness", score=score)) for score in scores]
    found = [one.score for one in evaluations(spans, {"harm_lessness": scale})]
    assert found == [pytest.approx(share) if share is not None else None for share in shares]


def test_a_score_off_its_scale_is_unassessed_and_counted():
    rows = annotation("relevance", score=4.0) | annotation("tone", place=1, score=7.0)
    judged = span(**rows, openinference__span__kind="CHAIN", output__value="so")
    model = Span(TRACE, "2" * 16, "1" * 16, "model", 1, 2, {"openinference.span.kind": "LLM"})
    mapped = to_record([judged, model], SpanOptions(ranges={"relevance": (0, 1)}))
    assert mapped.record.measures is None
    assert {field: reason for field, reason in mapped.missing.items() if field.startswith("measures")} == {
        "measures.judge_relevance": "out_of_range",
        "measures": "out_of_range",
    }
    mapped = to_record([judged, model], SpanOptions(ranges={"relevance": (1, 5)}))
    assert (mapped.record.measures, mapped.missing["measures"]) == ({"judge_relevance": 0.75}, "out_of_range")


class Looked(dict):
    """Attributes that count how often somebody goes through them."""

    looks = 0

    def __iter__(self):
        self.looks += 1
        return super().__iter__()


def test_a_span_on_which_nobody_says_anything_is_looked_through_once():
    """Spans have dozens of attributes, and of most of them nobody says anything."""
    nothing = Looked({f"retrieval.documents.{n}.document.id": "d" for n in range(30)})
    something = Looked(annotation("faithfulness", score=1.0))
    assert told(span()._replace(attributes=nothing), span()._replace(attributes=something)) == [
        ("faithfulness", 1.0, False)
    ]
    assert (nothing.looks, something.looks) == (1, 4)


def test_a_link_says_which_trace_is_meant_and_two_say_nothing():
    held = annotation("correctness", score=1.0, annotator_kind="HUMAN")
    assert [one.trace_id for one in evaluations([span(links=[OTHER], **held)])] == [OTHER]
    assert [one.trace_id for one in evaluations([span(links=[OTHER, "7c" * 16], **held)])] == [TRACE]


def test_scores_of_a_requests_own_spans_are_its_measures_and_those_about_others_are_not():
    own = span(**annotation("faithfulness", score=0.5))
    about = span(links=[OTHER], **annotation("faithfulness", score=0.9))
    assert judge_scores([own, about]) == ({"judge_faithfulness": 0.5}, {})
    assert judge_scores([span()]) == (None, {})
    retrieval = Span(TRACE, "2" * 16, None, "retrieval", 1, 2, {"gen_ai.operation.name": "retrieval"})
    assert to_record([retrieval, own._replace(parent_id="2" * 16)]).record.measures == {"judge_faithfulness": 0.5}


def asked(tracer, *, annotated):
    """A request that some framework traced, and its context."""
    with tracer.start_as_current_span("ask") as root:
        root.set_attributes({"openinference.span.kind": "CHAIN", "input.value": "Is it?", "output.value": "an answer"})
        with tracer.start_as_current_span("retrieve") as found:
            kind = {"openinference.span.kind": "RETRIEVER", "input.value": "Is it?"}
            found.set_attributes({**kind, "retrieval.documents.0.document.id": "d1"})
        if annotated:
            root.set_attributes(annotation("faithfulness", score=0.25, annotator_kind="LLM"))
            event = {"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5}
            root.add_event("gen_ai.evaluation.result", event)
    return root.get_span_context()


@pytest.mark.slow
def test_real_exporters_bring_scores_with_the_request_and_labels_after_it(tmp_path):
    """What people say afterwards is a span of its own, in a trace of its own, that links to the request."""
    with serving(tmp_path, JUDGED) as running:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{running.otlp}/v1/traces")))
        tracer = provider.get_tracer("openinference")
        context = asked(tracer, annotated=True)
        asked(tracer, annotated=False)
        running.settled(2)
        with tracer.start_as_current_span("feedback", links=[api.Link(context)]) as said:
            said.set_attributes(annotation("correctness", score=1.0, annotator_kind="HUMAN", identifier="ada"))
            said.set_attributes(annotation("tone", place=1, score=1.0, annotator_kind="HUMAN"))
        wait_for(lambda: running.status()["labels"], lambda labels: labels == {"joined": 1, "waiting": 0})
        provider.shutdown()
        shown = running.metrics()
        name = '{gold="",pipeline="support",source="%s",window="1h"}'
        assert shown["rag_judge_faithfulness" + name % "live"] == 0.25
        assert shown["rag_judge_faithfulness_samples" + name % "live"] == 1
        assert shown["rag_answer_correct" + name % "label"] == 1.0
    (label,) = journalled(tmp_path, Label)
    assert (label.rater, label.answer.measures["judge_relevance"]) == ("ada", 0.5)
