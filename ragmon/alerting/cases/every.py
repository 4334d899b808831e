"""The cases of all alerts a configuration has."""

from __future__ import annotations

from ragmon.alerting.cases import gates, monitor, traffic
from ragmon.alerting.cases.case import Case
from ragmon.config.settings import Settings


def every_case(settings: Settings) -> list[Case]:
    """For every alert of a configuration, what must fire it and what must not.

    Args:
        settings: The configuration.
    """
    return [*gates.cases(settings), *traffic.cases(settings), *monitor.cases(settings)]
