"""The attributes of a span that are wanted, read by the layouts of spans before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragmon.ingest.otlp.layouts import Layout
from ragmon.ingest.otlp.values import value
from ragmon.ingest.otlp.wanted import ON_SPAN

MOST: Final = 256
"""Attributes of a span whose layout is remembered; OpenTelemetry's SDKs keep 128 of a span."""
KINDS: Final = 256
"""Instrumentations and numbers of attributes for which layouts are remembered."""
RECENT: Final = 4
"""Layouts for each of those."""
PATIENCE: Final = 8
"""Spans in a row with layouts of their own after which the next ones are read one by one: to learn takes longer."""
REST: Final = 200
"""How many of them."""


class Recent:
    """Layouts of spans of one instrumentation with the same number of attributes, the last one first."""

    def __init__(self) -> None:
        self._layouts: list[Layout] = []
        self._missed = 0
        self._rest = 0

    def read(self, told: Any, pairs: Sequence[bytes]) -> Mapping[str, Any] | None:
        """The attributes of a span; None where they had better be read one by one."""
        if self._rest:
            self._rest -= 1
            return None
        for layout in self._layouts:
            found = layout.read(told, pairs)
            if found is not None:
                self._missed = 0
                return found
        self._missed += 1
        if self._missed > PATIENCE:
            self._missed, self._rest = 0, REST
        try:
            layout = Layout(pairs)
        except LookupError:  # they are written as no exporter does, but may be
            return None
        self._layouts = [layout, *self._layouts[: RECENT - 1]]
        return layout.read(told, pairs)


_kinds: Final[dict[tuple[str, int], Recent]] = {}


def attributes(scope: str, told: Any, raw: Any) -> Mapping[str, Any]:
    """The attributes of a span.

    Args:
        scope: The name of the instrumentation.
        told: Their values by kind: one message `AnyValue` whose fields are lists.
        raw: The span with its attributes in bytes.
    """
    pairs = raw.attributes[:]
    recent = _kinds.get((scope, len(pairs)))
    if recent is None:
        recent = Recent()
        if len(pairs) <= MOST:
            _remember(recent, scope, len(pairs))
    found = recent.read(told, pairs)
    return one_by_one(raw) if found is None else found


def _remember(recent: Recent, scope: str, size: int) -> None:
    if len(_kinds) >= KINDS:
        del _kinds[next(iter(_kinds))]
    _kinds[scope, size] = recent


def one_by_one(raw: Any) -> dict[str, Any]:
    """The same, without a layout.

    Args:
        raw: The span, be its attributes in bytes or not.

    >>> span = Span(attributes=[{"key": "input.value", "value": {"string_value": "Is it?"}}])
    >>> one_by_one(span)
    {'input.value': 'Is it?'}
    """
    pairs = Span.FromString(raw.SerializeToString()).attributes
    return {key: value(pair.value) for pair in pairs if ON_SPAN[key := pair.key]}
