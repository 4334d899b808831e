"""A gate names the ids that differ from gold in form alone: how many, one of them, and the setting that allows them."""

from __future__ import annotations

import random
import unicodedata

import pytest

from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.gates.coverage import capture_reports
from ragmon.gates.evaluate import evaluate
from ragmon.ingest.gold import GoldSet, gold_of
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_record
from tests.support.command_line import lines
from tests.support.command_line import ragmon as command

N = 60
GATES = {
    "hit_rate": Gate("hit_rate", "hit_rate", 0.80, "at_least", window="all"),
    "citation_hit_rate": Gate("citation_hit_rate", "citation_hit_rate", 0.75, "at_least", window="all"),
}
METRICS = pytest.mark.parametrize("metric", GATES)


def gold(named, forms=()):
    items = tuple(GoldItem(f"q{n}", f"Question {n}?", True, citations=[named(n)]) for n in range(N))
    return GoldSet("gold", items, id_forms=forms)


def answers(named, source="probe"):
    """Flawless answers, whose ids are written in some way."""
    return [make_record(f"q{n}", retrieved=[named(n), "extra"], citations=[named(n)], source=source) for n in range(N)]


def counted(records, named=lambda n: f"page-{n}", forms=()):
    scorer = Scorer(gold(named, forms))
    for record in records:
        scorer.observe(record)
    return scorer


def judged(scorer, metric, *, whole_run=True, estimand=None):
    gate = GATES[metric]
    return evaluate(scorer.snapshot(gated=[metric]), Policy((gate,)), whole_run=whole_run)[0]


WRITTEN = {
    "chunks, but for one": (lambda n: f"page-{n}#0" if n else "page-0", 59, "`page-1#0` from `page-1`", '"prefix"'),
    "half in capitals": (lambda n: f"PAGE-{n}" if n % 2 else f"page-{n}", 30, "`PAGE-1` from `page-1`", '"casefold"'),
    "a third in a folder": (lambda n: f"kb/page-{n}" if n % 3 else f"page-{n}", 40, "`kb/page-1` from", '"path"'),
    "some of each": (
        lambda n: (f"page-{n}", f"Page-{n}", f"page-{n}.pdf", f"kb/page-{n}")[n % 4],
        45,
        "`Page-1` from `page-1`",
        '["casefold", "path", "prefix"]',
    ),
}


@METRICS
@pytest.mark.parametrize("style", WRITTEN)
@pytest.mark.parametrize("whole_run", [True, False])
def test_a_flawless_pipeline_is_not_red_and_the_reason_says_what_mends_it(metric, style, whole_run):
    named, n, example, forms = WRITTEN[style]
    found = judged(counted(answers(named)), metric, whole_run=whole_run)
    assert (found.verdict, found.value) == ("insufficient", 1.0)
    assert f"{n} of 60 not assessable: id_form" in found.reason
    assert f"ids differ from gold only in form, {example}" in found.reason
    assert f"`[gold.gold] ids = {forms}`" in found.reason
    cured = judged(counted(answers(named), forms=tuple(forms.strip('[]"').split('", "'))), metric, whole_run=whole_run)
    assert (cured.verdict, cured.value, cured.n) == ("pass", 1.0, N)


@METRICS
def test_however_many_others_match_a_decided_gate_names_them(metric):
    few = judged(counted(answers(lambda n: f"page-{n}" if n else "PAGE-0")), metric)
    assert (few.verdict, few.n) == ("pass", N - 1)
    assert "1 of 60 not assessable: id_form (ids differ from gold only in form, `PAGE-0` from `page-0`" in few.reason
    red = judged(counted(answers(lambda n: f"wrong-{n}" if n else "PAGE-0")), metric, whole_run=False)
    assert red.verdict in ("fail", "insufficient")
    assert "`PAGE-0` from `page-0`" in red.reason


