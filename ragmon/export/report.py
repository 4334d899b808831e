"""The report of a run: metrics, gates, gold items and drops against a baseline, as JSON data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragmon import stats
from ragmon.alarms import Detectability
from ragmon.core import constants
from ragmon.core.constants import LABEL
from ragmon.core.escaping import printable_json
from ragmon.core.policy import Outcome, Verdict
from ragmon.gates.captured import CaptureReport
from ragmon.gates.coverage import match_counts
from ragmon.gates.evaluate import bounds
from ragmon.gates.history import GateHistory, GateKey
from ragmon.gates.releases import Comparison
from ragmon.metrics import facts
from ragmon.metrics.facts import Facts
from ragmon.scoring.cohorts import METRIC, JudgeVersion
from ragmon.scoring.labels import Labelled, Prediction
from ragmon.scoring.score_table import Stat
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot
from ragmon.scoring.windows import item_outcome

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ragmon.export.frames import Rows

QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class QuestionReport:
    """The outcome of one gold question, in the terms of seed 002's report.

    Attributes:
        qid: The id of the question.
        answered: It was answered.
        hit: A gold id was cited.
        refused: It was refused.
        label: OK, REFUSAL_OK, OVER_REFUSAL, HALLUCINATION, ANS_NO_HIT or NO_ANSWER.
        times: How often the question had this outcome.
        pipeline: The pipeline that answered.
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
    """The results of a run.

    Attributes:
        version: The version of ragmon that wrote the report.
        snapshot: The metrics.
        outcomes: The gates.
        verdict: The verdict of the whole run.
        digest: Fingerprint of the counts; equal runs have equal digests.
        read: How many records were read.
        scored: How many of them were scored.
        unmatched: How many of them belong to no gold item.
        duplicate: How many repeat a gold question that the same pipeline had already answered.
        rejected: Lines that were no record, and dropped records, by reason.
        unknown: Records with an unknown field, by `field: reason`.
        unscorable: Items that were traced but had no answer in any trace, by gold set.
        questions: One entry per gold item and outcome.
        drops: Comparisons with a baseline.
        notes: Notes for the reader, one line each.
        reach: What live alarms on the gates would detect, and how soon, where the run has times.
        labelled: Statistics of the labels on the run's answers; None where there are no labels.
        predictions: Estimates from labels and a proxy together.
        judges: The versions of judges whose scores the records have.
        captured: What the records have, by pipeline and source.
        histories: The gates over the time of the records, for charts; empty without times, and where nobody asked.
        gates_of: Where the gates are from: a file, a preset, the policy given; "" where nobody asked.

    Example:
        >>> import ragmon
        >>> ragmon.replay([{"question": "Who sails?", "error": "Timeout", "pipeline": "docs"}])
        <Report insufficient: 0 of 8 gates pass, 8 insufficient; 1 records, 1 scored; gates of the preset default>
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
    drops: Sequence[Comparison] = ()
    notes: Sequence[str] = ()
    reach: Sequence[Detectability] = ()
    labelled: Labelled | None = None
    predictions: Sequence[Prediction] = ()
    judges: Sequence[JudgeVersion] = ()
    captured: Sequence[CaptureReport] = ()
    histories: Mapping[GateKey, GateHistory] = field(default_factory=dict)
    gates_of: str = ""

    def __repr__(self) -> str:
        from ragmon.export.markdown import brief  # noqa: PLC0415 - it renders this class

        return brief(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of the report: the gates with their bars, and the gates over time."""
        from ragmon.export.pages.notebook import fragment  # noqa: PLC0415 - it renders this class

        return fragment(self)

    def metric(
        self, name: str, *, pipeline: str | None = None, source: str | None = None, gold: str | None = None
    ) -> Stat:
        """A metric over the whole run, from the series with most requests; an empty one where no series has it.

        Args:
            name: Its key, such as `recall@5`.
            pipeline: The pipeline; None takes any.
            source: The source; None takes any.
            gold: The gold set of the requests; None takes all requests, or any gold set.
        """
        candidates = [
            series.metrics[name]
            for series in _whole_run(self.snapshot)
            if name in series.metrics
            and pipeline in (None, series.pipeline)
            and source in (None, series.source)
            and gold in (None, series.gold)
        ]
        return max(candidates, key=lambda stat: (stat.n, sum(stat.unassessed.values())), default=Stat())

    def data(self) -> dict[str, Any]:
        """The report as plain JSON data, as `report.schema.json` says."""
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
            "captured": [report.data() for report in self.captured],
            "gates": [gate(outcome) for outcome in self.outcomes],
            **({"matches": match_counts(self.snapshot)} if match_counts(self.snapshot) else {}),
            **({"baseline": [drop(each) for each in self.drops]} if self.drops else {}),
            **({"labels": self.labelled._asdict()} if self.labelled else {}),
            **({"judges": [judge._asdict() for judge in self.judges]} if self.judges else {}),
            **({"predicted": [_predicted(prediction) for prediction in self.predictions]} if self.predictions else {}),
            **({"detectable": [detectable(each) for each in self.reach]} if self.reach else {}),
            "verdict": self.verdict,
            "digest": self.digest,
        }

    def golds(self) -> list[dict[str, Any]]:
        """The coverage of each gold set as plain JSON data; of several pipelines, the highest."""
        traced: dict[tuple[str, str], int] = {}
        for series in _whole_run(self.snapshot):
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

    def to_html(self, questions: int | None = None) -> str:
        """The report as a page in one file, as `ragmon replay --format html` writes it.

        Args:
            questions: Rows of the per-question table; None lists all.
        """
        from ragmon.export.pages.report import report_page  # noqa: PLC0415 - it renders this class

        return report_page(self, questions)

    def to_markdown(self, questions: int | None = None) -> str:
        """The report as Markdown, as `ragmon replay --format md` writes it.

        Args:
            questions: Rows of the per-question table; None lists all.
        """
        from ragmon.export.markdown import render  # noqa: PLC0415 - it renders this class

        return render(self, questions)

    def to_frame(self, what: Rows = "metrics") -> pd.DataFrame:
        """A DataFrame of pandas.

        Args:
            what: What has a row: `metrics` (of each series), `gates`, or `questions` (each gold question and outcome).

        Returns:
            For `metrics` with `value`, `lower`, `upper` (its 95 % interval), `n`, `sum`, and `unassessed`, the number
            of requests that could not be scored; values are shares in [0, 1].

        Raises:
            RagmonError: There is no such `what`, or pandas is not installed.
        """
        from ragmon.export.frames import frame  # noqa: PLC0415 - it renders this class

        return frame(self, what)

    def plot(self, gate: str | None = None, *, ax: Axes | None = None) -> Axes:
        """A plot of matplotlib: all gates with their intervals against their thresholds, or one gate over time.

        Args:
            gate: The name of a gate, or `pipeline/name`; None plots all gates on shares.
            ax: Where to draw; None makes a new figure.

        Raises:
            RagmonError: matplotlib is not installed, there is no such gate, or nothing to draw.
        """
        from ragmon.export.plots import plot  # noqa: PLC0415 - it renders this class

        return plot(self, gate, ax)


