"""What spans, metrics and events have in common on the wire: attributes, the resource, the scope, ids and times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from ragmon.core import version

_SCOPE: Final = "ragmon"
_VERSION: Final = version.current()
_LATEST: Final = 2**64 - 1
_NANO: Final = 1_000_000_000


def put(attributes: Any, key: str, value: str | bool | float) -> None:
    """Add an attribute to a message's repeated field; four times as fast as building it first and copying it in."""
    held = attributes.add(key=key).value
    if isinstance(value, str):
        held.string_value = value
    elif isinstance(value, bool):
        held.bool_value = value
    else:
        held.double_value = value


def opened(request: Any, kind: str, resource: Mapping[str, str]) -> Any:
    """Say who sends and what program made it.

    Args:
        request: The protocol message.
        kind: `spans`, `metrics` or `logs`.
        resource: Attributes of the process.

    Returns:
        The message's scope, into which spans, metrics or events are written.
    """
    envelope = getattr(request, f"resource_{kind}").add()
    for key, value in resource.items():
        put(envelope.resource.attributes, key, value)
    held = getattr(envelope, f"scope_{kind}").add()
    held.scope.name = _SCOPE
    held.scope.version = _VERSION
    return held


def nanoseconds(seconds: float) -> int:
    """A time as the protocol holds it, an unsigned number of 64 bits: it ends in the year 2554."""
    return min(round(min(seconds, _LATEST / _NANO) * _NANO), _LATEST)


def trace_id(text: str | None) -> bytes | None:
    """The sixteen bytes of a trace id; None where the text is none."""
    return _id(text, 16)


def span_id(text: str | None) -> bytes | None:
    """The eight bytes of a span id; None where the text is none."""
    return _id(text, 8)


def _id(text: str | None, size: int) -> bytes | None:
    try:
        found = bytes.fromhex(text or "")
    except ValueError:
        return None
    return found if len(found) == size and any(found) else None


def new_trace_id() -> bytes:
    """A trace id of its own; not from `random`, which the application may have seeded alike in every process."""
    return os.urandom(16)


def new_span_id() -> bytes:
    """A span id of its own."""
    return os.urandom(8)
