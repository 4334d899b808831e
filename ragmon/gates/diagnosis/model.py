"""What an explanation consists of: plain numbers, times in seconds since the epoch, shares in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ragmon.core.errors import RagmonError
from ragmon.core.policy import Kind, Verdict

How = Literal["appeared", "carries", "inside", "preceded", "slower"]


@dataclass(frozen=True)
class Level:
    """A mean; its value is None where nothing was scored."""

    n: int
    value: float | None


@dataclass(frozen=True)
class ChangePoint:
    """When it became worse.

    Attributes:
        began: The start of the first step after the change; None where nothing changed that is more than chance.
        earliest, latest: The change lies between these: cuts that are nearly as likely.
        p: At most this is the chance of so clear a cut where nothing changed, all places looked at taken together.
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
    """The requests before the change, or after it.

    Attributes:
        begin, end: From the first step with a record to the end of the last one.
        value, lower, upper: The measure with its 95 % interval; None without data.
        n: Requests in its denominator.
        of: What the interval is for: `requests`, `gold items`, or `all calls` where strata are weighted.
        records: Audit members; each is passed, failed, unassessed or outside, or its score is not known one by one.
        scored: Those in the denominator.
        passed, failed: Those whose own score keeps or breaks the gate; None where scores are kept as sums alone.
        unassessed: Those that belong in the denominator and could not be scored, by reason.
        outside: Those that do not belong in it.
        per_minute: Requests a minute; all calls where they are counted, else records.
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
    """A share or a metric before and after.

    Attributes:
        name: What it is.
        before, after: Its levels.
        by: How far it moved, in standard errors; above 0: it rose.
        failing: Of a trait, its share among the failing requests after the change.
    """

    name: str
    before: Level
    after: Level
    by: float
    failing: Level | None = None


@dataclass(frozen=True)
class Times:
    """How long a stage took, in milliseconds."""

    n: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class Stage:
    """A stage before and after."""

    name: str
    before: Times
    after: Times


@dataclass(frozen=True)
class Part:
    """The requests of one build, index, slice, gold version or stratum.

    Attributes:
        name: Which; "" where none was recorded.
        before, after: The measure in it.
        records_before, records_after: Audit members.
        first_seen: The start of the first step that has a record of it, in any source of the pipeline for builds and
            indexes; None where it is older than what is kept by time.
    """

    name: str
    before: Level
    after: Level
    records_before: int
    records_after: int
    first_seen: float | None


@dataclass(frozen=True)
class Split:
    """All parts by one property; those of a tag need not hold every request."""

    dimension: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Suspect:
    """A part that separates good from bad, or a stage that became slower.

    Attributes:
        dimension: `gold_version`, `build`, `index_hash`, `build and index_hash`, a tag, or `stage`.
        name: Which part or stage.
        how: `appeared`: it was new when the change began. `carries`: what it holds is bad, at any time, and its share
            grew. `inside`: the change is in it and not in the rest. `preceded`: it was new before the change and holds
            most of what came after. `slower`: it takes longer than before.
        evidence: The logarithm of a likelihood ratio.
        p: At most this is the chance of so much, all parts that were compared taken together.
        before, after: The measure in it.
        rest_before, rest_after: The measure in all other requests.
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
class Standing:
    """A gate, what it reads, and how it stands in its own window.

    Attributes:
        pipeline, name, metric, source, gold, slice: Which gate, and what it reads.
        kind, direction, threshold: What it asks for.
        verdict, reason, value, lower, upper, n: What it was judged to be.
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


@dataclass(frozen=True)
class Why:
    """What broke, as far as counts can tell.

    Attributes:
        gate: How the gate stands.
        firing: Since when its alarm fires; None while it is silent.
        now: When it was asked, seconds since the epoch.
        begin, end: The stretch of time around the change: before it and after it nothing else became worse or better.
        measure: What was followed in it: the metric, `within 512 ms`, `index_hash 9f3c`.
        change: When it became worse.
        before: What was before the change; None without one.
        after: What came after it; without a change, everything.
        mechanism: The first trait, in the order of the pipeline, that accounts for the change; "" where none does.
        traits: What requests have in common, those that moved most first.
        metrics: The other metrics of the same requests, those that moved most first.
        stages: How long they took.
        splits: The requests by build, index, gold version, tag and stratum.
        suspects: What separates good from bad, best first.
        notes: What a reader should know, one line each.
    """

    gate: Standing
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


def plain(why: Why) -> dict[str, Any]:
    """An explanation as plain JSON data."""
    found: dict[str, Any] = msgspec.to_builtins(why)
    return found


def load(data: Any) -> Why:
    """The explanation `plain` wrote.

    Args:
        data: Plain JSON data; fields that are not known are passed over.

    Raises:
        RagmonError: It is none.
    """
    try:
        return msgspec.convert(data, Why)
    except msgspec.ValidationError as error:
        raise RagmonError(
            f"this is no explanation of a gate: {error}", hint="is the monitor of this version?"
        ) from error
