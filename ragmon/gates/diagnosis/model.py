"""The data of a diagnosis: plain numbers, times in seconds since the epoch, shares in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragmon.core.policy import Kind, Verdict

How = Literal["appeared", "carries", "inside", "preceded", "slower"]


@dataclass(frozen=True)
class Level:
    """A mean; its value is None where nothing was scored."""

    n: int
    value: float | None


@dataclass(frozen=True)
class ChangePoint:
    """When the measure became worse.

    Attributes:
        began: The start of the first step after the change; None where there is no significant change.
        earliest, latest: The interval that holds the change: the cuts that are nearly as likely.
        p: An upper bound on the probability of so much evidence without a change, over all compared cuts together.
        evidence: The logarithm of the likelihood ratio of two means against one.
        places: How many cuts were compared.
        reason: Why `began` is None; "" where it is not.
    """

    began: float | None
    earliest: float | None
    latest: float | None
    p: float
    evidence: float
    places: int
    reason: str


@dataclass(frozen=True)
class Side:
    """The requests before or after the change.

    Attributes:
        begin, end: The start of the first step with a record, and the end of the last one.
        value, lower, upper: The measure with its 95 % interval; None without data.
        n: Requests in its denominator.
        of: What the interval counts: `requests`, `gold items`, or `all calls` where strata are weighted.
        records: Audit members. Each is passed, failed, unassessed or outside, unless scores are kept as sums only.
        scored: Audit members with a score.
        passed, failed: Those whose own score keeps or breaks the gate; None where scores are kept as sums only.
        unassessed: Those that belong in the denominator but could not be scored, by reason.
        outside: Those that do not belong in the denominator.
        per_minute: Requests per minute; all calls where they are counted, else records.
    """

    begin: float
    end: float
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    of: str
    records: int
    scored: int
    passed: int | None
    failed: int | None
    unassessed: dict[str, int]
    outside: int
    per_minute: float


@dataclass(frozen=True)
class Moved:
    """The change of a trait's share, or of a metric.

    Attributes:
        name: The trait or the metric.
        before, after: Its levels before and after.
        by: The change in standard errors; positive if it rose.
        failing: For a trait, its share among the failing requests after the change.
    """

    name: str
    before: Level
    after: Level
    by: float
    failing: Level | None = None


@dataclass(frozen=True)
class Times:
    """The latency of a stage, in milliseconds."""

    n: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class Stage:
    """The latency of a stage before and after the change."""

    name: str
    before: Times
    after: Times


@dataclass(frozen=True)
class Part:
    """The requests of one build, index, model, slice, gold version or stratum.

    Attributes:
        name: The part's name; "" where none was recorded.
        before, after: The level of the measure in it.
        records_before, records_after: Audit members.
        first_seen: The start of the first step with a record of it, for builds and indexes in any source of the
            pipeline; None where it is older than the rows kept by time.
    """

    name: str
    before: Level
    after: Level
    records_before: int
    records_after: int
    first_seen: float | None


@dataclass(frozen=True)
class Split:
    """All parts by one property; the parts by a tag need not cover every request."""

    dimension: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Suspect:
    """A part that separates good requests from bad ones, or a stage that became slower.

    Attributes:
        dimension: `gold_version`, `build`, `index_hash`, `build and index_hash`, `model`, a tag, or `stage`.
        name: The name of the part or stage.
        how: `appeared`: it was new when the change began. `carries`: its requests are worse at any time, and its share
            grew. `inside`: the change is in it and not in the rest. `preceded`: it was new before the change and holds
            most of the requests after it. `slower`: it takes longer than before.
        evidence: The logarithm of a likelihood ratio.
        p: An upper bound on the probability of so much evidence by chance, over all compared parts together.
        before, after: The level of the measure in it.
        rest_before, rest_after: The level of the measure in all other requests.
        share_before, share_after: Its share of the requests.
        first_seen: As in `Part`.
    """

    dimension: str
    name: str
    how: How
    evidence: float
    p: float
    before: Level
    after: Level
    rest_before: Level
    rest_after: Level
    share_before: float
    share_after: float
    first_seen: float | None


@dataclass(frozen=True)
class GateState:
    """A gate, what it reads, and its outcome in its own window.

    Attributes:
        pipeline, name, metric, source, gold, slice: The gate, and the series it reads.
        kind, direction, threshold: The condition of the gate.
        verdict, reason, value, lower, upper, n: Its outcome.
        alarm: What its alarm compares and what it has seen, in a sentence; "" where the gate says all.
        derived: It is no gate: an alarm that compares a metric with its own past.
    """

    pipeline: str
    name: str
    metric: str
    source: str
    gold: str
    slice: str
    kind: Kind
    direction: Literal["at_least", "at_most"]
    threshold: float
    verdict: Verdict
    reason: str
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    alarm: str = ""
    derived: bool = False


@dataclass(frozen=True)
class Why:
    """The diagnosis of a gate, as far as counts can tell.

    Attributes:
        gate: The gate and its outcome.
        firing: Since when its alarm fires; None while it does not fire.
        now: The time of the diagnosis, seconds since the epoch.
        begin, end: The time range around the change; on each side of the change nothing else became worse or better.
        measure: The measure followed in it: the metric, `within 512 ms`, `index_hash 9f3c`.
        change: When the measure became worse.
        before: The requests before the change; None without a change.
        after: The requests after the change; all requests without a change.
        mechanism: The first trait, in the order of the pipeline, that explains the change; "" where none does.
        traits: Traits of requests, largest change first.
        metrics: The other metrics of the same requests, largest change first.
        stages: The latency of every stage.
        splits: The requests by build, index, gold version, model, tag and stratum.
        suspects: Parts and stages that separate good requests from bad ones, best first.
        notes: Notes for the reader, one line each.
    """

    gate: GateState
    firing: float | None
    now: float
    begin: float
    end: float
    measure: str
    change: ChangePoint
    before: Side | None
    after: Side
    mechanism: str
    traits: tuple[Moved, ...]
    metrics: tuple[Moved, ...]
    stages: tuple[Stage, ...]
    splits: tuple[Split, ...]
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]
