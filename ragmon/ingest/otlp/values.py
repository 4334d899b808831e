"""The value of an attribute as Python has it."""

from __future__ import annotations

import base64
from typing import Any, Final

_NOTHING: Final = (None, "string_value_strindex")
"""Values that say nothing: none, and a place in a table that traces do not have."""


def value(told: Any) -> Any:
    """An attribute's value; protobuf itself limits how deep it is nested. Bytes are text, as in the JSON encoding.

    Args:
        told: A message `AnyValue`.
    """
    kind = told.WhichOneof("value")
    if kind in _NOTHING:
        return None
    found = getattr(told, kind)
    if kind == "array_value":
        return [value(inner) for inner in found.values]
    if kind == "kvlist_value":
        return {pair.key: value(pair.value) for pair in found.values}
    return base64.b64encode(found).decode() if kind == "bytes_value" else found
