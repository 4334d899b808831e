"""The streams the scenario tests look at, and the data they are made of, read without the code under test."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

from bench.scenario import Stream

SQUAD = Path(__file__).parents[1] / "data" / "squad2"
TOKEN = "not in context"


@cache
def stream(preset, hours=12):
    """One stream of a preset, made once."""
    return Stream(preset, seed=1, hours=hours)


@cache
def recorded():
    """What the system really answered, by question: ids, claim, citations. Questions that come twice are left out."""
    with gzip.open(SQUAD / "traces" / "bert.jsonl.gz", "rt", encoding="utf-8") as file:
        traces = [json.loads(line) for line in file]
    often = Counter(trace["q"] for trace in traces)
    answers = {t["q"]: (t["retrieved_ids"], *t["answer_json"].values()) for t in traces if often[t["q"]] == 1}
    assert len(answers) > 11_000
    return answers


@cache
def gold_rows():
    """What is known about half of the questions, by qid."""
    with gzip.open(SQUAD / "gold.jsonl.gz", "rt", encoding="utf-8") as file:
        return {row["qid"]: row for row in map(json.loads, file)}


def judged(records):
    """The records whose question tells what the recorded answer was."""
    return [record for record in records if record.q in recorded()]


def said(record):
    """Ids, claim and citations of a record, as `recorded` has them."""
    answer = record.answer_json
    return record.retrieved_ids, answer and answer.claim, answer and answer.citations


def during(records, incident):
    """The records of an incident."""
    return [record for record in records if incident.start <= record.ts < incident.end]
