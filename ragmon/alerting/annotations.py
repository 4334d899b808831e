"""What a page says: the value with its interval, what answers now, and where to look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragmon.alerting import recording
from ragmon.config.services import Links
from ragmon.core import series_names

RUNBOOK: Final = "docs/runbook.md#{alert}"
"""Where the runbook is if nobody says: in ragmon's own repository."""
DASHBOARD: Final = "ragmon-overview"
_OF_GATE: Final = "{pipeline=%q,gate=%q}"
_OF_PIPELINE: Final = "{pipeline=%q}"


@dataclass(frozen=True)
class Writer:
    """Writes annotations.

    Args:
        links: Where runbook and dashboards are.
    """

    links: Links

    def of(self, alert: str, summary: str, description: str, *, gated: bool = False) -> Mapping[str, str]:
        """The annotations of an alert.

        Args:
            alert: Its name.
            summary: One line.
            description: What it means and what to do first.
            gated: It is about a pipeline and one of its gates.
        """
        found = {"summary": summary, "description": description}
        found["runbook_url"] = str(self.links.runbook or RUNBOOK).replace("{alert}", alert.lower())
        if self.links.dashboard is not None:
            chosen = "?var-pipeline={{ $labels.pipeline | urlquery }}" if gated else ""
            found["dashboard_url"] = f"{str(self.links.dashboard).rstrip('/')}/d/{DASHBOARD}{chosen}"
        return found


def _asked(query: str, labels: str, shown: str, otherwise: str) -> str:
    """The first result of a query, asked when the alert is written."""
    found = f"{{{{ . | first | value | {shown} }}}}"
    return f"{{{{ with printf `{query}` {labels} | query }}}}{found}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _share(series: str) -> str:
    """A share of the gate in per cent; "unknown" where there is none."""
    return _asked(f"max({series}{_OF_GATE})", "$labels.pipeline $labels.gate", "humanizePercentage", "unknown")


def _number(series: str) -> str:
    return _asked(f"max({series}{_OF_GATE})", "$labels.pipeline $labels.gate", 'printf "%.0f"', "unknown")


def _where(series: str, told: str, otherwise: str) -> str:
    """What is told where the gate has the series: a round of probes may be an hour ago, a metric may have no gate."""
    asked = f"with printf `max({series}{_OF_GATE})` $labels.pipeline $labels.gate | query"
    return f"{{{{ {asked} }}}}{told}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _builds(query: str, otherwise: str) -> str:
    """Every build and index of a query."""
    one = "{{ .Labels.build }} on index {{ .Labels.index_hash }}"
    each = f"{{{{ range $at, $found := . }}}}{{{{ if $at }}}}, {{{{ end }}}}{one}{{{{ end }}}}"
    asked = f"printf `{query}` {' '.join(['$labels.pipeline'] * query.count('%q'))} | query"
    return f"{{{{ with {asked} }}}}{each}{{{{ else }}}}{otherwise}{{{{ end }}}}"


_SEEN: Final = f"count by (build, index_hash) ({series_names.BUILD_SEEN}{_OF_PIPELINE}"
VALUE: Final = _share(recording.VALUE)
"""The gate's value in its window, over all replicas."""
INTERVAL: Final = f"95 % interval {_share(recording.VALUE_LOWER)} to {_share(recording.VALUE_UPPER)}"
SAMPLES: Final = f"n = {_number(recording.SAMPLES)}"
WINDOWED: Final = _where(
    recording.VALUE, f"In its whole window {VALUE} ({INTERVAL}, {SAMPLES})", "No gate of this name has a value"
)
"""What the gate judges, unless the alarm is of a metric that has none."""
THRESHOLD: Final = _where(
    series_names.GATE_THRESHOLD, f"threshold {_share(series_names.GATE_THRESHOLD)}", "no gate of this name"
)
LATELY: Final = _where(
    recording.RECENT,
    f"{_share(recording.RECENT)} in {recording.LATELY} (95 % interval {_share(recording.RECENT_LOWER)} to "
    f"{_share(recording.RECENT_UPPER)}, n = {_number(recording.RECENT_SCORED)})",
    f"nothing scored in {recording.LATELY}",
)
"""The gate's metric in the last minutes: what an alarm has seen."""
BASELINE: Final = _asked(
    f"max({series_names.GATE_BASELINE}{_OF_GATE})", "$labels.pipeline $labels.alarm", "humanizePercentage", "none"
)
"""What the alarm holds its metric against."""
BUILDS: Final = (
    f"New within the hour: {_builds(f'{_SEEN}) unless {_SEEN} offset 1h)', 'no build and no index')}. "
    f"Answered last: {_builds(f'{_SEEN})', 'no build is told')}."
)
"""Which builds and indexes answer, and what of them is new: the first question of the night."""
