"""The capture report: which fields the records of a pipeline have, the gaps, and the one setting that mends each.

Counts come from `ragmon.scoring.captured`. A live report is of the newest minutes that hold enough records, so that it
changes soon after a setting was mended; that of a replay is of the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from ragmon.core.constants import DOCTOR_PIPELINE, LIVE, MATCH
from ragmon.core.policy import Gate, Outcome
from ragmon.gates.needs import (
    ANSWER,
    BUILD,
    CITATIONS,
    CONTEXTS,
    FIELDS,
    GOLD,
    GOLD_IDS,
    IDS,
    LATENCY,
    QUESTION,
    SESSION,
    needs,
)
from ragmon.gates.remedies import FILE, NOT_DECORATED, Gap, remedy, sentence
from ragmon.ingest.gold import Items
from ragmon.metrics.base import Metric
from ragmon.scoring import captured as lacks
from ragmon.scoring.buckets import State
from ragmon.scoring.captured import FIRST, CapturedBucket, CapturedSeries, shortened

ENOUGH: Final = 50
"""Records that a live report is of, at least, where there are so many."""
FEW: Final = 0.05
"""Share of missing values that is no gap: one record of twenty."""
NAMED: Final = 5
"""Gates that a sentence names."""
HALF: Final = 0.5
"""Share of missing values above which no verdict is possible, whatever the other values are."""


@dataclass(frozen=True)
class FieldShare:
    """How many records have a field.

    Attributes:
        present: Records that have it.
        of: Records that could have it: an error has no answer, a refusal no citations.
        withheld: Further records where the application has it and a setting of ragmon keeps it there.
    """

    present: int
    of: int
    withheld: int = 0

    @property
    def ratio(self) -> float | None:
        """The share that has it; None where no record could."""
        return self.present / self.of if self.of else None


@dataclass(frozen=True)
class CaptureGap:
    """A field that records lack, and what would mend it.

    Attributes:
        field: The field.
        missing, of: How many records lack it, of how many that could have it.
        finding: The gap in one sentence.
        remedy: The setting that mends it.
        gates: The gates of the pipeline that need the field.
        blocked: Those of them that cannot be judged for it.
    """

    field: str
    missing: int
    of: int
    finding: str
    remedy: str
    gates: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The finding, and the gates that cannot be judged for it."""
        named = ", ".join(self.blocked[:NAMED]) + (f" and {n} more" if (n := len(self.blocked) - NAMED) > 0 else "")
        return f"{self.finding}; cannot be judged: {named}" if named else self.finding


@dataclass(frozen=True)
class CaptureReport:
    """What was captured of one pipeline and source.

    Attributes:
        pipeline, source: The pipeline and the source.
        records: Records that the report is of.
        since: The start of the first minute it is of, seconds since the epoch; None for a whole run.
        fields: The share of records with each field.
        gaps: The gaps, the worst first.
    """

    pipeline: str
    source: str
    records: int
    since: float | None
    fields: dict[str, FieldShare]
    gaps: tuple[CaptureGap, ...] = ()

    @property
    def worst(self) -> CaptureGap | None:
        """The worst gap that a gate suffers from; None where no gate does."""
        return next((gap for gap in self.gaps if gap.gates), None)

    def data(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        return asdict(self)


class GoldOf(NamedTuple):
    """What a report asks of gold and metrics.

    Attributes:
        items: The gold items of a pipeline and source.
        metrics: The metrics by key.
    """

    items: Callable[[str, str], Items]
    metrics: Mapping[str, Metric]


def capture_reports(
    state: State,
    gold: GoldOf,
    gates: Callable[[str], Sequence[Gate]],
    outcomes: Iterable[Outcome] = (),
    *,
    whole: bool = False,
    only: tuple[str, str] | None = None,
) -> list[CaptureReport]:
    """The report of every pipeline and source that has records, without the trial records of `ragmon doctor`.

    Args:
        state: The counts.
        gold: Gold items and metrics.
        gates: The gates of a pipeline.
        outcomes: Their outcomes, where they were judged.
        whole: Report everything that was counted instead of the newest records.
        only: The pipeline and source to report; None for all.
    """
    judged = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in outcomes}
    reports = []
    for (pipeline, source), series in state.captured:
        if pipeline != DOCTOR_PIPELINE and only in (None, (pipeline, source)):
            items = gold.items(pipeline, source)
            reader = _Reader(pipeline, source, series, items, whole=whole)
            needed = [(gate, judged.get((pipeline, gate.name)), _needs(gate, gold.metrics)) for gate in gates(pipeline)]
            reports.append(reader.report(needed))
    return reports


