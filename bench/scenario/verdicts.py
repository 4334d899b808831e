"""What a monitor's alarms found, how late, and how many of them were false."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Final, Literal, TypedDict

from bench.scenario.incidents import Incident

GRACE: Final = 900.0
"""Seconds after its end in which an incident may still be found, and raises no false alarm: windows look back."""

Severity = Literal["page", "look", "ticket"]


class Edge(TypedDict):
    """An alert begins or ends to fire.

    Attributes:
        ts: Seconds since the epoch.
        alert: The alert's name.
        metric: The metric it watches; what follows an `@` is a depth.
        severity: `page` wakes somebody, `look` asks for a look today, `ticket` waits.
        state: `firing` or `resolved`.
    """

    ts: float
    alert: str
    metric: str
    severity: Severity
    state: Literal["firing", "resolved"]


@dataclass(frozen=True)
class Finding:
    """What became of one incident.

    Attributes:
        incident: The incident.
        delay: Seconds from its start to the first alert on an expected metric; None where there was none.
        metric: That alert's metric.
        page_delay: The same for pages alone.
    """

    incident: Incident
    delay: float | None = None
    metric: str | None = None
    page_delay: float | None = None


@dataclass(frozen=True)
class FalseAlarms:
    """Alerts that began to fire while nothing was wrong, by severity."""

    pages: int = 0
    looks: int = 0
    tickets: int = 0


@dataclass(frozen=True)
class Verdict:
    """A monitor on one stream.

    Attributes:
        findings: One for every incident that is not benign, in time order.
        in_benign: False alarms in benign events.
        outside: False alarms while nothing at all happened.
    """

    findings: tuple[Finding, ...]
    in_benign: FalseAlarms
    outside: FalseAlarms

    @property
    def found(self) -> int:
        """How many incidents were found."""
        return sum(finding.delay is not None for finding in self.findings)

    @property
    def median_delay(self) -> float | None:
        """The median delay in seconds, the upper of the two in the middle; None where nothing was found."""
        return _median(finding.delay for finding in self.findings)

    @property
    def median_page_delay(self) -> float | None:
        """The same for first pages."""
        return _median(finding.page_delay for finding in self.findings)


def judge(incidents: Iterable[Incident], edges: Iterable[Edge], grace: float = GRACE) -> Verdict:
    """Hold alerts against what happened.

    An incident is found by the first alert on an expected metric that begins to fire while it lasts, or in its grace.
    An alert that begins outside every incident that is not benign is false; on an unexpected metric inside one it is
    neither.

    Args:
        incidents: What happened.
        edges: Of all alerts; only where they begin to fire counts.
        grace: Seconds for which an incident counts after its end.
    """
    firing = sorted((edge for edge in edges if edge["state"] == "firing"), key=lambda edge: edge["ts"])
    real: list[Incident] = []
    benign: list[Incident] = []
    for incident in incidents:
        (benign if incident.benign else real).append(incident)
    false = [edge for edge in firing if not _during(real, edge, grace)]
    return Verdict(
        tuple(_finding(incident, firing, grace) for incident in real),
        _counted([edge for edge in false if _during(benign, edge, grace)]),
        _counted([edge for edge in false if not _during(benign, edge, grace)]),
    )


def _during(incidents: Iterable[Incident], edge: Edge, grace: float) -> bool:
    return any(incident.start <= edge["ts"] <= incident.end + grace for incident in incidents)


def _finding(incident: Incident, firing: Iterable[Edge], grace: float) -> Finding:
    on_it = [edge for edge in firing if _during([incident], edge, grace) and _expected(incident, edge)]
    pages = (edge for edge in on_it if edge["severity"] == "page")
    first, paged = next(iter(on_it), None), next(pages, None)
    return Finding(
        incident,
        first and first["ts"] - incident.start,
        first and first["metric"],
        paged and paged["ts"] - incident.start,
    )


def _expected(incident: Incident, edge: Edge) -> bool:
    return edge["metric"].partition("@")[0] in incident.expect


def _counted(edges: Sequence[Edge]) -> FalseAlarms:
    severities = [edge["severity"] for edge in edges]
    return FalseAlarms(severities.count("page"), severities.count("look"), severities.count("ticket"))


def _median(delays: Iterable[float | None]) -> float | None:
    known = [delay for delay in delays if delay is not None]
    return median_high(known) if known else None
