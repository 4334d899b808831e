"""How the records of a pipeline are reduced, and the streams that are reduced alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ragmon.gold.sets import Items
from ragmon.metrics.facts import FactReader
from ragmon.metrics.grounding import DEFAULT_THRESHOLD
from ragmon.windows import Series


@dataclass(frozen=True)
class Rules:
    """How the records of a pipeline are reduced.

    Args:
        facts: The refusal rule and the latency bound.
        grounded_threshold: From which groundedness an answer counts as grounded.
        slices: Tags that become series: allowed values by tag name.
    """

    facts: FactReader = field(default_factory=FactReader)
    grounded_threshold: float = DEFAULT_THRESHOLD
    slices: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass
class Stream:
    """Records that share pipeline, source, build and index, and everything that follows from those.

    Attributes:
        series: By source, gold version, slice, audit and stratum.
    """

    pipeline: str
    source: str
    build: str
    index_hash: str
    rules: Rules
    items: Items
    series: dict[tuple[str, str, str, bool, str], Series] = field(default_factory=dict)
