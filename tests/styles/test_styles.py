"""Ten thousand requests of forty flawless pipelines: no gate fails and nothing pages; a fault turns its gate red.

The styles are the table in `tests.support.styles`.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

import ragmon
from ragmon.config.load import load
from ragmon.core.record import Record
from ragmon.ingest.files import ReadSummary, read_files, read_table
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.tables import USUAL, frame_table
from ragmon.monitor.replay import AlarmReplay
from ragmon.scoring.scorer import ScorerFactory
from tests.support.styles import REQUESTS, STYLES, UNANSWERABLE, Style, fact, gold, languages, requests, written

RED = {
    "phrase": "answer_precision",
    "retrieved": "citation_hit_rate",
    "cited": "citation_hit_rate",
    "shipped": "under_refusal_rate",
}
"""The gate of each fault."""


def styles():
    """Styles as parameters."""
    return [pytest.param(style, id=f"{STYLES.index(style)}-{style.language}") for style in STYLES]


def judged(style, folder, fault=None, config=""):
    """The report over the requests of a style."""
    path = folder / "ragmon.toml"
    path.write_text(config, "utf-8")
    return ragmon.replay(written(style, folder, fault), gold=list(gold(style)), config=path)


def verdicts(report):
    return {outcome.gate.name: outcome.verdict for outcome in report.outcomes}


def test_the_table_has_forty_styles_of_many_languages_marks_names_and_containers():
    assert len(set(STYLES)) == 40
    assert len(STYLES) * REQUESTS == 10_000
    assert {style.language for style in STYLES} == set(languages())
    kinds = {part: len({getattr(style, part) for style in STYLES}) for part in Style._fields}
    assert min(kinds["language"], kinds["cites"]) >= 20
    assert min(kinds["ids"], kinds["container"], kinds["typography"], kinds["says"]) >= 8


def test_a_style_always_gives_the_same_requests():
    for style in STYLES[::7]:
        assert list(requests(style)) == list(requests(style))
        assert sum(not row["answerable"] for row in gold(style)) == UNANSWERABLE
    assert all(fact(one) != fact(other) for one, other in pairwise(range(REQUESTS)))


@pytest.mark.slow
@pytest.mark.parametrize("style", styles())
def test_a_flawless_pipeline_is_judged_right_by_default(style, tmp_path):
    report = judged(style, tmp_path)
    assert set(verdicts(report).values()) == {"pass"}, report.outcomes


@pytest.mark.slow
@pytest.mark.parametrize("style", styles())
def test_a_flawless_pipeline_pages_nobody(style, tmp_path):
    path = tmp_path / "ragmon.toml"
    path.write_text("", "utf-8")
    watching = AlarmReplay(ScorerFactory(load(path, environ={}), (GoldSet.from_rows(list(gold(style))),)))
    traces, intake = written(style, tmp_path), ReadSummary()
    table = frame_table(traces)
    records = read_files([str(traces)], intake) if table is None else read_table(table, "records", intake, USUAL)
    for record in watching.follow(records):
        assert isinstance(record, Record)
        watching.scorer.observe(record)
    assert intake.readable
    assert [told for told in watching.transitions if told.severity == "page"] == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in RED if fault != "cited"])
@pytest.mark.parametrize("style", styles())
def test_a_fault_turns_its_gate_red(style, fault, tmp_path):
    assert verdicts(judged(style, tmp_path, fault))[RED[fault]] == "fail"


@pytest.mark.slow
@pytest.mark.parametrize("style", styles())
def test_a_wrong_document_that_is_cited_turns_its_gate_red(style, tmp_path):
    assert verdicts(judged(style, tmp_path, "cited"))[RED["cited"]] == "fail"
