"""The report of a run: JSON for programs, Markdown for people.

How the questions of gold sets fared in a run, one by one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ragmon import stats
from ragmon.alarms import Detectability
from ragmon.core import constants
from ragmon.core.constants import LABEL
from ragmon.core.escaping import printable_json
from ragmon.core.policy import Outcome, Verdict
from ragmon.gates.compare import Drop
from ragmon.gates.coverage import ways
from ragmon.gates.evaluate import bounds
from ragmon.metrics import facts
from ragmon.metrics.facts import Facts
from ragmon.scoring.labels import Labelled
from ragmon.scoring.predictions import METRIC, Prediction
from ragmon.scoring.score_table import Stat
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot

QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class QuestionReport:
    """How one gold question fared, in the words of seed 002's report.

    Attributes:
        qid: The question.
        answered: It was shipped.
        hit: A gold id was cited.
        refused: It was refused.
        label: OK, REFUSAL_OK, OVER_REFUSAL, HALLUCINATION, ANS_NO_HIT or NO_ANSWER.
        times: How often this happened to it.
        pipeline: Who answered.
    """

    qid: str
    answered: bool
    hit: bool
    refused: bool
    label: str
    times: int = 1
    pipeline: str = ""


@dataclass(frozen=True)
class Report:
    """Everything a run found.

    Attributes:
        version: The ragmon that wrote it.
        snapshot: The metrics.
        outcomes: The gates.
        verdict: The verdict of the whole.
        digest: Fingerprint of the counts; equal runs have equal digests.
        read, scored, unmatched, duplicate: Records.
        rejected: Lines that were no record, and records that were dropped, by reason.
        unknown: Records of which a field is unknown because of what they hold, by `field: reason`.
        unscorable: Per gold set, items that were traced but had no answer in any trace.
        questions: One entry per gold item and outcome.
        drops: Against a baseline.
        notes: What a reader should know, one line each.
        reach: What live alarms on the gates would find in what time, where the run has times.
        labelled: What people said of its answers; None where nobody did.
        predictions: What labels and proxies say together.
    """

    version: str
    snapshot: Snapshot
    outcomes: Sequence[Outcome]
    verdict: Verdict
    digest: str
    read: int
    scored: int
    unmatched: int
    duplicate: int
    rejected: Mapping[str, int]
    unscorable: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    questions: Sequence[QuestionReport] = ()
    drops: Sequence[Drop] = ()
    notes: Sequence[str] = ()
    reach: Sequence[Detectability] = ()
    labelled: Labelled | None = None
    predictions: Sequence[Prediction] = ()

    def metric(
        self, name: str, *, pipeline: str | None = None, source: str | None = None, gold: str | None = None
    ) -> Stat:
        """A metric of the whole run; an empty one where no series has it.

        Args:
            name: Its key, such as `recall@5`.
            pipeline: Which; None takes any.
            source: Which; None takes any.
            gold: Which gold set's requests; None takes all requests, or the gold set that was used.
        """
        found = [
            series.metrics[name]
            for series in _whole(self.snapshot)
            if name in series.metrics
            and pipeline in (None, series.pipeline)
            and source in (None, series.source)
            and gold in (None, series.gold)
        ]
        return max(found, key=lambda stat: (stat.n, sum(stat.unassessed.values())), default=Stat())

    def data(self) -> dict[str, Any]:
        """The report as plain JSON data, by the documented schema."""
        return {
            "version": self.version,
            "gold": self.golds(),
            "records": {
                "read": self.read,
                "scored": self.scored,
                "unmatched": self.unmatched,
                "duplicate": self.duplicate,
                "rejected": dict(sorted(self.rejected.items())),
                **({"unknown": dict(sorted(self.unknown.items()))} if self.unknown else {}),
            },
            "series": [_series(series) for series in self.snapshot.series],
            "latency_ms": latency(self.snapshot),
            "gates": [gate(outcome) for outcome in self.outcomes],
            **({"matches": ways(self.snapshot)} if ways(self.snapshot) else {}),
            **({"baseline": [drop(found) for found in self.drops]} if self.drops else {}),
            **({"labels": self.labelled._asdict()} if self.labelled else {}),
            **({"predicted": [_predicted(found) for found in self.predictions]} if self.predictions else {}),
            **({"detectable": [detectable(found) for found in self.reach]} if self.reach else {}),
            "verdict": self.verdict,
            "digest": self.digest,
        }

    def golds(self) -> list[dict[str, Any]]:
        """How far each gold set was covered, as plain JSON data; of several pipelines, the one that saw most of it."""
        traced: dict[tuple[str, str], int] = {}
        for series in _whole(self.snapshot):
            key = (series.gold, series.gold_version)
            traced[key] = max(traced.get(key, 0), series.traced)
        return [
            {
                "name": gold.name,
                "version": gold.version,
                "items": gold.items,
                "traced": traced.get((gold.name, gold.version), 0),
                "unscorable": self.unscorable.get(gold.name, 0),
            }
            for gold in self.snapshot.golds
        ]

    def json(self) -> str:
        """The report as indented JSON."""
        text = json.dumps(self.data(), indent=2, ensure_ascii=False, allow_nan=False)
        return printable_json(text)


def _whole(snapshot: Snapshot) -> Iterator[SeriesStats]:
    """The series over the whole run, without slices."""
    return (series for series in snapshot.series if series.window == ALL and not series.slice)


def rounded(value: float | None) -> float | None:
    """A number as reports print it: at most six places."""
    return None if value is None else round(value, 6)


def metric(series: SeriesStats, name: str) -> dict[str, Any]:
    """One metric of a series as plain JSON data: value and bounds over all calls where they are known."""
    stat, found = series.metrics[name], series.estimate(name)
    known = found.value is not None
    return {
        "value": rounded(found.value),
        "lower": rounded(found.lower) if known else None,
        "upper": rounded(found.upper) if known else None,
        "n": stat.n,
        "sum": rounded(stat.sum / stats.MICRO),
        "unassessed": dict(sorted(stat.unassessed.items())),
        **({"estimands": _estimands(series, name)} if name in series.clusters else {}),
        **({"weighted": {"n": found.n, "n_eff": round(found.n_eff, 1)}} if name in series.estimates else {}),
    }


def _estimands(series: SeriesStats, name: str) -> dict[str, dict[str, float | None]]:
    """The intervals of a gold metric by what they are about."""
    return {
        estimand: {"lower": rounded(found.lower), "upper": rounded(found.upper), "n_eff": round(found.n_eff, 1)}
        for estimand, found in bounds(series, name).items()
    }


def _series(series: SeriesStats) -> dict[str, Any]:
    return {
        "pipeline": series.pipeline,
        "source": series.source,
        "gold": series.gold,
        "gold_version": series.gold_version,
        "window": series.window,
        **({"end": series.end} if series.end is not None else {}),
        **({"slice": series.slice} if series.slice else {}),
        **({"of": series.of} if series.of else {}),
        "metrics": {name: metric(series, name) for name in series.metrics},
    }


def gate(outcome: Outcome) -> dict[str, Any]:
    """One gate's outcome as plain JSON data."""
    return {
        "pipeline": outcome.gate.pipeline,
        "gate": outcome.gate.name,
        "metric": outcome.gate.metric,
        "source": outcome.source,
        "gold": outcome.gold,
        "estimand": outcome.estimand,
        **({"of": outcome.of} if outcome.of else {}),
        "threshold": outcome.gate.threshold,
        "direction": outcome.gate.direction,
        "value": rounded(outcome.value),
        "lower": rounded(outcome.lower),
        "upper": rounded(outcome.upper),
        "n": outcome.n,
        "n_eff": None if outcome.n_eff is None else round(outcome.n_eff, 1),
        "needed": outcome.needed,
        "verdict": outcome.verdict,
        "reason": outcome.reason,
    }


