"""Cases of the alerts on ragmon itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ragmon.alerting import counted, recording
from ragmon.alerting.cases.case import TARGET, Case, scraped
from ragmon.alerting.promql import exact
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.series_names import label

_UP: Final = {scraped("up"): "1x600"}
_HERE: Final = {"stage": "ingest"}
_INSTANCE: Final = {"instance": TARGET["instance"]}


def cases(settings: Settings) -> list[Case]:
    """What makes ragmon blind, lossy or wrong."""
    pipeline = next(iter(settings.pipelines))
    return [
        *_down(),
        *_no_data(pipeline),
        *_stale(),
        *_books(),
        *_dropped(),
        *_flags(),
        *_names(),
        *_rules(settings),
        Case("RagmonWatchdog", "always", {}, "1m", [{"severity": "none"}]),
    ]


def _ticket(**labels: str) -> list[Mapping[str, str]]:
    return [{"severity": "ticket", **labels}]


def _down() -> Iterator[Case]:
    page = [{"severity": "page"}]
    yield Case("RagmonDown", "it cannot be reached", {scraped("up"): "1x5 0x20"}, "15m", page)
    yield Case("RagmonDown", "Prometheus does not know it", {}, "10m", page)
    yield Case("RagmonDown", "it was restarted", {scraped("up"): "1x5 0x2 1x20"}, "9m")
    other = {scraped("up"): "0x20", scraped("up", {"instance": "ragmon-2:9464", "job": "ragmon"}): "1x20"}
    yield Case("RagmonDown", "one of two replicas is there", other, "15m")
    yield Case("RagmonReplicaDown", "one of two replicas is there", other, "15m", _ticket(**TARGET))
    yield Case("RagmonReplicaDown", "it was restarted", {scraped("up"): "1x5 0x6 1x20"}, "15m")


def _no_data(pipeline: str) -> Iterator[Case]:
    here = {"pipeline": label(pipeline)}
    calls = scraped(f"{series_names.LATENCY}_count", **here, source=constants.LIVE)
    yield Case("RagmonNoData", "nobody asks", {**_UP, calls: "7x200"}, "120m", _ticket(**here), here)
    yield Case("RagmonNoData", "nobody ever asked", _UP, "120m", _ticket(**here), here)
    yield Case("RagmonNoData", "now and then somebody asks", {**_UP, calls: "0x40 1x40 2x40 3x80"}, "150m", among=here)
    yield Case("RagmonNoData", "ragmon is down, which is another alert", {calls: "7x200"}, "120m", among=here)


def _stale() -> Iterator[Case]:
    wait = scraped(series_names.PENDING, **_HERE)
    last = scraped(series_names.LAST_SCORED)
    fires = _ticket(**_HERE, **_INSTANCE)
    stuck = {wait: "5x90", last: "60x90"}
    yield Case("RagmonScoringStale", "records wait, the last was scored long ago", stuck, "40m", fires)
    yield Case("RagmonScoringStale", "records wait, none was ever scored", {wait: "5x90"}, "40m", fires)
    yield Case("RagmonScoringStale", "records wait and are scored", {wait: "5x90", last: "0+60x90"}, "40m")
    yield Case("RagmonScoringStale", "nothing waits", {wait: "0x90", last: "60x90"}, "40m")


def _books() -> Iterator[Case]:
    residual = scraped(series_names.RESIDUAL, **_HERE)
    fires = _ticket(**_HERE, **TARGET)
    yield Case("RagmonBooksDoNotClose", "two records are nowhere", {residual: "2x30"}, "20m", fires)
    yield Case("RagmonBooksDoNotClose", "two records are twice", {residual: "-2x30"}, "20m", fires)
    yield Case("RagmonBooksDoNotClose", "every record is somewhere", {residual: "0x30"}, "20m")


def _dropped() -> Iterator[Case]:
    received = scraped(series_names.RECEIVED, **_HERE)
    dropped = scraped(series_names.DROPPED, **_HERE, reason=constants.QUEUE_FULL)
    lost = scraped(series_names.PRODUCER_DROPPED, reason=constants.EXPORT_FAILED)
    for share, fires in ((0.05, True), (0.001, False)):
        series = {received: "0+1000x40", dropped: f"0+{1000 * share:g}x40"}
        yield Case("RagmonRecordsDropped", f"{share:.1%} dropped", series, "30m", _ticket(**_HERE) if fires else [])
        series = {received: "0+1000x40", lost: f"0+{1000 * share:g}x40"}
        say = f"producers lose {share:.1%}"
        yield Case("RagmonRecordsDropped", say, series, "30m", _ticket(stage="producer") if fires else [])


def _flags() -> Iterator[Case]:
    """Series that are 1 while all is well."""
    for alert, name, severity, minutes in (
        ("RagmonJournalNotWritable", series_names.JOURNAL_WRITABLE, "page", 2),
        ("RagmonConfigReloadFailed", series_names.RELOADED, "ticket", 5),
    ):
        series = scraped(name)
        fires = [{"severity": severity, **TARGET}]
        yield Case(alert, f"{name} is 0", {series: "1x5 0x30"}, f"{8 + minutes}m", fires)
        yield Case(alert, f"{name} was 0 for a moment", {series: "1x5 0 1x30"}, f"{8 + minutes}m")
        yield Case(alert, f"{name} is 1", {series: "1x30"}, "20m")


def _names() -> Iterator[Case]:
    overflow = scraped(series_names.NAMES_OVERFLOW, kind=constants.PIPELINE_NAMES)
    fires = _ticket(kind=constants.PIPELINE_NAMES, **_INSTANCE)
    yield Case("RagmonNamesOverflow", "pods are called as pipelines", {overflow: "0+10x90"}, "40m", fires)
    yield Case("RagmonNamesOverflow", "every name has its place", {overflow: "0x90"}, "40m")
    yield Case("RagmonNamesOverflow", "it is over for an hour", {overflow: "0+10x20 200x120"}, "110m")


def _rules(settings: Settings) -> Iterator[Case]:
    gates = counted.gates(settings)
    if not gates:
        return
    served = {
        scraped(series_names.GATE_THRESHOLD, **counted.named(gate)): f"{exact(gate.threshold)}x40" for gate in gates
    }
    yield Case("RagmonRulesStale", "every threshold is the configured one", {**_UP, **served}, "30m")
    first, gate = next(iter(served)), gates[0]
    fires = _ticket(**counted.named(gate))
    other = {**_UP, **served, first: f"{gate.threshold + 0.01:g}x40"}
    yield Case("RagmonRulesStale", f"{gate.name} has another threshold", other, "30m", fires)
    missing = {**_UP, **{series: values for series, values in served.items() if series != first}}
    gone = _ticket(**counted.named(gate), direction=gate.direction)
    yield Case("RagmonRulesStale", f"{gate.name} is not served", missing, "30m", gone)
    extra = scraped(series_names.GATE_THRESHOLD, pipeline=label(gate.pipeline), gate="a_new_gate")
    new = _ticket(pipeline=label(gate.pipeline), gate="a_new_gate")
    more = {**_UP, **served, extra: "0.5x40"}
    yield Case("RagmonRulesStale", "a gate is served that was not configured", more, "30m", new)
    elsewhere = {f'{recording.THRESHOLD}{{pipeline="of other rules",gate="a_gate"}}': "0.5x40"}
    yield Case("RagmonRulesStale", "other rules have other pipelines", {**_UP, **served, **elsewhere}, "30m")
