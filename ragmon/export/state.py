"""Snapshots of a running monitor for exporters: metrics, gate outcomes, alarms and the monitor's own counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import add, sub
from typing import Any, TypeVar

from ragmon.alarms.pipelines import AcknowledgedAlarm, AlarmState
from ragmon.core.policy import Outcome
from ragmon.gates.coverage import CaptureReport
from ragmon.scoring.cohorts import JudgeVersion
from ragmon.scoring.labels import Prediction
from ragmon.scoring.snapshot import Exemplar, Snapshot


@dataclass(frozen=True)
class StageCounters:
    """The record counters of one processing stage.

    Attributes:
        received: Records that came in.
        scored: Records that were scored.
        ignored: Records that are not RAG, by reason.
        dropped: Records lost, by reason.
        duplicate: Records that had been received before.
        pending: Records that wait to be processed.
    """

    received: int = 0
    scored: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    duplicate: int = 0
    pending: int = 0

    @property
    def residual(self) -> int:
        """Received records minus all other counters; anything but 0 is a bug in ragmon."""
        lost = sum(self.ignored.values()) + sum(self.dropped.values())
        return self.received - self.scored - lost - self.duplicate - self.pending

    def plus(self, other: StageCounters) -> StageCounters:
        """The sum of both."""
        return _combined(self, other, add)

    def minus(self, other: StageCounters) -> StageCounters:
        """What was counted since other counters; what was pending then is received since."""
        since = _combined(self, replace(other, received=other.received - other.pending), sub)
        return replace(since, pending=self.pending)


@dataclass(frozen=True)
class SdkStats:
    """The statistics of capture in this process.

    Attributes:
        counters: The record counters of capture.
        calls: All calls, sampled or not, by pipeline, source and stratum.
        latency: Latency histograms: log buckets of milliseconds, by pipeline and source; empty where nothing was timed.
        errors: User calls that ended in an error, by pipeline and kind.
        orphans: Values that were recorded outside a traced call.
        unread: Fields of calls that could not be read, by field and reason.
        withheld: Records exported without text because a redactor failed.
        spans: Spans of the application's tracer that belong to no record, by reason.
        labels: Labels that were lost before they were stored, by reason.
        judged: Requests selected for judges, by judge and result.
        scopes: Requests whose convention is not known, by the name of their instrumentation.
        tools: Requests without a retrieval, by the names of the tools called in them.
    """

    counters: StageCounters = field(default_factory=StageCounters)
    calls: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    latency: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    orphans: int = 0
    unread: Mapping[tuple[str, str], int] = field(default_factory=dict)
    withheld: int = 0
    spans: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[tuple[str, str], int] = field(default_factory=dict)
    scopes: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, int] = field(default_factory=dict)

    @property
    def pipelines(self) -> set[str]:
        """The pipelines whose calls were counted."""
        return {key[0] for part in (self.calls, self.latency, self.errors) for key in part}

    def plus(self, other: SdkStats) -> SdkStats:
        """The sum of both."""
        return _combined(self, other, add)

    def minus(self, other: SdkStats) -> SdkStats:
        """What was counted since other statistics of the same process."""
        return replace(_combined(self, other, sub), counters=self.counters.minus(other.counters))

    def of(self, pipelines: Collection[str]) -> SdkStats:
        """The same statistics with the calls of some pipelines only."""
        return replace(
            self,
            calls={key: n for key, n in self.calls.items() if key[0] in pipelines},
            latency={key: histogram for key, histogram in self.latency.items() if key[0] in pipelines},
            errors={key: n for key, n in self.errors.items() if key[0] in pipelines},
        )


Counts = TypeVar("Counts", "StageCounters", "SdkStats")


def _combined(one: Counts, other: Counts, combine: Callable[[int, int], int]) -> Counts:
    """Two sets of counts, combined number by number."""
    parts = {part.name: _each(getattr(one, part.name), getattr(other, part.name), combine) for part in fields(one)}
    return replace(one, **parts)


def _each(one: Any, other: Any, combine: Callable[[int, int], int]) -> Any:
    """Two numbers, mappings of numbers or data classes of them, combined number by number; zeros are left out."""
    if isinstance(one, int):
        return combine(one, other)
    if isinstance(one, Mapping):
        values = [*one.values(), *other.values()]
        nothing: Any = 0 if all(isinstance(value, int) for value in values) else Counter()
        pairs = {key: _each(one.get(key, nothing), other.get(key, nothing), combine) for key in {**one, **other}}
        return {key: value for key, value in pairs.items() if value}
    return _combined(one, other, combine)


@dataclass(frozen=True)
class StreamStats:
    """How far the partitions of a log were added up.

    Attributes:
        watermark: Until when all of them have spoken, seconds since the epoch; alarms are judged up to here.
        behind: By partition, how many seconds ago it spoke last.
        chunks: Chunks by what became of them.
        lost: Messages that nobody counted, because the log had deleted them.
        configs: By how many configurations the last chunks were counted.
    """

    watermark: float
    behind: Mapping[str, float]
    chunks: Mapping[str, int]
    lost: int
    configs: int


@dataclass(frozen=True)
class ServerStats:
    """The statistics of a server.

    Attributes:
        refused: Requests that were rejected, by reason.
        size: Bytes of the journal.
        trouble: Why the journal cannot be written; "" where it can.
        resets: How often a damaged journal was quarantined.
        jumps: How often the system's clock jumped.
        reloaded: Whether the configuration in force is the one on disk.
        missing: Records that producers sent and the server has not received.
        lost: Records that producers report as lost, by reason.
        unknown: How often spans do not carry a field, by field and reason.
        probes: Gold questions that were due, by probe and result.
        probed: Applications' own records of probes, by result.
        scopes: Requests whose convention is not known, by the name of their instrumentation.
        tools: Requests without a retrieval, by the names of the tools called in them.
        stream: How far the partitions of a log were added up; None where the server counts itself.
    """

    refused: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    trouble: str = ""
    resets: int = 0
    jumps: int = 0
    reloaded: bool = True
    missing: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)
    probes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    probed: Mapping[str, int] = field(default_factory=dict)
    scopes: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, int] = field(default_factory=dict)
    stream: StreamStats | None = None


@dataclass(frozen=True)
class MonitorSnapshot:
    """Everything an exporter needs, at one moment.

    Attributes:
        snapshot: The metrics, in every window and over all time.
        outcomes: The outcomes of the gates.
        stages: The record counters by stage.
        captured: The statistics of capture; empty where records come from elsewhere.
        retrieved: How many records retrieved how many documents, by pipeline and source.
        builds: The `(pipeline, build, index_hash)` that were seen last.
        exemplars: The newest trace that can be opened, by pipeline and source.
        last_scored: When the last record was scored, seconds since the epoch; None before the first.
        alarms: The state of every alarm, firing or not.
        served: The statistics of the server; None where there is none.
        labels: Received labels, by result.
        labels_waiting: Labels that wait for the record they rate.
        predictions: Estimates from labels and a proxy together.
        judges: The versions of judges whose scores came in the last day.
        overflow: How often a name was counted as `__other__` because of a cardinality limit, by kind.
        reloaded: Whether the configuration in force is the one on disk, where there is no server.
        capture: What was captured of each pipeline and source.
        acknowledged: The last acknowledgement of each alarm, the newest first.
    """

    snapshot: Snapshot
    outcomes: Sequence[Outcome] = ()
    stages: Mapping[str, StageCounters] = field(default_factory=dict)
    captured: SdkStats = field(default_factory=SdkStats)
    retrieved: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    builds: Sequence[tuple[str, str, str]] = ()
    exemplars: Mapping[tuple[str, str], Exemplar] = field(default_factory=dict)
    last_scored: float | None = None
    alarms: Sequence[AlarmState] = ()
    served: ServerStats | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    labels_waiting: int = 0
    predictions: Sequence[Prediction] = ()
    judges: Sequence[JudgeVersion] = ()
    overflow: Mapping[str, int] = field(default_factory=dict)
    reloaded: bool = True
    capture: Sequence[CaptureReport] = ()
    acknowledged: Sequence[AcknowledgedAlarm] = ()
