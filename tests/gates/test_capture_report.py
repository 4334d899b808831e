"""The capture report names what records lack, which gates that stops, and the one setting that mends it."""

from __future__ import annotations

import uuid

import pytest

import ragmon
from ragmon.config.gates import default_gates
from ragmon.core import constants, semconv, shapes
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Latency, Record, Sampling, TextFacts
from ragmon.core.refusals import RefusalRule
from ragmon.export.text import report_markdown, terminal_text
from ragmon.gates.coverage import EARLY, FIELDS, Gap, capture_reports, needs, remedy, sentence
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.spans import span
from ragmon.metrics.base import Metric, build
from ragmon.metrics.facts import FactReader
from ragmon.monitor.replay import replay
from ragmon.scoring.captured import FIRST, SESSIONS
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.stats.histograms import MAX_NAMES
from tests.support.random_records import NOON

SAMPLED = Sampling()
QUESTIONS = [f"what is {number}?" for number in range(40)]
GOLD = GoldSet(
    "gold",
    tuple(
        GoldItem(f"g{number}", question, answerable=True, claim_substrings=["yes"], citations=[f"grey-heron#{number}"])
        for number, question in enumerate(QUESTIONS)
    ),
)
WITH_GOLD = ["answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate"]


def call(number=0, **fields):
    """A decorated call with everything, unless a field says otherwise."""
    told = {
        "ts": NOON,
        "source": "live",
        "q": QUESTIONS[number % len(QUESTIONS)],
        "retrieved_ids": [f"grey-heron#{number % len(QUESTIONS)}", "grey-heron#1"],
        "contexts": ["a text", "another"],
        "answer_json": Answer(claim="yes", citations=["grey-heron#1"]),
        "latency_ms": Latency(total=3.0),
        "session": "s",
        "build": "1",
        "sampling": SAMPLED,
    }
    return Record(**{**told, **fields})


GATES = default_gates()


def reports(records, gold=GOLD, gates=GATES, **how):
    scorer = Scorer(gold)
    for record in records:
        assert scorer.observe(record)
    return capture_reports(scorer, lambda _: gates, **how)


def report(records, **how):
    (found,) = reports(records, **how)
    return found


def test_calls_with_everything_have_no_gap():
    found = report(call(number) for number in range(60))
    assert (found.pipeline, found.source, found.records, found.gaps) == ("default", "live", 60, ())
    assert {name: share.ratio for name, share in found.fields.items()} == dict.fromkeys(FIELDS, 1.0)


@pytest.mark.parametrize(("size", "present"), [(1, 0), (2, 60), (60, 60)])
def test_a_session_id_that_never_repeats_is_shown_as_none(size, present):
    """An application may make a thread for every request; its records stay as they are."""
    records = [call(number, session=f"thread {number // size}") for number in range(60)]
    found = report(records)
    assert (found.fields["session"].present, found.fields["session"].of) == (present, 60)
    assert [gap.finding for gap in found.gaps if gap.field == "session"] == (
        [] if present else ["no session in 60 of 60 records: their session ids never repeat"]
    )
    assert records[0].session == "thread 0"


def test_too_few_records_do_not_say_that_a_session_id_never_repeats():
    assert report(call(n, session=f"thread {n}") for n in range(SESSIONS - 1)).fields["session"].present == SESSIONS - 1


def test_calls_whose_question_is_not_found_stop_every_gold_gate():
    """A request body without a `question` parameter: 349 of 349 records had none, and nothing said so."""
    gap = report(call(number, q=None) for number in range(349)).worst
    assert (gap.field, gap.finding) == ("question", "no question in 349 of 349 records")
    assert list(gap.blocked) == WITH_GOLD
    assert '@ragmon.trace(question="body.question")' in gap.remedy


