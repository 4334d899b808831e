"""Ids of another form than a gold id are unknown or, by setting, gold's; gold documents are found by their text too."""

from __future__ import annotations

import itertools

import pytest

from ragmon.core import constants
from ragmon.core.gold_item import GoldItem
from ragmon.core.ids import LONGEST, needed
from ragmon.core.record import Answer, Record
from ragmon.ingest.gold import GoldSet
from ragmon.metrics import build
from ragmon.scoring.scorer import Scorer
from tests.support.effort import effort

ONE = 1_000_000
FORMS = [
    ("page-7", "PAGE-7", {"casefold"}),
    ("Gebühren-1.pdf", "Gebu\u0308hren-1.pdf", {"casefold"}),
    ("page-7", " page-7 ", {"casefold"}),
    ("page-7", "page-007", {"casefold"}),
    ("page-007", "page-7", {"casefold"}),
    ("Gebühren", "Geb%C3%BChren", {"casefold"}),
    ("page-7", "docs/page-7", {"path"}),
    ("page-7", "https://example.org/page-7", {"path"}),
    ("docs/page-7", "https://example.org/docs/page-7/", {"path"}),
    ("http://example.org/a", "https://www.example.org/a", {"path"}),
    ("chunk_3", "docs/chunk_3", {"path"}),
    ("page-7", "page-7.pdf", {"prefix"}),
    ("page-7", "page-7#0", {"prefix"}),
    ("page-7#0", "page-7", {"prefix"}),
    ("page-7", "page-7_chunk_3", {"prefix"}),
    ("page-7", "page-7:0", {"prefix"}),
    ("page-7", "page-7::chunk-0", {"prefix"}),
    ("page-7", "page-7/chunks/3", {"prefix"}),
    ("page-7", "page-7_0", {"prefix"}),
    ("page-7", "page-7 (3)", {"prefix"}),
    ("page-7", "page-7.pdf#page=3", {"prefix"}),
    ("page-7#0", "page-7_chunk_0", {"prefix"}),
    ("page-7", "Docs/PAGE-007.PDF#2", {"casefold", "path", "prefix"}),
    ("docs/page-7", "page-7#0", {"path", "prefix"}),
]
DOCUMENTS = [
    ("page-7#0", "page-7#1"),
    ("page-7", "page-70"),
    ("page-7", "page-8#0"),
    ("page-7", "xpage-7"),
    ("docs/page-7", "wiki/page-7"),
    ("https://example.org/docs/page-7", "https://example.org/wiki/page-7"),
    ("page-7.pdf", "page-7.md"),
    ("handbook_page_3", "handbook_page_4"),
    ("v1.2", "v1.02"),
    ("7", "70"),
    ("2.1", "2.1.3"),
    ("page", "page-7"),
]


def scores(item, *, forms=(), gold=None, **fields):
    """The scores of one request, all of them."""
    scorer = Scorer(GoldSet("gold", (item,), id_forms=forms), metrics=build((1, 3)))
    return scorer.assess(Record(qid=item.qid, **fields)).scores


def asked(*citations, **fields):
    return GoldItem("a", "Is it?", True, claim_substrings=["yes"], citations=citations, **fields)


def of(gold, name, forms=()):
    return scores(
        asked(gold), forms=forms, retrieved_ids=["other", name], answer_json=Answer(claim="yes", citations=[name])
    )


READS_IDS = ("recall", "recall@1", "hit_rate", "mrr", "ndcg@3", "precision", "average_precision", "full_recall")
CITES = ("answer_precision", "answer_precision_cited", "citation_hit_rate", "citation_hit_rate_answerable")