def drop(found: Drop) -> dict[str, Any]:
    """One comparison with the baseline as plain JSON data."""
    return {
        "pipeline": found.gate.pipeline,
        "gate": found.gate.name,
        "before": rounded(found.before),
        "after": rounded(found.after),
        "drop": rounded(found.drop),
        "items": found.items,
        "flips": [{"qid": f.qid, "before": rounded(f.before), "after": rounded(f.after)} for f in found.flips],
    }


def detectable(found: Detectability) -> dict[str, Any]:
    """What one gate's alarm finds in what time, as plain JSON data."""
    return {
        "pipeline": found.gate.pipeline,
        "gate": found.gate.name,
        "at": rounded(found.at),
        "observations": None if found.labels is None else round(found.labels),
        "per_minute": None if found.per_minute is None else round(found.per_minute, 3),
        "minutes": None if found.minutes is None else round(found.minutes, 1),
    }


def latency(snapshot: Snapshot, pipeline: str | None = None) -> dict[str, dict[str, float | None]]:
    """Latency quantiles in milliseconds per stage, over the whole run, of one pipeline or of all."""
    merged: dict[str, Counter[int]] = {}
    for series in _whole(snapshot):
        # What matched a gold item or was labelled stands under `live` as well.
        if not series.gold and series.source not in constants.AGAIN and pipeline in (None, series.pipeline):
            for stage, histogram in series.latency.items():
                merged.setdefault(stage, Counter()).update(histogram)
    return {
        stage: {name: _ms(stats.quantile(histogram, q)) for name, q in QUANTILES.items()}
        for stage, histogram in sorted(merged.items())
    }


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _predicted(found: Prediction) -> dict[str, Any]:
    """What labels and a proxy say together, as plain JSON data."""
    told = found.told
    numbers = {name: rounded(getattr(told, name)) for name in ("value", "lower", "upper", "n_eff", "gain")}
    return {"pipeline": found.pipeline, "metric": METRIC, "proxy": found.proxy, "n": told.n, **numbers}