def _whole_run(snapshot: Snapshot) -> Iterator[SeriesStats]:
    """The series over the whole run, slices excluded."""
    return (series for series in snapshot.series if series.window == ALL and not series.slice)


def rounded(value: float | None) -> float | None:
    """A number rounded to the six decimal places reports print."""
    return None if value is None else round(value, 6)


def metric(series: SeriesStats, name: str) -> dict[str, Any]:
    """One metric of a series as plain JSON data; value and bounds estimate all calls where their number is known."""
    stat, estimate = series.metrics[name], series.estimate(name)
    has_value = estimate.value is not None
    return {
        "value": rounded(estimate.value),
        "lower": rounded(estimate.lower) if has_value else None,
        "upper": rounded(estimate.upper) if has_value else None,
        "n": stat.n,
        "sum": rounded(stat.sum / stats.MICRO),
        "unassessed": dict(sorted(stat.unassessed.items())),
        **({"estimands": _estimands(series, name)} if name in series.clusters else {}),
        **({"weighted": {"n": estimate.n, "n_eff": round(estimate.n_eff, 1)}} if name in series.estimates else {}),
    }


def _estimands(series: SeriesStats, name: str) -> dict[str, dict[str, float | None]]:
    """The intervals of a gold metric, by estimand."""
    return {
        estimand: {
            "lower": rounded(interval.lower),
            "upper": rounded(interval.upper),
            "n_eff": round(interval.n_eff, 1),
        }
        for estimand, interval in bounds(series, name).items()
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
    """The outcome of one gate as plain JSON data."""
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


def drop(comparison: Comparison) -> dict[str, Any]:
    """One comparison with the baseline as plain JSON data."""
    return {
        "pipeline": comparison.gate.pipeline,
        "gate": comparison.gate.name,
        "before": rounded(comparison.before.value),
        "after": rounded(comparison.after.value),
        "drop": rounded(comparison.drop),
        "items": comparison.items,
        "flips": flips(comparison),
    }


def flips(found: Comparison) -> list[dict[str, Any]]:
    """The gold items whose scores differ as plain JSON data."""
    return [{"qid": f.qid, "before": rounded(f.before), "after": rounded(f.after)} for f in found.flips]


def detectable(detectability: Detectability) -> dict[str, Any]:
    """What the alarm of one gate can detect, and how soon, as plain JSON data."""
    return {
        "pipeline": detectability.gate.pipeline,
        "gate": detectability.gate.name,
        "at": rounded(detectability.at),
        "observations": None if detectability.labels is None else round(detectability.labels),
        "per_minute": None if detectability.per_minute is None else round(detectability.per_minute, 3),
        "minutes": None if detectability.minutes is None else round(detectability.minutes, 1),
    }


def latency(snapshot: Snapshot, pipeline: str | None = None) -> dict[str, dict[str, float | None]]:
    """Latency quantiles in milliseconds per stage over the whole run, of one pipeline or of all."""
    merged: dict[str, Counter[int]] = {}
    for series in _whole_run(snapshot):
        # Requests that matched a gold item or were labelled are counted under `live` as well.
        if not series.gold and series.source not in constants.ALSO_LIVE_SOURCES and pipeline in (None, series.pipeline):
            for stage, histogram in series.latency.items():
                merged.setdefault(stage, Counter()).update(histogram)
    return {
        stage: {name: _ms(stats.quantile(histogram, q)) for name, q in QUANTILES.items()}
        for stage, histogram in sorted(merged.items())
    }


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _predicted(prediction: Prediction) -> dict[str, Any]:
    """An estimate from labels and a proxy as plain JSON data."""
    estimate = prediction.estimate
    numbers = {name: rounded(getattr(estimate, name)) for name in ("value", "lower", "upper", "n_eff", "gain")}
    return {"pipeline": prediction.pipeline, "metric": METRIC, "proxy": prediction.proxy, "n": estimate.n, **numbers}


_KNOWN_KEYS: Final = 16_384
"""Facts whose outcome is cached: many questions have the same few."""


class TracedItem(NamedTuple):
    """A gold item with at least one trace, in one series."""

    pipeline: str
    source: str
    gold: str
    qid: str


def traced_items(scorer: Scorer) -> Iterator[tuple[TracedItem, Mapping[facts.Key, int]]]:
    """Every traced gold item with its counts by facts. Label series are left out: they have no items of a gold set."""
    for key, series in scorer.state.series.items():
        if key.audit and not key.slice and key.source != LABEL:
            for table in series.items():
                for qid, counts in table.items():
                    yield TracedItem(key.pipeline, key.source, key.gold, qid), counts


def repeated(scorer: Scorer) -> int:
    """How many records repeat a question that the same pipeline already answered under the same source."""
    requests, items = 0, set[TracedItem]()
    for item, counts in traced_items(scorer):
        requests += sum(counts.values())
        items.add(item)
    return requests - len(items)


def unscorable(scorer: Scorer) -> dict[str, int]:
    """How many traced items never had an answer, by gold set."""
    answered: dict[tuple[str, str], bool] = {}
    for item, counts in traced_items(scorer):
        question = item.gold, item.qid
        if not answered.get(question):
            answered[question] = any(flags & (facts.SHIPPED | facts.REFUSED) for flags, *_ in counts)
    return dict(Counter(gold for (gold, _), has_answer in answered.items() if not has_answer))


def questions_of(scorer: Scorer) -> list[QuestionReport]:
    """The per-question table in the order of the gold sets, with the number of times each question had each outcome."""
    item_keys = ((gold.name, item.qid) for gold in scorer.gold.sets for item in gold)
    places = {key: place for place, key in enumerate(item_keys)}
    times: dict[tuple[int, str, str], dict[_Outcome, int]] = {}
    for item, counts in traced_items(scorer):
        outcomes = times.setdefault((places.get((item.gold, item.qid), len(places)), item.pipeline, item.qid), {})
        for key, n in counts.items():
            outcome = _outcome(key)
            outcomes[outcome] = outcomes.get(outcome, 0) + n
    return [
        QuestionReport(qid, outcome.answered, outcome.hit, outcome.refused, outcome.label, n, pipeline)
        for (_, pipeline, qid), outcomes in sorted(times.items(), key=itemgetter(0))
        for outcome, n in sorted(outcomes.items())
    ]


class _Outcome(NamedTuple):
    """What a question's row says of its outcome; rows of one question are in this order."""

    label: str
    answered: bool
    hit: bool
    refused: bool


@lru_cache(_KNOWN_KEYS)
def _outcome(key: facts.Key) -> _Outcome:
    observed = Facts._make(key)
    shipped, refused, hit = observed.has(facts.SHIPPED), observed.has(facts.REFUSED), observed.has(facts.HITS)
    return _Outcome(item_outcome(observed), shipped, hit, refused)
