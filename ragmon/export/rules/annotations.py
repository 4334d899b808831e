"""The texts of alerts: templates that Prometheus fills in, and the links to the runbook and to the dashboards.

An annotation shows the value with its interval, which builds answer, and where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragmon.config.services import LinksTable
from ragmon.core import series_names
from ragmon.export import runbook
from ragmon.export.rules.file import Rule
from ragmon.export.rules.recording import SCORE, SCORED, STEP
from ragmon.export.rules.scopes import Deployments

PAGE: Final = "page"
TICKET: Final = "ticket"
INFO: Final = "info"
"""How urgent an alert is: at once, this week, for information only."""
JOB: Final = 'job="ragmon"'
"""The scrape job."""
_FILE: Final = "docs/runbook.md#{alert}"
"""The runbook where no ragmon is up that could show it: in the repository."""
_AT_INSTANCE: Final = (
    f"{{{{ with query `up{{{JOB}}} == 1` | sortByLabel `instance` }}}}"
    f"{runbook.address('http://{{ . | first | label `instance` }}', '{alert}')}"
    f"{{{{ else }}}}{_FILE}{{{{ end }}}}"
)
"""A template for the runbook at a ragmon that Prometheus reaches, whatever labels the alert has."""
DASHBOARD: Final = "ragmon-overview"
_PERCENT: Final = "{{ . | first | value | humanizePercentage }}"
_NUMBER: Final = '{{ . | first | value | printf "%.0f" }}'
"""The first result of a query, as a template writes it."""
GATE_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.gate }}"


@dataclass(frozen=True)
class Writer:
    """Writes alerts with their texts.

    Args:
        links: The URLs of the runbook and the dashboards.
        of: The deployments.
    """

    links: LinksTable
    of: Deployments

    def alert(
        self,
        name: str,
        expr: str,
        severity: str,
        summary: str,
        description: str,
        *,
        pending: str = "",
        keep: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Rule:
        """An alert.

        Args:
            name: Its name.
            expr: When it fires.
            severity: How urgent it is; "" where its expression has a label for it.
            summary: One line.
            description: What it means and what to do first.
            pending: How long the expression must hold before.
            keep: How long it fires after the expression held last.
            labels: Further labels.
        """
        annotations = {"summary": summary, "description": description}
        annotations["runbook_url"] = self._runbook().replace("{alert}", name.lower())
        if self.links.dashboard is not None:
            variables = "?var-pipeline={{ $labels.pipeline | urlquery }}" if "$labels.pipeline" in summary else ""
            annotations["dashboard_url"] = f"{str(self.links.dashboard).rstrip('/')}/d/{DASHBOARD}{variables}"
        own = {**(labels or {}), **({"severity": severity} if severity else {})}
        return Rule(name, expr, own, annotations, pending=pending, keep_firing_for=keep, alert=True)

    def _runbook(self) -> str:
        """The address of the runbook, with `{alert}` for the alert's name in lower case."""
        if self.links.runbook is not None:
            return str(self.links.runbook)
        return _AT_INSTANCE if self.links.status is None else runbook.address(str(self.links.status), "{alert}")

    def found(self, query: str, shown: str, otherwise: str, *, alarm: bool = False) -> str:
        """A template for the value of a query about the alert's gate, which Prometheus runs when it writes the alert.

        Args:
            query: The query, with `SERIES{GATE}` for each series.
            shown: The template around `.`, the result.
            otherwise: The text where the query has no result.
            alarm: Whether it is about the alarm's full name, not the gate's.
        """
        labels = self.of.labels("pipeline", "gate")
        told = labels.replace("gate", "alarm", 1) if alarm else labels
        return _asked(query.replace("{GATE}", f"{{{_matchers(labels)}}}"), told, shown, otherwise)

    def of_pipeline(self, query: str, item: str, otherwise: str) -> str:
        """A template for every result of a query about the alert's pipeline.

        Args:
            query: The query, with `PIPELINE` for the matchers of each series.
            item: The template of a result.
            otherwise: The text where the query has no result.
        """
        labels = self.of.labels("pipeline")
        shown = f"{{{{ range $at, $found := . }}}}{{{{ if $at }}}}, {{{{ end }}}}{item}{{{{ end }}}}"
        return _asked(query.replace("PIPELINE", _matchers(labels)), labels, shown, otherwise)

    def share(self, series: str, *, alarm: bool = False, otherwise: str = "unknown") -> str:
        """A template for a share of the gate in per cent."""
        return self.found(f"max({series}{{GATE}})", _PERCENT, otherwise, alarm=alarm)

    @property
    def value(self) -> str:
        """The gate's value in its window with the gate's interval; another text for an alarm on a metric without gate.

        The interval may still hold the threshold: an alarm proves more than one window shows.
        """
        lower, upper = self.share(series_names.GATE_LOWER), self.share(series_names.GATE_UPPER)
        samples = self.found(f"sum({series_names.GATE_SAMPLES}{{GATE}})", _NUMBER, "0")
        shown = f"In its whole window {_PERCENT} (95 % interval {lower} to {upper}, n = {samples})"
        return self.found(f"max({series_names.GATE_VALUE}{{GATE}})", shown, "No gate of this name has a value")

    @property
    def threshold(self) -> str:
        """The gate's threshold."""
        return f"threshold {self.share(series_names.GATE_THRESHOLD, otherwise='of no gate')}"

    @property
    def lately(self) -> str:
        """The gate's metric in the last minutes, which an alarm is about: its window may hold more good requests."""
        shown = f"{_PERCENT} in {STEP} (n = {self.found(f'{SCORED}{{GATE}}', _NUMBER, '0')})"
        return self.found(f"{SCORE}{{GATE}} / ({SCORED}{{GATE}} > 0)", shown, f"nothing scored in {STEP}")

    @property
    def builds(self) -> str:
        """The builds and indexes that answer, and which of them are new: the first question of an engineer on call."""
        seen = f"count by (build, index_hash) ({series_names.BUILD_SEEN}{{PIPELINE}}"
        item = "{{ .Labels.build }} on index {{ .Labels.index_hash }}"
        new = self.of_pipeline(f"{seen}) unless {seen} offset 1h)", item, "no build and no index")
        return f"New within the hour: {new}. Answered last: {self.of_pipeline(f'{seen})', item, 'no build is told')}."


def _matchers(labels: str) -> str:
    """Matchers for the values of some labels, with `%q` for each."""
    return ",".join(f"{name}=%q" for name in labels.split(", "))


def _asked(query: str, labels: str, shown: str, otherwise: str) -> str:
    """A template for a query that has `%q` for the values of an alert's labels, one after the other and again."""
    names = labels.split(", ")
    arguments = " ".join(f"$labels.{name}" for name in names * (query.count("%q") // len(names)))
    return f"{{{{ with printf `{query}` {arguments} | query }}}}{shown}{{{{ else }}}}{otherwise}{{{{ end }}}}"
