"""What OpenTelemetry's limits on attributes cost: past the number of them, the ones set first are thrown away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ragmon.config.settings import Settings

NUMBER: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
LENGTH: Final = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
"""The variable of spans, and the one that holds where it is not set."""
USUAL: Final = 128
"""Attributes of a span where nobody sets a limit."""
_OF_A_DOCUMENT: Final = 4
"""Attributes of a document in OpenInference: id, content, score, metadata."""
_OF_A_SPAN: Final = 8
"""Attributes of a retriever's span beside its documents, at most."""
_SHORT: Final = 8192
"""Characters below which documents in one attribute are likely to be cut."""


class Told(NamedTuple):
    """What a setting means for what arrives.

    Attributes:
        lost: What does not arrive, and why; "" where nothing is lost for certain.
        told: What is worth knowing.
        hint: What would be right.
    """

    lost: str = ""
    told: str = ""
    hint: str = ""


def limits(settings: Settings, environ: Mapping[str, str], *, flattened: bool) -> Told:
    """What the limits in force lose.

    Args:
        settings: The configuration: how deep its metrics look.
        environ: The environment.
        flattened: Documents come as one attribute for each of their fields.
    """
    name, length = _first(environ, LENGTH)
    if length is not None and length < _SHORT:
        lost = f"{name}={length} cuts questions, answers and lists of documents"
        return Told(lost, hint=f"unset {name}, or {_SHORT} at least")
    name, number = _first(environ, NUMBER)
    if not flattened or (name and number is None):
        return Told()
    most = USUAL if number is None else number
    documents = max(0, (most - _OF_A_SPAN) // _OF_A_DOCUMENT)
    deepest = max(k for one in (settings.common, *settings.pipelines.values()) for k in one.metrics.k)
    what = f"{name}={most}" if name else f"{NUMBER[0]} is not set, which means {most}"
    told = (
        f"{what}: of more than about {documents} documents the ones ranked first are lost, and the trace is unscorable"
    )
    hint = f"{NUMBER[0]}={_OF_A_SPAN + _OF_A_DOCUMENT * 100} is room for 100 documents"
    return Told(lost=told, hint=hint) if documents < deepest else Told(told=told, hint=hint)


def _first(environ: Mapping[str, str], names: tuple[str, str]) -> tuple[str, int | None]:
    """The variable that holds, and its limit; None for no limit, and where it is no number."""
    for name in names:
        if name in environ:
            text = environ[name].strip()
            return name, int(text) if text.isdecimal() else None
    return "", None
