"""The values of a configuration for people to read: secrets are masked, and the origin of each value is named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ragmon.config.problems import dotted
from ragmon.config.settings import Settings
from ragmon.config.types import Address, Bytes, Seconds, Table, is_secret

MASK: Final = "***"
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def masked_values(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration.

    Args:
        settings: The configuration.

    Returns:
        `(dotted key, value as in ragmon.toml, origin)`; the value is None if it is not set. A gate that names no source
        has its default one.

    >>> from ragmon.config.load import defaults
    >>> next(row for row in masked_values(defaults()) if row[0] == "capture.content")
    ('capture.content', 'none', 'default')
    """
    return [(key, _masked(key, value), settings.origins[key]) for key, value in settings.values.items()]


def _masked(key: str, value: object) -> object:
    """The value, masked if it is a secret. The keys of `slices` are tags that users choose; they are never secrets."""
    table, _, option = key.rpartition(".")
    if value is not None and is_secret(option) and not table.endswith("slices"):
        return MASK
    if key.endswith("export.headers") and isinstance(value, Mapping):  # any of them may be a token
        return dict.fromkeys(value, MASK)
    if option == "target" and isinstance(value, str) and "?" in value:
        value = f"{value.partition('?')[0]}?{MASK}"
    return plain(value, masked=option in ("headers", "tls", "kafka"))


def plain(value: object, *, masked: bool = False) -> object:
    """The value as plain data; durations and sizes as text with their unit.

    Args:
        value: The value of a key.
        masked: Whether entries of a table that may be secrets are masked.
    """
    if isinstance(value, Seconds | Bytes | Address | Path):
        return str(value)
    if isinstance(value, str):
        return _CREDENTIALS.sub(MASK, value)
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping | Table):
        items = value.items() if isinstance(value, Mapping) else iter(value)
        return {key: MASK if masked and is_secret(key) else plain(entry) for key, entry in items if entry is not None}
    return value


def toml_text(value: object) -> str:
    """The value in the syntax of ragmon.toml."""
    if value is None:
        return "(not set)"
    if isinstance(value, dict):
        entries = ", ".join(f"{dotted((str(key),))} = {toml_text(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value, ensure_ascii=False)
