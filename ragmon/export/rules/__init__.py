"""Prometheus rules from ragmon.toml: recording rules and alerts."""

from __future__ import annotations

from ragmon.config.settings import Settings
from ragmon.export.rules import gate_alerts, monitor_alerts, recording
from ragmon.export.rules.annotations import Writer
from ragmon.export.rules.file import Rule, RuleGroup, render
from ragmon.export.rules.scopes import Deployments, rule_scopes


def rule_groups(settings: Settings, *, configured_only: bool = False, selector: str = "") -> list[RuleGroup]:
    """All rules of a configuration; recording rules come before the alerts that use them.

    Args:
        settings: The configuration.
        configured_only: Without rules for pipelines that the configuration does not name.
        selector: Matchers of the deployments that the rules are for, as PromQL: `env="prod"`; empty for all.

    Raises:
        RagmonError: The selector is no list of matchers.
    """
    deployments, scopes = Deployments.of(settings.rules.by, selector), rule_scopes(settings, configured_only)
    writer = Writer(settings.unconfigured.links, deployments)
    return [
        RuleGroup("ragmon.recorded", recording.rules(scopes, deployments, settings.windows)),
        RuleGroup("ragmon.gates", gate_alerts.alerts(scopes, deployments, writer)),
        RuleGroup("ragmon.monitor", monitor_alerts.alerts(scopes, deployments, writer)),
        *(
            [RuleGroup("ragmon.stream", monitor_alerts.stream_alerts(deployments, writer))]
            if settings.stream.model_fields_set
            else []
        ),
    ]


__all__ = ["Rule", "RuleGroup", "render", "rule_groups"]