Needed = tuple[Gate, Outcome | None, frozenset[str]]
"""A gate, its outcome, and the fields it needs."""


def _needs(gate: Gate, metrics: Mapping[str, Metric]) -> frozenset[str]:
    if gate.kind == "quantile_ratio":
        return frozenset({LATENCY})
    metric = metrics.get(gate.metric)
    return frozenset() if metric is None else needs(metric)


class _Reader:
    """Reads the counts of one pipeline and source.

    Args:
        pipeline, source: The pipeline and the source.
        series: The counts.
        items: Its gold items.
        whole: Read everything instead of the newest records.
    """

    def __init__(self, pipeline: str, source: str, series: CapturedSeries, items: Items, *, whole: bool) -> None:
        self._pipeline, self._source, self._items, self._whole = pipeline, source, items, whole
        self._since: float | None = None
        if whole:
            self._counts = self._compared = series.whole()
        else:
            self._counts, self._since = series.latest(ENOUGH, lambda bucket: bucket.records)
            # Few questions of users match gold: records to compare are gathered from a longer time.
            self._compared, _ = series.latest(FIRST, lambda bucket: bucket.compared)

    def report(self, gates: Sequence[Needed]) -> CaptureReport:
        """The report, given the gates of the pipeline."""
        shares = {name: share for name in FIELDS if (share := self._share(name)).of or share.withheld}
        gaps = tuple(self._gaps(shares, gates)) if self._counts.records >= FIRST else ()
        # First what stops most gates; of these what comes first in a request: what follows may be mended with it.
        gaps = tuple(sorted(gaps, key=lambda gap: (-len(gap.blocked), not gap.gates)))
        return CaptureReport(self._pipeline, self._source, self._counts.records, self._since, shares, gaps)

    def _share(self, name: str) -> FieldShare:
        """How many records have a field."""
        counts = self._compared if name == GOLD_IDS else self._counts
        if name == GOLD_IDS:
            present = counts.count(lambda mask: bool(mask & lacks.IN_GOLD))
            return FieldShare(present, counts.compared)
        if name == GOLD and not self._items.by_qid:
            return FieldShare(0, 0)
        lacking, withheld, beside = _BITS[name]
        could = [(mask, n) for mask, n in counts.masks.items() if not mask & beside]
        kept_back = sum(n for mask, n in could if mask & withheld)
        of = sum(n for _, n in could) - kept_back
        return FieldShare(sum(n for mask, n in could if not mask & lacking), of, kept_back)

    def _gaps(self, shares: Mapping[str, FieldShare], gates: Sequence[Needed]) -> Iterator[CaptureGap]:
        for name, share in shares.items():
            missing = share.of - share.present
            if _is_gap(name, share):
                needing = [
                    (gate, outcome)
                    for gate, outcome, needed in gates
                    if name in needed and self._is_judged_here(gate, outcome)
                ]
                names = tuple(gate.name for gate, _ in needing)
                blocked = tuple(gate.name for gate, outcome in needing if _is_blocked(name, share, outcome))
                gap = self._gap(name, share)
                yield CaptureGap(name, missing, share.of, sentence(gap), remedy(gap), names, blocked)
        refusals = self._counts.count(lambda mask: bool(mask & lacks.UNCOUNTED_REFUSAL))
        answers = self._counts.count(lambda mask: not mask & lacks.NO_ANSWER)
        if refusals > FEW * answers:
            gap = self._gap(REFUSALS, FieldShare(answers - refusals, answers))
            needing_refusals = tuple(gate.name for gate, _, needed in gates if ANSWER in needed)
            yield CaptureGap(REFUSALS, refusals, answers, sentence(gap), remedy(gap), needing_refusals)

    def _is_judged_here(self, gate: Gate, outcome: Outcome | None) -> bool:
        """Whether a gate is judged on this source; one without data may come to be."""
        source = gate.source if outcome is None or not outcome.n else outcome.source
        return source in (None, self._source) or (source == MATCH and self._source == LIVE)

    def _gap(self, name: str, share: FieldShare) -> Gap:
        """A gap as its texts need it."""
        compared = name == GOLD_IDS
        bucket = self._compared if compared else self._counts
        return Gap(
            field=name,
            missing=share.of - share.present,
            of=share.of,
            origin=self._origin(bucket),
            ids=bucket.ids,
            examples=tuple(map(shortened, bucket.examples)),
            gold_examples=tuple(map(shortened, sorted(self._items.ids)[:2])) if compared else (),
            other_ids=_best(bucket),
        )

    def _origin(self, bucket: CapturedBucket) -> str:
        """Where most records come from: "" for decorated calls, an instrumentation, a file, or unknown spans."""
        from_elsewhere = bucket.count(lambda mask: bool(mask & lacks.NOT_DECORATED))
        if 2 * from_elsewhere < bucket.records:
            return ""
        if bucket.hidden_by:
            return max(bucket.hidden_by.items(), key=lambda entry: (entry[1], entry[0]))[0]
        return FILE if self._whole else NOT_DECORATED


