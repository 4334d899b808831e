"""The page of the monitor itself: where every record went, its journal, and the configuration in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ragmon.config.load import masked_values, toml_text
from ragmon.config.settings import Settings
from ragmon.export.pages.flow_chart import flow_bands, flow_chart
from ragmon.export.pages.overview import REFRESH
from ragmon.export.pages.rendering import render
from ragmon.export.state import MonitorSnapshot

_MIB: Final = 2**20


def page(status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings) -> str:
    """The page as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        settings: The configuration in force.
    """
    residual = sum(books["residual"] for books in status["books"].values())
    state = "every record is accounted for" if not residual else f"{residual} records are not accounted for"
    rows = [(key, toml_text(value), origin) for key, value, origin in masked_values(settings)]
    return render(
        "monitor.html.jinja",
        root="",
        title=f"ragmon: {status['trouble'] or state}",
        refresh=REFRESH,
        now=status["now"],
        status=status,
        stages=[_stage(name, current) for name in status["books"]],
        journal=_journal(status["journal"]),
        written=[row for row in rows if row[2] != "default"],
        defaults=[row for row in rows if row[2] == "default"],
        producers=status["producers"],
    )


def _stage(name: str, current: MonitorSnapshot) -> dict[str, Any]:
    """A stage with its flow as a picture and in figures."""
    counters = current.stages[name]
    bands = flow_bands(counters)
    return {
        "name": name,
        "received": counters.received,
        "chart": flow_chart(name, counters.received, bands),
        "rows": [(band.words, band.n, f"{band.n / counters.received:.2%}") for band in bands],
    }


def _journal(journal: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The journal with its sizes in MiB."""
    if journal is None:
        return None
    return {
        **journal,
        "size": f"{journal['bytes'] / _MIB:.1f} of {journal['limit'] / _MIB:.0f} MiB",
        "share": f"{journal['bytes'] / journal['limit']:.1%}",
    }
