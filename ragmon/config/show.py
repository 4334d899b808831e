"""The resolved configuration as rows: every value, where it came from, and no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ragmon.config.series import expected_series
from ragmon.config.settings import Settings
from ragmon.config.types import Address, Bytes, Seconds, Table, is_secret
from ragmon.core.refusal import DEFAULT_PATTERNS

MASK: Final = "***"
SERIES: Final = "prometheus.series"
"""The row with the expected number of series."""
_LOGIN: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def rows(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration.

    Args:
        settings: The configuration.

    Returns:
        `(dotted key, value as ragmon.toml would hold it, origin)`; None for what is not set. A gate that names no
        source shows its default one. The last row is the expected number of Prometheus series.
    """
    found = [(key, _shown(key, value), settings.origins[key]) for key, value in settings.values.items()]
    return [*found, (SERIES, expected_series(settings), "estimate")]


def _shown(key: str, value: object) -> object:
    """A value that may be printed. Users choose the tags of slices themselves; no tag is a secret."""
    table, _, option = key.rpartition(".")
    if value is not None and is_secret(option) and not table.endswith("slices"):
        return MASK
    if option == "patterns" and value == DEFAULT_PATTERNS:
        return "default"
    if option == "target" and isinstance(value, str) and "?" in value:
        value = f"{value.partition('?')[0]}?{MASK}"
    return _plain(value, masked=option in ("headers", "tls"))


def _plain(value: object, *, masked: bool = False) -> object:
    """A value as plain data, durations and sizes with their unit."""
    if isinstance(value, Seconds | Bytes | Address | Path):
        return str(value)
    if isinstance(value, str):
        return _LOGIN.sub(MASK, value)
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping | Table):
        items = value.items() if isinstance(value, Mapping) else iter(value)
        return {key: MASK if masked and is_secret(key) else _plain(entry) for key, entry in items if entry is not None}
    return value