REFUSALS: Final = "refusal"
"""The gap of answers that sound like refusals and count as answers."""
_UNFINISHED: Final = lacks.UNFINISHED
_BITS: Final[Mapping[str, tuple[int, int, int]]] = {
    QUESTION: (lacks.NO_QUESTION, lacks.WITHHELD_QUESTION, 0),
    ANSWER: (lacks.NO_ANSWER, lacks.WITHHELD_ANSWER, _UNFINISHED),
    IDS: (lacks.NO_IDS, 0, _UNFINISHED),
    CONTEXTS: (lacks.NO_CONTEXTS, lacks.WITHHELD_CONTEXTS, _UNFINISHED),
    CITATIONS: (lacks.NO_CITATIONS, 0, _UNFINISHED | lacks.NOT_SHIPPED),
    GOLD: (lacks.NO_GOLD, 0, lacks.NO_QUESTION),
    SESSION: (lacks.NO_SESSION, 0, _UNFINISHED),
    BUILD: (lacks.NO_BUILD, 0, 0),
    LATENCY: (lacks.NO_LATENCY, 0, 0),
}
"""The bits of records that lack a field, where it was withheld, and where there can be none."""


def _is_gap(name: str, share: FieldShare) -> bool:
    """Whether so many records lack a field that it is worth a word."""
    if name in (GOLD, GOLD_IDS):  # most questions of users are in no gold set, and searches fail
        return share.present == 0 and share.of >= FIRST
    return share.of - share.present > FEW * share.of


def _is_blocked(name: str, share: FieldShare, outcome: Outcome | None) -> bool:
    """Whether a gate that needs a field cannot be judged for want of it."""
    if name == CITATIONS and not share.present:
        return False  # this pipeline never cites: the gate does not apply to it
    is_most = share.of - share.present > HALF * share.of
    undecided = outcome is not None and outcome.verdict == "insufficient" and outcome.n >= outcome.gate.min_samples
    return is_most or undecided


def _best(bucket: CapturedBucket) -> tuple[str, float] | None:
    """The path whose values fit gold best, and the share that does; None where none fits."""
    shares = {path: count.fitting / count.documents for path, count in bucket.candidates.items() if count.fitting}
    return max(shares.items(), key=lambda entry: (entry[1], entry[0]), default=None)