@pytest.mark.parametrize(("gold", "name", "forms"), FORMS)
def test_an_id_of_another_form_is_unknown_and_gold_s_under_the_setting(gold, name, forms):
    assert needed(name, gold) == needed(gold, name) == forms
    unknown = of(gold, name)
    assert {unknown[metric] for metric in READS_IDS + CITES} == {constants.ID_FORM}
    found = of(gold, name, tuple(forms))
    assert {found[metric] for metric in ("recall", "hit_rate", "recall@3", *CITES)} == {ONE}
    assert (found["recall@1"], found["mrr"], found["precision"]) == (0, ONE // 2, ONE // 2)
    for fewer in itertools.combinations(forms, len(forms) - 1):
        assert of(gold, name, fewer)["recall"] == constants.ID_FORM
    assert {of(gold, name, ("exact",))[metric] for metric in READS_IDS + CITES} == {0}


@pytest.mark.parametrize(("gold", "name"), DOCUMENTS)
@pytest.mark.parametrize("forms", [(), ("casefold", "path", "prefix")])
def test_names_of_two_documents_are_two_under_every_setting(gold, name, forms):
    found = of(gold, name, forms)
    assert {found[metric] for metric in READS_IDS + CITES} == {0}


def test_only_a_gold_id_that_is_missing_makes_an_id_of_its_form_unknown():
    """Another chunk of a gold document that was retrieved, by its very id, is one more document."""
    found = scores(asked("page-7"), retrieved_ids=["page-7#1", "page-7"])
    assert (found["recall"], found["mrr"], found["precision"]) == (ONE, ONE // 2, ONE // 2)
    several = scores(asked("page-7#0", "page-7#1"), retrieved_ids=["page-7#0", "other"])
    assert several["recall"] == ONE // 2
    partly = scores(asked("page-7", "page-8"), retrieved_ids=["page-7", "page-8#0"])
    assert partly["recall"] == constants.ID_FORM


@pytest.mark.parametrize("cited", ["PAGE-7", "page-7#0", "docs/page-7"])
def test_a_citation_of_another_form_is_unknown_where_retrieval_is_not(cited):
    answer = Answer(claim="yes", citations=[cited])
    found = scores(asked("page-7"), retrieved_ids=["page-7", cited], answer_json=answer)
    assert (found["recall"], found["citation_hit_rate"]) == (ONE, constants.ID_FORM)
    unscoped = scores(asked("page-7"), retrieved_ids=["page-7"], answer_json=answer)
    assert unscoped["citation_hit_rate"] == 0, "whatever it names, it was not retrieved"
    without_ids = scores(asked("page-7"), answer_json=answer)
    assert without_ids["answer_precision_cited"] == constants.ID_FORM


def test_chunks_of_one_gold_document_are_one_document_and_each_is_relevant():
    found = scores(
        asked("page-7", "page-8"),
        forms=("prefix",),
        retrieved_ids=["page-7#0", "other", "page-7#1", "page-9"],
        candidate_ids=["page-8#3", "page-7#0", "page-7#1", "page-8#4"],
    )
    assert (found["recall"], found["precision"], found["mrr"]) == (ONE // 2, ONE // 2, ONE)
    assert (found["candidate_recall"], found["candidate_recall@1"]) == (ONE, ONE // 2)
    assert scores(asked("page-7"), retrieved_ids=[], candidate_ids=["page-7#0"])["candidate_recall"] == "id_form"


@pytest.mark.parametrize("unit", ["-1", "1_", "_chunk_1", "::", "//", "%20", "#0", ".a", "0", "-1-1x"])
@pytest.mark.parametrize("length", [LONGEST, 50_000])
def test_no_id_takes_long_to_read(unit, length):
    """A hundred hostile ids beside a gold id that they contain, in the time of some megabytes of JSON."""
    name = unit * (length // len(unit))
    ids = [f"{number}{name}"[:length] for number in range(100)]
    units, _ = effort(lambda: scores(asked(unit * 3), retrieved_ids=ids))
    assert units < 20


# --- gold by id or by text --------------------------------------------------------------------------------------------

A, B = "Ferries leave at nine.", "The pier is closed."


def by_text(item, ids, contexts, cited=(), **options):
    answer = Answer(claim="yes", citations=list(cited))
    return scores(item, retrieved_ids=ids, contexts=contexts, answer_json=answer, **options)


@pytest.mark.parametrize("context", [A, A.upper(), "ferries  leave at nine"])
def test_a_renamed_gold_document_is_found_by_its_text_and_its_citation_is_right(context):
    item = asked("page-7", contexts=[A])
    found = by_text(item, ["other", "n-1"], [B, context], ["n-1"])
    assert {found[metric] for metric in ("recall", "hit_rate", *CITES)} == {ONE}
    assert (found["mrr"], found["recall@1"]) == (ONE // 2, 0)
    assert by_text(item, ["other", "n-1"], [B, context], ["other"])["citation_hit_rate"] == 0
    assert by_text(item, ["other", "n-1"], [B, "Something else."], ["n-1"])["recall"] == 0


def test_the_nth_text_is_that_of_the_nth_id():
    item = asked("page-7", "page-8", contexts=[A, B])
    assert by_text(item, ["page-7", "n-1"], [A, B])["recall"] == ONE
    assert by_text(item, ["n-1", "n-2"], ["x", B], ["n-2"])["citation_hit_rate"] == ONE
    assert by_text(item, ["n-1", "n-2"], ["x", B])["recall"] == ONE // 2


def test_of_more_texts_than_ids_any_stands_for_an_id():
    item = asked("page-7", contexts=[A, B])
    assert by_text(item, ["x", "n-1"], ["x", B], ["n-1"])["citation_hit_rate"] == ONE
    two = asked("page-7", "page-8", contexts=[A, B, "A third."])
    assert by_text(two, ["page-7", "other"], [A, "x"])["recall"] == ONE // 2, "a text of the id that was retrieved"
    assert by_text(two, ["n-1", "n-2", "x"], [A, B, "x"])["recall"] == ONE
    assert by_text(two, ["n-1", "x"], [A, "x"])["recall"] == ONE // 2


@pytest.mark.parametrize("contexts", [None, [], ["x"]])
def test_where_its_text_was_not_captured_only_its_id_decides(contexts):
    item = asked("page-7", contexts=[A])
    assert by_text(item, ["x", "n-1"], contexts)["recall"] == 0
    assert by_text(item, ["x", "page-7"], contexts)["recall"] == ONE
    assert by_text(item, ["x", "page-7#0"], contexts)["recall"] == constants.ID_FORM
    assert by_text(item, None, [A])["recall"] == constants.NO_IDS


def test_a_text_decides_where_an_id_is_of_another_form():
    item = asked("page-7", contexts=[A])
    assert by_text(item, ["page-7#0"], [A], ["page-7#0"])["citation_hit_rate"] == ONE


def test_repeated_ids_keep_the_rank_of_the_first():
    item = asked("page-7", contexts=[A])
    found = by_text(item, ["x", "x", "n-1", "n-1"], ["x", "y", "z", A])
    assert (found["mrr"], found["precision"]) == (ONE // 2, ONE // 2)


def test_a_text_that_contains_the_gold_text_counts_where_the_set_says_so():
    exact, contains = (asked("page-7", contexts=[A], match=match) for match in ("exact", "contains"))
    longer = f"From the timetable: {A} And at ten."
    assert by_text(exact, ["n-1"], [longer])["recall"] == 0
    assert by_text(contains, ["n-1"], [longer])["recall"] == ONE