def test_ids_that_gold_names_otherwise_are_shown_beside_those_of_gold_with_the_field_that_has_them():
    """A framework's UUIDs against `grey-heron#1`, which stands in the documents' metadata."""
    records = []
    for number in range(60):
        ids = [str(uuid.UUID(int=5 * number + place)) for place in range(5)]
        for place, name in enumerate(ids):
            other = f"grey-heron#{number % 40}" if place else "appendix"
            shapes.document_hints.note(name, {"id": name}, {"chunk_id": other, "file": "herons.md"})
        records.append(call(number, retrieved_ids=ids))
    gap = report(records).worst
    assert gap.field == "gold_ids"
    assert gap.finding == (
        "none of 300 retrieved ids occurs in gold; they look like `00000000-0000-0000-0000…`, "
        "gold like `grey-heron#0`; `metadata.chunk_id` would match 80 %"
    )
    assert gap.remedy == '`[capture] id_from = "metadata.chunk_id"`'
    assert list(gap.blocked) == ["answer_precision", "citation_hit_rate"]


def test_a_retriever_that_often_fails_is_no_gap_of_ids():
    records = [call(number, retrieved_ids=["elsewhere"]) for number in range(59)]
    assert report([*records, call(59)]).gaps == ()


@pytest.mark.parametrize(
    ("lacking", "having", "named"),
    [(EARLY - 1, 0, False), (EARLY, 0, True), (FIRST - 2, 1, False), (FIRST - 1, 1, True)],
)
def test_of_less_than_twenty_records_a_field_is_named_that_all_of_them_lack(lacking, having, named):
    records = [call(number, q=None) for number in range(lacking)] + [call(number) for number in range(having)]
    assert [(gap.field, bool(gap.blocked)) for gap in report(records).gaps] == ([("question", True)] if named else [])
    assert report(records, whole=True).gaps == report(records).gaps[: len(records) // FIRST]


def test_of_less_than_twenty_records_no_other_field_is_named():
    """A newcomer has no sessions and no build at first."""
    bare = [call(number, session=None, build=None, contexts=None, latency_ms=None) for number in range(FIRST - 1)]
    assert report(bare).gaps == ()


def test_the_report_follows_a_setting_that_was_mended():
    records = [call(number, q=None) for number in range(500)]
    records += [call(number, ts=NOON + 120) for number in range(60)]
    assert report(records).gaps == ()
    assert report(records, whole=True).worst.field == "question"


def test_content_that_a_setting_withholds_is_no_gap():
    facts = TextFacts(answered=True, refused=False, question_chars=3, claim_chars=3, contexts=2)
    answer = Answer(citations=["grey-heron#1"])
    found = report(call(q=None, contexts=None, answer_json=answer, facts=facts, qid="g1") for _ in range(60))
    assert found.gaps == ()
    assert (found.fields["answer"].of, found.fields["answer"].withheld) == (0, 60)


def test_errors_and_refusals_lack_nothing():
    failed = [call(error="timeout", answer_json=None, retrieved_ids=None, contexts=None) for _ in range(30)]
    refused = [call(answer_json=Answer(claim="not in context")) for _ in range(30)]
    found = report([*failed, *refused])
    assert [gap.field for gap in found.gaps if gap.gates] == []
    assert found.fields["answer"].of == 30
    assert "citations" not in found.fields


def test_a_pipeline_that_never_cites_is_told_so_and_stops_no_gate():
    gap = report(call(number, answer_json=Answer(claim="yes")) for number in range(60)).worst
    assert (gap.field, gap.blocked) == ("citations", ())
    assert "coverage" in gap.gates


@pytest.mark.parametrize("claim", ["yes [1].", "yes【1†source】", "yes [Source 2]", "yes ##0$$"])
def test_where_answers_carry_marks_the_ids_lack_and_no_citations(claim):
    found = report(call(number, retrieved_ids=None, answer_json=Answer(claim=claim)) for number in range(60))
    assert [(gap.field, gap.missing) for gap in found.gaps] == [("ids", 60)]
    assert {"citation_scope", "coverage"} <= set(found.worst.blocked)


def test_a_number_in_parentheses_is_no_mark_where_no_ids_are_known():
    claims = ["Rome won the most medals (16).", *["yes"] * 59]
    found = report(call(retrieved_ids=None, answer_json=Answer(claim=claim)) for claim in claims)
    assert ("citations", 60) in [(gap.field, gap.missing) for gap in found.gaps]


def test_answers_that_lack_citations_now_and_then_are_a_gap_of_the_gates_that_need_them():
    gap = report(call(number, answer_json=Answer("yes", None if number % 4 else ["x"])) for number in range(60)).worst
    assert (gap.field, gap.finding) == ("citations", "no list of citations in 45 of 60 answers")
    assert "citation_scope" in gap.blocked


def test_questions_that_match_no_gold_item_are_said_only_where_none_does():
    assert report(call(q=f"other {number}") for number in range(60)).worst.finding == (
        "0 of 60 questions match a gold item"
    )
    assert report([call(), *(call(q=f"other {number}") for number in range(59))]).gaps == ()


def test_without_gold_nothing_is_said_of_it():
    found = report([call(q=None, qid=None) for _ in range(60)], gold=None)
    assert not {"gold", "gold_ids"} & found.fields.keys()


def test_a_gap_stops_only_gates_that_are_judged_on_its_source():
    gates = (Gate("a", "recall@5", 0.5, "at_least", source="probe"), Gate("b", "recall@5", 0.5, "at_least"))
    gap = report((call(retrieved_ids=None) for _ in range(60)), gates=gates).worst
    assert gap.blocked == ("b",)
    match = (Gate("c", "recall@5", 0.5, "at_least", source="match"),)
    assert report((call(retrieved_ids=None) for _ in range(60)), gates=match).worst.blocked == ("c",)


def test_refusals_in_plain_words_that_count_as_answers_name_their_setting():
    records = [call(answer_json=Answer("I could not find that.", [])) for _ in range(60)]
    scorer = Scorer(GOLD)
    for record in records:
        scorer.observe(record)
    found = reports(records)[0]
    counted = scorer.snapshot().find("default", "live").metrics["refusal_rate"].value == 1.0
    assert [gap.field == "refusal" for gap in found.gaps if "[refusal]" in gap.remedy] == ([] if counted else [True])


@pytest.mark.parametrize(
    ("family", "switch"),
    [
        (semconv.GENAI, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
        (semconv.OPENINFERENCE, "OPENINFERENCE_HIDE_INPUTS"),
        (semconv.OPENLLMETRY, "TRACELOOP_TRACE_CONTENT=true"),
        (semconv.HAYSTACK, "HAYSTACK_CONTENT_TRACING_ENABLED=true"),
        ("someone.elses", "the content switch of the instrumentation"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_spans_without_content_name_the_switch_of_their_instrumentation(family, switch, whole):
    """Live and in a replay; whatever the records say of sampling."""
    records = [call(number, q=None, instrumentation=family) for number in range(30)]
    gap = report(records, whole=whole).worst
    assert gap.field == "question"
    assert switch in gap.remedy


REASONS = {
    ("q", span.PROMPT): "the span attribute `ragmon.question`: the spans hold a prompt",
    ("q", span.NOT_UNDERSTOOD): "the span attribute `ragmon.question`: the spans hold texts in a form",
    ("answer_json", span.NOT_UNDERSTOOD): "the span attribute `ragmon.answer.claim`: the spans hold texts in a form",
    ("q", span.UPLOADED): "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    ("answer_json", span.ATTRIBUTES_DROPPED): "a higher OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    ("q", constants.OVERSIZE): "the span attribute `ragmon.question`: the spans hold texts of more than 1 MiB",
    ("answer_json", constants.NO_ANSWER): "the span attribute `ragmon.answer.claim`: no span calls a model",
    ("q", span.CONTENT_NOT_CAPTURED): "TRACELOOP_TRACE_CONTENT=true, or unset it; if that is so already",
}
"""What mends question and answer of OpenLLMetry's spans, by the field of the record and the reason."""


@pytest.mark.parametrize(("field", "reason"), REASONS)
def test_the_remedy_of_spans_follows_from_the_reason_of_most(field, reason):
    """A switch is named where content is left out, not where it is on already."""

    def told(number, why):
        return call(number, **{field: None}, instrumentation=semconv.OPENLLMETRY, why_unknown={field: why})

    others = [told(number, "another reason") for number in range(10)]
    gap = report([*(told(number, reason) for number in range(20)), *others]).worst
    assert gap.remedy.startswith(REASONS[field, reason])


def test_of_decorated_calls_and_spans_the_remedy_is_that_of_most():
    spans = [call(number, q=None, instrumentation=semconv.HAYSTACK) for number in range(20)]
    decorated = [call(number, q=None) for number in range(30)]
    assert report([*spans, *decorated]).worst.remedy.startswith("`@ragmon.trace(question=")
    assert report([*spans, *decorated[:10]]).worst.remedy.startswith("HAYSTACK_CONTENT_TRACING_ENABLED=true")


def test_instrumentations_are_counted_in_a_table_of_bounded_size():
    scorer = Scorer(GOLD)
    for number in range(200):
        scorer.observe(call(number, q=None, instrumentation=f"scope.{number}"))
    ((_, series),) = scorer.state.captured
    counts = series.whole().hidden_by
    assert (len(counts), sum(counts.values())) == (MAX_NAMES + 1, 200)


def test_a_gap_of_a_file_names_the_field_of_its_lines():
    records = [Record(answer_json=Answer("yes", ["a"]), qid=f"g{number}") for number in range(30)]
    found = replay(records, GOLD, Policy(default_gates()))
    (captured,) = found.captured
    assert captured.worst.remedy == "`retrieved_ids` in the file, or --map retrieved_ids=NAME"
    assert "no ids of retrieved documents in 30 of 30 records" in report_markdown(found)
    assert found.data()["captured"][0]["fields"]["ids"] == {"present": 0, "of": 30, "withheld": 0}


def test_every_gap_has_a_sentence_and_a_remedy_wherever_records_come_from():
    origins = ("", "someone.elses", "file", *semconv.INSTRUMENTATIONS.values(), semconv.OPENINFERENCE)
    texts = {(name, origin): remedy(Gap(name, 1, 2, origin)) for name in (*FIELDS, "refusal") for origin in origins}
    assert all(texts.values())
    assert all(sentence(Gap(name, 1, 2)) for name in FIELDS)


def test_names_from_requests_are_shown_without_control_characters():
    gap = Gap("gold_ids", 20, 20, "", 100, ("a",), ("b",), ("metadata.\x1b[31m", 1.0))
    assert "\x1b" not in sentence(gap) + remedy(gap)


def test_what_a_metric_needs_follows_from_what_it_reads():
    found = {key: needs(metric) for key, metric in build((5,)).items() if type(metric).__module__.startswith("ragmon.")}
    assert found["error_rate"] == frozenset()
    assert found["answered_within"] == {"latency"}
    assert found["groundedness"] == {"answer", "contexts"}
    assert found["recall@5"] == {"question", "gold", "gold_ids", "ids"}
    assert {"answer", "citations", "ids", "gold_ids"} < found["answer_precision"]


def test_a_metric_of_a_plugin_needs_what_it_reads_whatever_it_raises():
    class Odd(Metric):
        """Raises."""

        name = "odd"

        def score(self, facts):
            if facts.empty:
                return 0.0
            raise ValueError(facts.shipped)

    assert needs(Odd()) == {"ids"} or needs(Odd()) == {"ids", "answer"}


def test_the_report_of_the_python_api_has_it():
    assert ragmon.replay([{"qid": "a", "answer_json": {"claim": "yes"}}]).captured[0].records == 1


# --- what nobody understands ------------------------------------------------------------------------------------------

UNHELPFUL = "Please ask Rosa in the harbour office."
FULL = ReductionRules(shows_text=(True, True))


def uncited(claims, **fields):
    """Answers without citations, each with a trace of its own."""
    return [
        call(place, answer_json=Answer(claim=claim), trace_id=f"{place:032x}", **fields)
        for place, claim in enumerate(claims)
    ]


def gaps(records, field, rules=None, **how):
    scorer = Scorer(GOLD, rules=rules)
    for record in records:
        assert scorer.observe(record)
    (found,) = capture_reports(scorer, lambda _: GATES, **how)
    return [(gap.finding, gap.remedy) for gap in found.gaps if gap.field == field]


def test_forty_equal_answers_that_cite_nothing_are_proposed_as_a_token():
    spelt = [UNHELPFUL if place % 2 else f"  **{UNHELPFUL.upper()}**" for place in range(40)]
    records = uncited([*spelt, *(f"It is number {place}." for place in range(60))])
    assert gaps(records, "repeated", FULL) == [
        (
            f'40 of 100 answers have the same text and cite nothing, such as "**{UNHELPFUL.upper()}**"',
            f'if it is a refusal, `[refusal] tokens = ["not in context", "**{UNHELPFUL.upper()}**"]`',
        )
    ]
    assert gaps(records[1:], "repeated", FULL) == [], "39 are not enough"


def test_of_answers_whose_text_is_not_shown_a_trace_is():
    records = uncited([UNHELPFUL] * 50)
    ((finding, remedy),) = gaps(records, "repeated")
    assert finding == f"50 of 50 answers have the same text and cite nothing, such as that of trace {0:032x}"
    assert "Rosa" not in remedy
    assert "[refusal] tokens" in remedy


def test_answers_that_cite_or_refuse_or_are_long_are_proposed_as_no_token():
    cited = [call(place, answer_json=Answer(UNHELPFUL, ["grey-heron#1"])) for place in range(60)]
    assert gaps(cited, "repeated", FULL) == []
    assert gaps(uncited(["not in context"] * 60), "repeated", FULL) == []
    assert gaps(uncited([UNHELPFUL * 9] * 60), "repeated", FULL) == []


def test_a_token_that_was_set_is_proposed_no_more():
    """Of the same counts: those before it was set stay."""
    scorer = Scorer(GOLD, rules=FULL)
    for record in uncited([UNHELPFUL] * 60):
        scorer.observe(record)
    mended = Scorer(GOLD, rules=ReductionRules(FactReader(RefusalRule(tokens=(UNHELPFUL,)))), state=scorer.state)
    mended.observe(uncited([UNHELPFUL])[0])
    (found,) = capture_reports(mended, lambda _: GATES)
    assert [gap for gap in found.gaps if gap.field == "repeated"] == []


def test_marks_in_a_form_that_nobody_reads_are_counted_and_shown():
    claims = [f"Tighten it to {place} Nm [kb-{place % 3 + 7}]." for place in range(30)]
    records = uncited([*claims, *(f"See [page{place}](https://example.org)." for place in range(70))])
    ((finding, remedy),) = gaps(records, "marks", FULL)
    assert finding == (
        "30 of 100 answers have what looks like a citation, in a form that ragmon does not read, such as `[kb-7]`, "
        "`[kb-8]`, `[kb-9]`"
    )
    assert "[1]" in remedy
    ((hidden, _),) = gaps(records, "marks")
    assert hidden.endswith(f"such as that of trace {0:032x}, that of trace {1:032x}, that of trace {2:032x}")
    assert gaps(records[27:], "marks", FULL) == [], "few of many are no convention"


def test_the_report_of_a_run_shows_them_whatever_gates_there_are_on_citations(configured):
    path = configured('[capture]\ncontent = "full"\n').path
    found = ragmon.replay(uncited([UNHELPFUL] * 50), GOLD, config=path)
    for text in (terminal_text(found, 400), report_markdown(found)):
        assert "50 of 50 answers have the same text and cite nothing" in text
        assert UNHELPFUL in text
