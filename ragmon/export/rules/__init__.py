"""Prometheus rules from ragmon.toml: recording rules, alerts, and promtool's unit tests of both."""

from __future__ import annotations

from ragmon.config.settings import Settings
from ragmon.export.rules import gate_alerts, monitor_alerts, recording, traffic_alerts
from ragmon.export.rules import recording as compat
from ragmon.export.rules import recording as counted
from ragmon.export.rules.file import Rule, RuleGroup, render
from ragmon.export.rules.gate_alerts import Writer
from ragmon.export.rules.unit_tests import every_case, render_tests


def rule_groups(settings: Settings) -> list[RuleGroup]:
    """All rules of a configuration; recording rules come before the alerts that use them.

    Args:
        settings: The configuration.

    Raises:
        RagmonError: The level at which a gate pages is impossible to reach.
    """
    writer, shares = Writer(settings.links), counted.share_gates(settings)
    return [
        RuleGroup(
            "ragmon.gates",
            [
                *recording.threshold_recordings(counted.gates(settings)),
                *recording.over_replicas(),
                *recording.recent_values(shares),
            ],
        ),
        RuleGroup("ragmon.burn", [*recording.failure_sums(shares), *recording.failure_shares()], interval="1m"),
        RuleGroup(
            "ragmon.traffic", [*traffic_alerts.traffic_recordings(), *traffic_alerts.coverage_recordings(settings)]
        ),
        RuleGroup("ragmon.compat", compat.compat_recordings(settings.windows)),
        RuleGroup("ragmon.alerts.gates", [*gate_alerts.alarms(writer), *gate_alerts.windows(writer)]),
        RuleGroup(
            "ragmon.alerts.traffic",
            [*traffic_alerts.traffic_alerts(settings, writer), *traffic_alerts.coverage_alerts(settings, writer)],
        ),
        RuleGroup("ragmon.alerts.monitor", monitor_alerts.alerts(settings, writer)),
    ]


__all__ = ["Rule", "RuleGroup", "every_case", "render", "render_tests", "rule_groups"]
