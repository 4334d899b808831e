"""What the monitor counted live, a replay of the trace log counts again: to the last bit, or without the text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

import ragmon
from ragmon.capture.trace import probe
from ragmon.config.load import load
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import load_gold
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.install import Installation
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import ScorerFactory
from tests.support.oracle.draw import drawn
from tests.support.oracle.generators import REFUSALS, TEXTS

GOLD = [
    {"qid": "ferry", "question": "When does the ferry leave?", "answerable": True, "gold_claim_substr": ["at nine"]},
    {"qid": "pier", "question": "Which pier?", "answerable": True, "gold_claim_substr": ["nord", "N"]},
    {"qid": "fare", "question": "What is the fare?", "answerable": True, "gold_claim": "Four crowns, children free"},
    {"qid": "moon", "question": "Who owns the moon?", "answerable": False},
]
CITED = {"ferry": ["d1"], "pier": ["d2", "d3"], "fare": ["d1"]}
CONFIG = """
[pipelines.support]
[pipelines.sales.refusal]
matcher_counts = true
[pipelines.sales.metrics]
grounded_threshold = 0.5
[sampling]
rate = 1.0
[metrics]
answered_within = "1h"
[slices]
lang = ["de"]
[gold.gold]
path = "gold.jsonl"
[export]
jsonl = "trace.jsonl"
"""
IDS = ("d1", "d2", "d3", "d4")
CLAIMS = ("It leaves at nine.", "Nord", "from pier N", "four crowns", "Children free: four crowns", "tea", "", "  ")


def call(draw):
    """What happens in one call: asked by a user or a probe, answered, refused, or broken."""
    ids = draw.distinct(IDS, 4)
    return {
        "pipeline": draw.one(("support", "sales")),
        "probe": draw.one((None, None, *(item["qid"] for item in GOLD), "unknown")),
        "question": draw.one((*(item["question"] for item in GOLD), "which PIER", "Something else?")),
        "claim": draw.one((*CLAIMS, *REFUSALS, "I don't know.", "I could not find that in the documents.", None)),
        "citations": draw.one((None, [], draw.some(IDS, 2))),
        "documents": draw.one(([{"id": name, "text": draw.one(TEXTS)} for name in ids], ids, [], None)),
        "candidates": draw.one((None, draw.some(IDS, 4))),
        "tags": draw.one((None, {"lang": "de"}, {"lang": "fr"})),
        "index_hash": draw.one((None, "i1", "i2")),
        "error": draw.number(7) == 7,
    }


def answer(question, happens):
    ragmon.record(
        retrieved=happens["documents"],
        candidates=happens["candidates"],
        tags=happens["tags"],
        index_hash=happens["index_hash"],
    )
    if happens["error"]:
        raise TimeoutError(question)
    return {"answer": happens["claim"], "citations": happens["citations"]}


TRACED = {name: ragmon.trace(name=name)(answer) for name in ("support", "sales")}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with gold and configuration."""
    folder = tmp_path_factory.mktemp("live")
    rows = [item | {"gold_citations": CITED[item["qid"]]} if item["answerable"] else item for item in GOLD]
    (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "ragmon.toml").write_text(CONFIG)
    return folder


def live_and_replay(home, happenings, content):
    """The monitor after some calls, and a scorer after a replay of their log."""
    log = home / f"{content}.jsonl"
    log.unlink(missing_ok=True)
    found = load(home / "ragmon.toml", environ={"RAGMON_CONTENT": content})
    found = replace(found, export=found.export.model_copy(update={"jsonl": log}))
    for name, pipeline in found.pipelines.items():
        capture = pipeline.capture.model_copy(update={"probe_content": content})
        found = replace(found, pipelines={**found.pipelines, name: pipeline.model_copy(update={"capture": capture})})
    monitor = Monitor(found)
    installed = Installation(found, monitor)
    installed.start()
    for happens in happenings:
        ask(happens)
    assert installed.shutdown()
    assert installed.counters().scored == installed.counters().received == len(happenings)
    run = Run(ScorerFactory(found, load_gold(found.gold))())
    run.feed(read_files([str(log)], ReadSummary()))
    assert run.scorer.scored == len(happenings)
    return monitor, run.scorer, log.read_text()


def ask(happens):
    traced = TRACED[happens["pipeline"]]
    try:
        if happens["probe"] is None:
            traced(happens["question"], happens)
        else:
            with probe(happens["probe"]):
                traced(happens["question"], happens)
    except TimeoutError:
        assert happens["error"]


happenings = drawn(lambda draw: [call(draw) for _ in range(1 + draw.number(11))], 400)
often = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.mark.slow
@often
@given(happenings)
def test_the_log_with_all_content_gives_the_same_digest(home, happened):
    monitor, scorer, _ = live_and_replay(home, happened, "full")
    assert scorer.state.digest() == monitor.digest()


def metrics(snapshot):
    """Every metric of every series over all time, with sums and reasons."""
    return {
        (s.pipeline, s.source, s.gold, s.gold_version, s.slice): dict(s.metrics)
        for s in snapshot.series
        if s.window == "all"
    }


@pytest.mark.slow
@often
@given(happenings)
def test_the_log_without_text_gives_the_same_metrics(home, happened):
    """Claim metrics too: what the text said was decided where the text was, against the same gold."""
    monitor, scorer, text = live_and_replay(home, happened, "none")
    assert metrics(scorer.snapshot()) == metrics(monitor.snapshot().snapshot)
    for line in map(json.loads, text.splitlines()):
        assert not line.keys() & {"q", "contexts"}
        assert "claim" not in line.get("answer_json", {})
