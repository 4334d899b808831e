"""Traffic of every recorded instrumentation: nothing fails while all is well, and each fault turns its gate red.

A recording holds a few requests of a real program. Many questions are made of each: the same spans with other ids,
another session and another day in the question.
"""

from __future__ import annotations

import hashlib
import json
import re

import pytest

import ragmon
from ragmon.config.load import load
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.replay import AlarmReplay
from ragmon.scoring.scorer import ScorerFactory
from tests.support import recorded_agents
from tests.support.instrumentation_table import YES, cells, options_of

DAYS = 40
"""Requests that are made of each in a recording."""
_TRACE_ID = re.compile(r'"traceId": "([0-9a-f]{32})"')
RED = {
    "ids": ("hit_rate",),
    "citations": ("citation_hit_rate",),
    "refusal": ("under_refusal_rate",),
    "error": ("error_rate",),
}
"""The gates that each column of the matrix stands for."""


def on_day(asked, day):
    """The question of a request on another day, and the lines of its export requests."""
    question = asked.q.replace("?", f" on day {day}?")
    body = json.dumps(asked.requests, ensure_ascii=False).replace(asked.q, question)
    if asked.session is not None:
        body = body.replace(asked.session, f"{asked.session}-{day}")
    body = _TRACE_ID.sub(lambda match: f'"traceId": "{hashlib.md5(f"{match[1]}{day}".encode()).hexdigest()}"', body)
    return question, json.loads(body)


def traffic(name, folder, *, broken):
    """A file of traces and the rows of gold.

    In broken traffic requests fail, gold names other documents on half of the days, and on a quarter of the days no
    question has an answer but those that were refused.
    """
    lines, rows = [], []
    for day in range(DAYS):
        moved, flipped = broken and day % 2 == 1, broken and day % 4 == 2
        for asked in recorded_agents.questions(name):
            is_fault = asked.error is not None or not asked.ids
            if asked.stream or (is_fault and not broken):
                continue
            question, requests = on_day(asked, day)
            lines += map(json.dumps, requests)
            row = {"qid": f"q{len(rows)}", "question": question, "answerable": asked.refuses is flipped}
            if row["answerable"]:
                ids = asked.citations or asked.ids
                row |= {"gold_claim_substr": [(asked.answer or "none").partition(" [")[0]]}
                row |= dict.fromkeys(
                    ("gold_citations", "relevant_ids"), [f"old-{number}" for number in ids] if moved else ids
                )
            rows.append(row)
    traces = folder / "traces.jsonl"
    traces.write_text("\n".join(lines), encoding="utf-8")
    return traces, rows


def configuration(name, folder):
    """A configuration with the default gates and one of `hit_rate`, and the setting of the instrumentation's row."""
    options = options_of(name)
    location = [] if options.id_from is None else [f'id_from = "{".".join(options.id_from)}"']
    lines = [
        *("[capture]", f"retrievers = {json.dumps(list(options.retrievers))}", *location),
        *("[gates]", 'preset = "default"', "[gates.hit_rate]", "at_least = 0.5"),
    ]
    path = folder / "ragmon.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(params=recorded_agents.NAMES)
def name(request):
    return request.param


@pytest.mark.slow
def test_nothing_fails_and_nothing_pages_while_all_is_well(name, tmp_path):
    traces, rows = traffic(name, tmp_path, broken=False)
    path = configuration(name, tmp_path)
    report = ragmon.replay(traces, gold=rows, config=path)
    assert "fail" not in {outcome.gate.name: outcome.verdict for outcome in report.outcomes}.values(), report.outcomes
    watching = AlarmReplay(ScorerFactory(load(path, environ={}), (GoldSet.from_rows(rows),)))
    intake = ReadSummary()
    for record in watching.follow(read_files([str(traces)], intake)):
        watching.scorer.observe(record)
    assert intake.readable
    assert [told for told in watching.transitions if told.severity == "page"] == []


@pytest.mark.slow
def test_each_fault_turns_its_gate_red_where_the_spans_tell(name, tmp_path):
    traces, rows = traffic(name, tmp_path, broken=True)
    report = ragmon.replay(traces, gold=rows, config=configuration(name, tmp_path))
    verdicts = {outcome.gate.name: outcome.verdict for outcome in report.outcomes}
    told = cells(recorded_agents.questions(name), options_of(name))
    gold_is_found = told["question"] == YES
    for column, gates in RED.items():
        if told[column] == YES and (gold_is_found or column == "error"):
            for gate in gates:
                assert verdicts[gate] == "fail", (gate, report.outcomes)
