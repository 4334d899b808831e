"""Pipelines that break in a known way at a known minute, counted as a monitor counts them."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec

from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Latency
from ragmon.gates.evaluate import evaluate
from ragmon.gates.why import explain
from ragmon.scoring.buckets import State
from ragmon.scoring.scorer import ReductionRules, Scorer
from tests.support.alarming import GOLD, NOON, Traffic

PRECISION = Gate("answer_precision", "answer_precision", 0.80, "at_least", source="probe")
OVER_REFUSAL = Gate("over_refusal", "over_refusal_rate", 0.10, "at_most", source="probe")
COVERAGE = Gate("coverage", "coverage", 0.70, "at_least", source="live")
ERRORS = Gate("errors", "error_rate", 0.05, "at_most", source="live")
P95 = Gate("p95", "latency", 1.3, "at_most", source="live", kind="quantile_ratio")
ONE_INDEX = Gate("one_index", "index_hash", 1, "at_most", source="live", kind="distinct")


class Pipeline:
    """Traffic and what was counted of it.

    Args:
        gold: What probes ask.
        live, probes: Requests a minute.
        slices: Values of the tag `lang` that are counted apart.
        seed: Of everything that is drawn.

    Attributes:
        scorer: Counts.
        minute: The next one.
    """

    def __init__(self, *, gold=GOLD, live=30, probes=20, slices=("de", "en"), seed=1):
        self._rules = ReductionRules(slices={"lang": slices})
        self.scorer = Scorer(gold, rules=self._rules, state=State(retention=10**6, is_live=True))
        self.minute = NOON
        self.records = []
        self._traffic = Traffic(seed, live=live, gold=probes)
        self._rng = random.Random(seed)

    def adopt(self, gold):
        """From now on probes are judged by another version of the gold set."""
        self.scorer = Scorer(gold, rules=self._rules, state=self.scorer.state)

    def run(self, minutes, *, build="b1", retrieve=1.0, change=None, **broken):
        """So many minutes of requests; returns when they began, in seconds since the epoch.

        Args:
            minutes: How many.
            build: What answers, or a function of a random number generator that says so.
            retrieve: How many times as long as usual retrieval takes.
            change: Makes another record of a record and a random number generator.
            broken: As `Traffic.minute` has it.
        """
        began = 60.0 * self.minute
        for _ in range(minutes):
            for record in self._traffic.minute(self.minute, **broken):
                self._observe(record, build, retrieve, change)
            self.minute += 1
        return began

    def _observe(self, record, build, retrieve, change):
        rng = self._rng
        took, found = rng.lognormvariate(6.6, 0.4), retrieve * rng.lognormvariate(3.8, 0.35)
        record = msgspec.structs.replace(
            record,
            build=build if isinstance(build, str) else build(rng),
            tags={"lang": "de" if rng.random() < 0.3 else "en"},
            latency_ms=Latency(total=took + found, retrieve=found, generate=took),
        )
        record = record if change is None else change(record, rng)
        self.records.append(record)
        assert self.scorer.observe(record)

    @property
    def now(self):
        """The last moment of the last minute."""
        return 60.0 * self.minute - 1

    def outcome(self, gate, **baseline):
        """How a gate stands."""
        windows = {"1h": 3600, "24h": 86_400, "all": None}
        snapshot = self.scorer.snapshot(now=self.now, windows=windows, gated=[gate.metric])
        (found,) = evaluate(snapshot, Policy((gate,), windows=windows, baseline_p95_ms=baseline))
        return found

    def why(self, gate, **options):
        """What broke."""
        outcome = self.outcome(gate, default=1500.0)
        return explain(self.scorer.state, self.scorer.table, outcome, now=self.now, **options)


def other_gold():
    """The gold set after somebody changed what is right for most of its questions."""
    items = [
        replace(item, claim_substrings=["something new"]) if item.answerable and item.qid[-1] in "012345" else item
        for item in GOLD.items
    ]
    return type(GOLD)(GOLD.name, tuple(items))


def named(why):
    """The suspects in order, one text each."""
    return [f"{one.dimension} {one.name} {one.how}" for one in why.suspects]


def trait(why, name):
    """A trait of an explanation."""
    (found,) = (one for one in why.traits if one.name == name)
    return found
