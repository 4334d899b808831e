"""How citations that are no retrieved ids are read: by the totals of their pipeline, or by `[citations] base`."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.alarms.pipelines import AlarmEngine
from ragmon.config.load import load
from ragmon.core.citations import with_marks
from ragmon.core.record import Answer, Record, encode
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.facts import USUAL, CitationForm, FactReader, read_as
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ReductionRules, Scorer
from tests.support.command_line import ragmon
from tests.support.examples import cases

IDS = ["kb-0", "page-0", "kb-2", "kb-3"]
GOLD = [{"qid": "a", "question": "A?", "answerable": True, "gold_citations": ["page-0"]}]


def request(*citations, text="At nine.", ids=IDS, **fields):
    """A request that cites so, as any reader hands it on."""
    answer = with_marks(Answer(text, list(citations) if citations else None), ids)
    return Record(q="A?", qid="a", retrieved_ids=list(ids), answer_json=answer, **fields)


def metrics(records, base=None):
    scorer = Scorer(GoldSet.from_rows(GOLD), rules=ReductionRules(FactReader(citations=base)))
    for record in records:
        scorer.observe(copy.deepcopy(record))
    series = scorer.snapshot().find("default", "replay", gold=None)
    return {name: stat for name, stat in series.metrics.items() if name in ("citation_scope", "citation_hit_rate")}


def values(records, base=None):
    return [stat.value for _, stat in sorted(metrics(records, base).items())]


def unassessed(records, base=None):
    return metrics(records, base)["citation_hit_rate"].unassessed


def test_marks_count_from_1_as_long_as_none_is_0():
    assert values([request(text="At nine [2].")] * 50) == [1.0, 1.0]
    assert values([request(text="At nine [1].")] * 50) == [0.0, 1.0]


def test_they_count_from_0_where_one_answer_in_fifty_has_a_0_and_none_the_number_of_its_documents():
    records = [request(text="At nine [1].")] * 49 + [request(text="At nine [0].")]
    assert values(records) == [0.98, 1.0]
    rarely = [request(text="At nine [2].")] * 99 + [request(text="At nine [0].")]
    assert values(rarely) == [1.0, 1.0]
    assert unassessed(rarely) == {"no_citations": 1}


def test_where_both_are_seen_it_is_undecided_and_a_setting_decides_it():
    records = [request(text="At nine [0]."), request(text="At nine [4]."), *[request(text="At nine [1].")] * 48]
    assert values(records) == [None, None]
    assert unassessed(records) == {"citation_form": 50}
    assert values(records, base=0) == [0.96, 0.98]
    assert values(records, base=1)[0] == 0.0


@pytest.mark.parametrize("citation", [1, "1", "[1]", "Source 1", "doc1", "［1］"])
def test_a_list_of_ranks_is_read_as_the_marks_in_a_text_are(citation):
    records = [request(str(citation))] * 49
    assert values([*records, request("[0]")]) == values([request(text="At nine [1].")] * 49 + [request(text="No [0].")])


def test_names_unlike_any_id_are_no_ids_where_nine_in_ten_answers_cite_nothing_else():
    titles = [request("Bus plan, p. 3")] * 90
    assert values([*titles, *[request("page-0")] * 10]) == [1.0, 1.0]
    assert unassessed([*titles, *[request("page-0")] * 10]) == {"citation_form": 90}
    assert values([*titles, *[request("page-0")] * 11])[1] == pytest.approx(11 / 101)


def test_few_answers_say_nothing_about_the_form_of_names():
    assert values([request("Bus plan, p. 3")] * 19) == [0.0, 0.0]
    assert values([request("Bus plan, p. 3")] * 20) == [None, None]


def test_a_name_like_an_id_is_one_however_many_are_wrong():
    assert values([request("page-9")] * 100) == [0.0, 0.0]


def test_a_setting_says_what_citations_are():
    assert unassessed([request("Bus plan")], base="titles") == {"citation_form": 1}
    assert values([request("Bus plan")] * 100, base="ids") == [0.0, 0.0]
    numbers = ["17", "2", "30"]
    assert values([request("[2]", ids=["a", "2", "30"])], base="ids")[1] == 1.0
    assert values([request("2", ids=numbers)])[1] == 1.0, "numbers beside numbers are ids"


kinds = st.sampled_from(
    [
        request(text="At nine [1]."),
        request(text="At nine [0]."),
        request(text="At nine [4]."),
        request("Bus plan"),
        request("page-0"),
        request("page-9"),
    ]
)


@settings(max_examples=cases(200), deadline=None)
@given(st.lists(kinds, min_size=1, max_size=60), st.randoms(use_true_random=False), st.integers(1, 59))
def test_order_split_and_merge_give_the_same(records, rng, at):
    whole = scored(records)
    shuffled = list(records)
    rng.shuffle(shuffled)
    first, second = scored(shuffled[:at]), scored(shuffled[at:])
    # Each part is read in the form that it shows alone.
    first.state.merge(second.state)
    assert first.state.digest() == whole.state.digest()
    assert first.snapshot().series == whole.snapshot().series


def scored(records):
    scorer = Scorer(GoldSet.from_rows(GOLD))
    for record in records:
        scorer.observe(copy.deepcopy(record))
        if random.Random(str(record)).random() < 0.3:
            scorer.snapshot()
    return scorer


@settings(max_examples=cases(100), deadline=None)
@given(kinds, st.lists(st.sampled_from([(1, True), (0, True), (None, True), (1, False)]), max_size=4))
def test_facts_are_read_in_any_form_after_any_other(record, forms):
    key = FactReader().read(record, None)
    read = key
    for base, are_ids in forms:
        read = read_as(read, CitationForm(base, are_ids))
    assert read_as(read, USUAL) == key


def test_two_builds_that_count_from_0_are_compared_in_that_form(tmp_path):
    lines = []
    for n in range(800):
        record = request(
            text=f"At nine [{n % 4}].", ts=1e9 + n, build="ab"[n % 2], session=f"s{n}", trace_id=f"{n:032x}"
        )
        lines.append(encode(record))
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines))
    compare = ("compare", "log.jsonl", "--by", "build", "--baseline", "a", "--candidate", "b", "--max-drop", "0.1")
    done = ragmon(*compare, cwd=tmp_path)
    scope = next(line for line in done.out.splitlines() if "citation_scope" in line)
    assert scope.count("100.0 % of 400") == 2, done.out


def test_a_pipeline_that_counts_from_0_pages_nobody_and_a_fault_of_it_does(tmp_path):
    path = tmp_path / "ragmon.toml"
    path.write_text("[gates.citation_scope]\nat_least = 0.95\n")

    def pages(records):
        engine = AlarmEngine(plan := load(path, environ={}), scorer_table(plan))
        scorer = Scorer(metrics=scorer_table(plan), observers=[engine.steps])
        found = []
        for record in records:
            scorer.observe(record)
            found += engine.advance(record.ts)
        return {transition.alert for transition in found if transition.severity == "page"}

    def traffic(fault):
        for n in range(4000):
            text = "At nine [1][7]." if fault and n > 2000 else f"At nine [{n % 4}]."
            yield request(text=text, ts=1e9 + 3 * n, source="live", trace_id=f"{n:032x}", session=f"s{n}")

    assert pages(traffic(fault=False)) == set()
    assert "citation_scope" in pages(traffic(fault=True))


def scorer_table(plan):
    return ScoreTable(plan.build_metrics())
