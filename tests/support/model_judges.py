"""What tests of judges behind an address share: judges that ask a model, a request to judge."""

from __future__ import annotations

import asyncio

import pytest

from ragmon.capture import judges
from ragmon.capture.judges import Judge, ModelEndpoint
from ragmon.config.services import JudgeTable
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.metrics.facts import FactReader

ITEM = GoldItem(qid="a", question="Who?", answerable=True, gold_claim="Einstein won in 1921.")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(judges, "FIRST_PAUSE", 0.01)


def record(*contexts, claim="good one. bad one."):
    return Record(q="Who?", contexts=list(contexts), answer_json=Answer(claim=claim), trace_id="0" * 32)


def precision(model, **terms):
    return Judge(
        "p",
        JudgeTable.model_construct(**{"timeout": 20.0, **terms}),
        (ModelEndpoint(model.url, "m", key="sesame"), "contextual_precision"),
    )


def faithful(model, **terms):
    return Judge(
        "f", JudgeTable.model_construct(**{"timeout": 20.0, **terms}), (ModelEndpoint(model.url, "m"), "faithfulness")
    )


def judged(judge, what=None):
    return asyncio.run(judge.judge(what or record("good a", "b", "good c"), ITEM, FactReader()))
