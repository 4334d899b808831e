"""All rules of a configuration, in the order they build on each other."""

from __future__ import annotations

from ragmon.alerting import assessed, compat, counted, gates, monitor, recording, traffic
from ragmon.alerting.annotations import Writer
from ragmon.alerting.rulefile import Group
from ragmon.config.settings import Settings


def rule_groups(settings: Settings) -> list[Group]:
    """The rules: what is recorded first, then what alerts.

    Args:
        settings: The configuration.

    Raises:
        RagmonError: A slow burn of a gate could never be seen.
    """
    writer, shares = Writer(settings.links), counted.shares(settings)
    return [
        Group(
            "ragmon.gates",
            [
                *recording.constants(counted.gates(settings)),
                *recording.over_replicas(),
                *recording.lately(shares),
            ],
        ),
        Group("ragmon.burn", [*recording.summed(shares), *recording.divided()], interval="1m"),
        Group("ragmon.traffic", [*traffic.recorded(), *assessed.recorded(settings)]),
        Group("ragmon.compat", compat.recorded(settings.windows)),
        Group("ragmon.alerts.gates", [*gates.alarms(writer), *gates.windows(writer)]),
        Group("ragmon.alerts.traffic", [*traffic.alerts(settings, writer), *assessed.alerts(settings, writer)]),
        Group("ragmon.alerts.monitor", monitor.alerts(settings, writer)),
    ]
