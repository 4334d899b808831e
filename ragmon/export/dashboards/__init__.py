"""Grafana dashboards of a configuration: its gates, its metrics, its judges.

They need `ragmon[dashboard]`. Series have the names of `ragmon.core.series_names`, and every panel shows series only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ragmon.config.settings import Settings
from ragmon.export.dashboards.overview import health, overview
from ragmon.export.dashboards.panels import TAG, DashboardBuilder
from ragmon.export.dashboards.quality import answers, retrieval, traffic

DASHBOARDS: Final[Mapping[str, Callable[[Settings], DashboardBuilder]]] = {
    "overview": overview,
    "retrieval": retrieval,
    "answers": answers,
    "traffic": traffic,
    "health": health,
}
"""The function that builds each dashboard, by the end of its uid."""


def generate(settings: Settings) -> dict[str, str]:
    """Every dashboard as the text of a JSON file, by uid.

    Args:
        settings: The configuration.
    """
    return {f"{TAG}-{name}": make(settings).json() for name, make in DASHBOARDS.items()}