@METRICS
@pytest.mark.parametrize("forms", [(), ("prefix",), ("casefold", "path", "prefix"), ("exact",)])
def test_wrong_documents_turn_a_gate_red_under_every_setting(metric, forms):
    wrong = counted(answers(lambda n: f"page-{n + 1}#0" if n % 2 else f"page-{n}"), forms=forms)
    assert judged(wrong, metric).verdict == "fail"


@METRICS
def test_where_no_id_is_gold_s_the_setting_mends_it_too(metric):
    scorer = counted(answers("page-{}#0".format))
    found = judged(scorer, metric)
    assert (found.verdict, found.applicable) == ("insufficient", False)
    assert "none of 120 retrieved ids occurs in gold (ids differ from gold only in form, `page-0#0`" in found.reason
    assert '`[gold.gold] ids = "prefix"`' in found.reason
    (report,) = capture_reports(scorer, lambda _: [GATES[metric]], whole=True)
    assert report.worst.remedy == '`[gold.gold] ids = "prefix"`'


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        (lambda n: f"Gebühren {n}", "one from `Gebühren 0`"),
        (lambda n: f"What is a day ticket? {n}", "one from `What is a day ticket? 0`"),
    ],
)
def test_an_id_that_may_be_a_text_is_not_shown(named, shown):
    records = answers(lambda n: named(n) if n % 2 else unicodedata.normalize("NFD", named(n)).upper())
    reason = judged(counted(records, named), "hit_rate").reason
    assert "30 of 60 not assessable: id_form" in reason
    assert "TICKET" not in reason
    assert "GEB" not in reason
    assert shown in reason


def test_no_record_is_read_by_what_came_before_it():
    named = WRITTEN["some of each"][0]
    records = answers(named)
    shuffled = random.Random(7).sample(records, len(records))
    halves = counted(records[:30])
    halves.state.merge(counted(records[30:]).state)
    expected = counted(records)
    for other in (counted(shuffled), halves):
        assert other.state.digest() == expected.state.digest()
        assert judged(other, "hit_rate").reason == judged(expected, "hit_rate").reason


def test_examples_are_forgotten_with_a_user():
    scorer = counted(answers(lambda n: f"page-{n}#0" if n else "page-0"))
    assert scorer.state.captured.forget_examples()
    assert not scorer.state.captured.forget_examples()
    reason = judged(scorer, "hit_rate").reason
    assert "page-1" not in reason
    assert '`[gold.gold] ids = "prefix"`' in reason


# --- the setting ------------------------------------------------------------------------------------------------------


def configured(tmp_path, value):
    rows = [{"qid": "a", "question": "Is it?", "answerable": True, "gold_citations": ["page-7"]}]
    lines(tmp_path / "gold.jsonl", rows)
    (tmp_path / "ragmon.toml").write_text(f'[gold.kb]\npath = "gold.jsonl"\nids = {value}\n')
    return load(tmp_path / "ragmon.toml")


@pytest.mark.parametrize(
    ("value", "forms"), [('"prefix"', ("prefix",)), ('["path", "casefold"]', ("path", "casefold")), ("[]", ())]
)
def test_the_setting_reaches_the_items(tmp_path, value, forms):
    (found,) = gold_of(configured(tmp_path, value), [])
    assert [tuple(item.id_forms) for item in found] == [forms]


@pytest.mark.parametrize("value", ['["exact", "path"]', '"fold"', '["path", "path"]', "7"])
def test_a_setting_that_says_nothing_or_two_things_is_refused(tmp_path, value):
    with pytest.raises(RagmonError) as refused:
        configured(tmp_path, value)
    assert "gold.kb.ids" in f"{refused.value}"


def test_a_replay_with_the_setting_passes(tmp_path):
    configured(tmp_path, '"prefix"')
    lines(
        tmp_path / "t.jsonl",
        [{"qid": "a", "retrieved_ids": ["page-7#0"], "answer_json": {"claim": "yes", "citations": ["page-7#0"]}}],
    )
    done = command("gate", tmp_path / "t.jsonl", "--config", tmp_path / "ragmon.toml")
    (line,) = [line for line in done.out.splitlines() if "citation_hit_rate " in line]
    assert "100.0 %" in line
    assert "pass" in line
