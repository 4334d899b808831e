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
from ragmon.export.rules import recording

PAGE: Final = "page"
TICKET: Final = "ticket"
INFO: Final = "info"
"""How urgent an alert is: at once, this week, for information only."""
JOB: Final = "ragmon"
"""The name of the scrape job."""
UP: Final = f'up{{job="{JOB}"}} == 1'
_FILE: Final = "docs/runbook.md#{alert}"
"""The runbook where no ragmon is up that could show it: in the repository."""
_AT_INSTANCE: Final = (
    f"{{{{ with query `{UP}` | sortByLabel `instance` }}}}"
    f"{runbook.address('http://{{ . | first | label `instance` }}', '{alert}')}"
    f"{{{{ else }}}}{_FILE}{{{{ end }}}}"
)
"""A template for the runbook at a ragmon that Prometheus reaches, whatever labels the alert has."""
DASHBOARD: Final = "ragmon-overview"
OF_GATE: Final = "{pipeline=%q,gate=%q}"
GATE_LABELS: Final = "$labels.pipeline $labels.gate"
"""Matchers of a gate in a query, and what a template puts into them."""
OF_PIPELINE: Final = "{pipeline=%q}"
GATE_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.gate }}"


@dataclass(frozen=True)
class Writer:
    """Writes the annotations of alerts.

    Args:
        links: The URLs of the runbook and the dashboards.
    """

    links: LinksTable

    def of(self, alert: str, summary: str, description: str, *, gated: bool = False) -> Mapping[str, str]:
        """The annotations of an alert.

        Args:
            alert: The name of the alert.
            summary: The summary, one line.
            description: What the alert means and what to do first.
            gated: Whether the alert has labels of a pipeline and a gate.
        """
        annotations = {"summary": summary, "description": description}
        annotations["runbook_url"] = self._runbook().replace("{alert}", alert.lower())
        if self.links.dashboard is not None:
            variables = "?var-pipeline={{ $labels.pipeline | urlquery }}" if gated else ""
            annotations["dashboard_url"] = f"{str(self.links.dashboard).rstrip('/')}/d/{DASHBOARD}{variables}"
        return annotations

    def _runbook(self) -> str:
        """The address of the runbook, with `{alert}` for the alert's name in lower case."""
        if self.links.runbook is not None:
            return str(self.links.runbook)
        return _AT_INSTANCE if self.links.status is None else runbook.address(str(self.links.status), "{alert}")


def first_result(query: str, labels: str, shown: str, otherwise: str, *, within: str = "{}") -> str:
    """A template for the first result of a query, which Prometheus runs when it writes the alert.

    Args:
        query: The query, with `%q` for each label.
        labels: The labels of the alert that it is about.
        shown: The function of templates that formats the value.
        otherwise: The text where the query has no result.
        within: The text around the value.
    """
    result = within.format(f"{{{{ . | first | value | {shown} }}}}")
    return f"{{{{ with printf `{query}` {labels} | query }}}}{result}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _share(series: str) -> str:
    """A template for a share of the gate in per cent; "unknown" where there is no value."""
    return first_result(f"max({series}{OF_GATE})", GATE_LABELS, "humanizePercentage", "unknown")


def _number(series: str) -> str:
    return first_result(f"max({series}{OF_GATE})", GATE_LABELS, 'printf "%.0f"', "unknown")


def if_present(series: str, text: str, otherwise: str) -> str:
    """A template for one text where the gate has the series, else another: there may be no gate, or no recent probe."""
    condition = f"with printf `max({series}{OF_GATE})` {GATE_LABELS} | query"
    return f"{{{{ {condition} }}}}{text}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _builds(query: str, otherwise: str) -> str:
    """A template for every build and index a query returns."""
    item = "{{ .Labels.build }} on index {{ .Labels.index_hash }}"
    items = f"{{{{ range $at, $found := . }}}}{{{{ if $at }}}}, {{{{ end }}}}{item}{{{{ end }}}}"
    condition = f"printf `{query}` {' '.join(['$labels.pipeline'] * query.count('%q'))} | query"
    return f"{{{{ with {condition} }}}}{items}{{{{ else }}}}{otherwise}{{{{ end }}}}"


_SEEN: Final = f"count by (build, index_hash) ({series_names.BUILD_SEEN}{OF_PIPELINE}"
VALUE: Final = _share(recording.VALUE)
"""The gate's value in its window, over all replicas."""
INTERVAL: Final = f"95 % interval {_share(recording.VALUE_LOWER)} to {_share(recording.VALUE_UPPER)}"
SAMPLES: Final = f"n = {_number(recording.SAMPLES)}"
WINDOWED: Final = if_present(
    recording.VALUE,
    f"In its whole window {VALUE} ({if_present(recording.VALUE_LOWER, f'{INTERVAL}, ', '')}{SAMPLES})",
    "No gate of this name has a value",
)
"""The value in the gate's window with the gate's interval; another text for an alarm on a metric without a gate.

The interval may still hold the threshold: an alarm proves more than one window shows, and fires before it is full.
"""
THRESHOLD: Final = if_present(
    series_names.GATE_THRESHOLD, f"threshold {_share(series_names.GATE_THRESHOLD)}", "no gate of this name"
)
LATELY: Final = if_present(
    recording.RECENT,
    f"{_share(recording.RECENT)} in {recording.LATELY} (n = {_number(recording.RECENT_SCORED)})",
    f"nothing scored in {recording.LATELY}",
)
"""The gate's metric in the last minutes, which the alarm is about."""
BASELINE: Final = first_result(
    f"max({series_names.GATE_BASELINE}{OF_GATE})", "$labels.pipeline $labels.alarm", "humanizePercentage", "none"
)
"""The baseline the alarm compares its metric with."""
BUILDS: Final = (
    f"New within the hour: {_builds(f'{_SEEN}) unless {_SEEN} offset 1h)', 'no build and no index')}. "
    f"Answered last: {_builds(f'{_SEEN})', 'no build is told')}."
)
"""The builds and indexes that answer, and which of them are new: the first question of an engineer on call."""
