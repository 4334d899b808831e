"""One moment of a running monitor: metrics, verdicts and the monitor's own books, for whoever exports them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragmon.alarms import AlarmState
from ragmon.core.policy import Outcome
from ragmon.scoring.calls import Exemplar
from ragmon.scoring.predictions import Prediction
from ragmon.scoring.snapshot import Snapshot


@dataclass(frozen=True)
class StageCounters:
    """What one stage received and what became of it.

    Attributes:
        received: Records that came in.
        scored: Records that were counted.
        ignored: Records that are not RAG, by reason.
        dropped: Records lost, by reason.
        duplicate: Records that were there already.
        pending: Records that wait.
    """

    received: int = 0
    scored: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    duplicate: int = 0
    pending: int = 0

    @property
    def residual(self) -> int:
        """Records nobody can account for; anything but 0 is a bug in ragmon."""
        lost = sum(self.ignored.values()) + sum(self.dropped.values())
        return self.received - self.scored - lost - self.duplicate - self.pending


@dataclass(frozen=True)
class SdkStats:
    """What capture counted in this process.

    Attributes:
        books: What it took in and what became of it.
        calls: All calls, sampled or not, by pipeline, source and stratum.
        latency: How long they took, in log buckets of milliseconds, by pipeline and source; empty where nobody timed.
        errors: Calls of users that ended in an error, by pipeline and kind.
        orphans: What was said outside a traced call.
        withheld: Records that went without their text because a redactor failed.
        spans: Spans of the application's tracer that belong to no record, by reason.
        labels: Labels that were lost on their way, by reason.
        judged: What became of requests that judges were to look at, by judge and result.
    """

    books: StageCounters = field(default_factory=StageCounters)
    calls: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    latency: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    orphans: int = 0
    withheld: int = 0
    spans: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def pipelines(self) -> set[str]:
        """Whose calls were counted."""
        return {key[0] for part in (self.calls, self.latency, self.errors) for key in part}

    def of(self, pipelines: Collection[str]) -> SdkStats:
        """What was counted, with the calls of some pipelines alone."""
        return replace(
            self,
            calls={key: n for key, n in self.calls.items() if key[0] in pipelines},
            latency={key: held for key, held in self.latency.items() if key[0] in pipelines},
            errors={key: n for key, n in self.errors.items() if key[0] in pipelines},
        )


@dataclass(frozen=True)
class ServerStats:
    """How a server fares.

    Attributes:
        refused: Requests that were turned away, by reason.
        size: Bytes its journal takes.
        trouble: Why nothing can be written; "" where it can.
        resets: How often a damaged journal was set aside.
        jumps: How often the system's clock jumped.
        reloaded: The configuration on disk is the one in force.
        missing: Records that producers sent and that have not come.
        lost: Records that producers lost and know of, by reason.
        unknown: How often a field is unknown because spans do not tell it, by field and reason.
        probes: Gold questions that were due, by probe and what became of them.
        probed: Applications' own records of probes, by what became of them.
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


@dataclass(frozen=True)
class MonitorSnapshot:
    """Everything an exporter shows.

    Attributes:
        snapshot: The metrics, in every window and over all time.
        outcomes: The gates.
        books: By stage.
        captured: What capture counted; empty where records come from elsewhere.
        retrieved: How many records retrieved how many documents, by pipeline and source.
        builds: `(pipeline, build, index_hash)` seen last.
        exemplars: The newest trace that can be opened, by pipeline and source.
        last_scored: When a record was scored last, seconds since the epoch; None before the first.
        alarms: Every alarm, firing or not.
        served: How the server fares; None where there is none.
        labels: What became of labels.
        labels_waiting: Labels that wait for their answers.
        predictions: What labels and proxies say together.
        overflow: How often a name came that is not kept apart from others, by kind.
    """

    snapshot: Snapshot
    outcomes: Sequence[Outcome] = ()
    books: Mapping[str, StageCounters] = field(default_factory=dict)
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
    overflow: Mapping[str, int] = field(default_factory=dict)
