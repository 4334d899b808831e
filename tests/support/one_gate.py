"""Snapshots of one series, built by hand, and the verdict of one gate on them."""

from __future__ import annotations

from collections import Counter

from ragmon.core.policy import Gate, Policy
from ragmon.gates.evaluate import evaluate
from ragmon.ingest.gold import GoldInfo
from ragmon.scoring.score_table import Stat
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot
from ragmon.stats.histograms import MICRO

GOLD_METRICS = frozenset({"answer_precision", "under_refusal_rate"})


def stat(right, n, **unassessed):
    return Stat(n, right * MICRO, right * MICRO**2, unassessed)


def series(metric="compliance", right=0, n=0, *, items=None, **labels):
    """A series with one metric; `items` are the `(n, sum)` of its gold items."""
    fields = {
        "pipeline": "default",
        "source": "live",
        "gold": "",
        "gold_version": "",
        "window": "1h",
        "slice": "",
        "metrics": {metric: stat(right, n)},
        "latency": {},
        "clusters": {} if items is None else {metric: Counter((n, right, 0) for n, right in items)},
        "traced": len(items or ()),
        "records": n,
    }
    return SeriesStats(**{**fields, **labels})


def judge(gate, *found, golds=(), builds=(), whole_run=False, maturity=None, **policy):
    snapshot = Snapshot(0.0, found, golds, builds, GOLD_METRICS, maturity or {})
    (outcome,) = evaluate(snapshot, Policy((gate,), **policy), whole_run=whole_run)
    return outcome


FLOOR = Gate("compliance", "compliance", 0.80, "at_least")
CEILING = Gate("error_rate", "error_rate", 0.20, "at_most")
PRECISION = Gate("precision", "answer_precision", 0.80, "at_least")
REFUSAL = Gate("refusal", "under_refusal_rate", 0.20, "at_most")

SET = GoldInfo("support", "aaaaaaaa", 100)


def gold_run(right, n, *, traced, gate=PRECISION, source="replay", **labels):
    items = [(1, float(i < right)) for i in range(n)]
    labels = {"gold": "support", "gold_version": "aaaaaaaa", "window": ALL, "source": source, **labels}
    return series(gate.metric, right, n, items=items, **{"traced": traced, "records": traced, **labels})


def matched(items, source="match", **labels):
    right, n = sum(y for _, y in items), sum(n for n, _ in items)
    labels = {"gold": "support", "gold_version": "aaaaaaaa", "source": source, **labels}
    return series("answer_precision", int(right), n, items=items, **labels)