class TracedItem(NamedTuple):
    """A gold item that was traced, in one series."""

    pipeline: str
    source: str
    gold: str
    qid: str


def traced_items(scorer: Scorer) -> Iterator[tuple[TracedItem, Mapping[facts.Key, int]]]:
    """Every gold item that was traced, with the facts seen of it; what people said of an answer is no item of a set."""
    for key, series in scorer.state.series.items():
        if key.audit and not key.slice and key.source != LABEL:
            for table in series.items.all():
                for qid, seen in table.items():
                    yield TracedItem(key.pipeline, key.source, key.gold, qid), seen


def repeated(scorer: Scorer) -> int:
    """How many records repeat a question the same pipeline had answered under the same source."""
    counts: Counter[TracedItem] = Counter()
    for item, seen in traced_items(scorer):
        counts[item] += sum(seen.values())
    return sum(n - 1 for n in counts.values())


def unscorable(scorer: Scorer) -> dict[str, int]:
    """Per gold set, how many traced items never had an answer."""
    answered: dict[tuple[str, str], bool] = {}
    for item, seen in traced_items(scorer):
        has = any(Facts._make(key).flags & (facts.SHIPPED | facts.REFUSED) for key in seen)
        answered[(item.gold, item.qid)] = answered.get((item.gold, item.qid), False) or has
    return dict(Counter(gold for (gold, _), has in answered.items() if not has))


def questions_of(scorer: Scorer) -> list[QuestionReport]:
    """The per-question table, in the order of the gold sets; how often each thing happened to a question."""
    known = ((gold.name, item.qid) for gold in scorer.gold.sets for item in gold)
    places = {key: place for place, key in enumerate(known)}
    times: Counter[tuple[int, QuestionReport]] = Counter()
    for item, seen in traced_items(scorer):
        place = places.get((item.gold, item.qid), len(places))
        for key, n in seen.items():
            times[(place, _question(item, Facts._make(key)))] += n
    ordered = sorted(times.items(), key=lambda entry: (entry[0][0], entry[0][1].pipeline, entry[0][1].label))
    return [replace(question, times=n) for (_, question), n in ordered]


def _question(item: TracedItem, seen: Facts) -> QuestionReport:
    shipped, refused, hit = seen.has(facts.SHIPPED), seen.has(facts.REFUSED), seen.has(facts.HITS)
    if not (shipped or refused):
        label = "NO_ANSWER"
    elif seen.answerable:
        label = "OVER_REFUSAL" if refused else "OK" if hit else "ANS_NO_HIT"
    else:
        label = "REFUSAL_OK" if refused else "HALLUCINATION"
    return QuestionReport(item.qid, shipped, hit, refused, label, pipeline=item.pipeline)
