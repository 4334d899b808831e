"""Prometheus rules from ragmon.toml: recording rules and alerts."""

from __future__ import annotations

from ragmon.config.settings import Settings
from ragmon.export.rules import capture_alerts, gate_alerts, monitor_alerts, recording, slow_burn, traffic_alerts
from ragmon.export.rules.annotations import Writer
from ragmon.export.rules.file import Rule, RuleGroup, render
from ragmon.export.rules.scopes import rule_scopes


def rule_groups(settings: Settings, *, configured_only: bool = False) -> list[RuleGroup]:
    """All rules of a configuration; recording rules come before the alerts that use them.

    Args:
        settings: The configuration.
        configured_only: Without rules for pipelines that the configuration does not name.

    Raises:
        RagmonError: The level at which a gate pages is impossible to reach.
    """
    writer, scopes = Writer(settings.links), rule_scopes(settings, configured_only=configured_only)
    return [
        RuleGroup(
            "ragmon.gates",
            [
                *recording.pipeline_recordings(scopes),
                *recording.threshold_recordings(scopes),
                *recording.gold_recordings(),
                *recording.over_replicas(),
                *capture_alerts.recordings(),
                *recording.recent_values(scopes),
            ],
        ),
        RuleGroup(
            "ragmon.burn",
            [*recording.failure_sums(scopes), *recording.failure_shares(), *slow_burn.recordings()],
            interval="1m",
        ),
        RuleGroup(
            "ragmon.traffic", [*traffic_alerts.traffic_recordings(), *traffic_alerts.coverage_recordings(scopes)]
        ),
        RuleGroup("ragmon.compat", recording.compat_recordings(settings.windows)),
        RuleGroup(
            "ragmon.alerts.gates",
            [*gate_alerts.alarms(writer), slow_burn.ticket(writer), *gate_alerts.windows(writer)],
        ),
        RuleGroup(
            "ragmon.alerts.traffic",
            [
                *traffic_alerts.traffic_alerts(scopes, writer),
                *traffic_alerts.coverage_alerts(scopes, writer),
                *capture_alerts.alerts(scopes, writer),
            ],
        ),
        RuleGroup("ragmon.alerts.monitor", monitor_alerts.alerts(scopes, writer)),
    ]


__all__ = ["Rule", "RuleGroup", "render", "rule_groups"]
