"""Limits of the numbers and document lists in a record, the same live and in a replay.

A single latency of 10^308 milliseconds would make the sum of all latencies useless for ever. A value out of range
becomes unknown, with a reason; the rest of the record counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ragmon.core.constants import OUT_OF_RANGE, STAGES, TOO_MANY_DOCUMENTS
from ragmon.core.record import Latency, Record

LONGEST_MS: Final = 86_400_000.0
"""The longest latency in milliseconds: a day. A longer one comes from a wrong clock or a wrong unit."""
LARGEST: Final = 10**13
"""The largest count a producer may report: a thousand calls a second for three hundred years."""
DOCUMENTS: Final = 1_000
"""Documents of a record that are ranked; the same as `ragmon.metrics.facts.DEPTH`."""
MAX_DOCUMENTS_KEPT: Final = DOCUMENTS + 1
"""Documents kept: one more than are ranked, so that a cut list is not taken for a complete one."""
SHORT: Final = 2_000
"""A JSON line of at most so many bytes cannot hold more documents: each list member takes at least two bytes."""
_PARALLEL_FIELDS: Final = ("scores", "contexts", "verdicts")
"""Lists parallel to `retrieved_ids`: one value a document, in the same order."""
_NO_REASONS: Final[Mapping[str, str]] = MappingProxyType({})


def in_range(milliseconds: float) -> bool:
    """Whether a latency in milliseconds is possible: not negative, finite and at most a day.

    >>> in_range(0.0), in_range(-1.0), in_range(1e308), in_range(float("nan"))
    (True, False, False, False)
    """
    return 0.0 <= milliseconds <= LONGEST_MS


def latencies_in_range(latency: Latency) -> bool:
    """Whether all known latencies of a request are in range."""
    return (
        0.0 <= (latency.total or 0.0) <= LONGEST_MS
        and 0.0 <= (latency.retrieve or 0.0) <= LONGEST_MS
        and 0.0 <= (latency.generate or 0.0) <= LONGEST_MS
    )


def bounded(record: Record) -> tuple[Record, Mapping[str, str]]:
    """A record without values beyond the limits, and the reasons by field.

    Args:
        record: The record as received; it is not changed.

    >>> found, unknown = bounded(Record(latency_ms=Latency(total=1e308, retrieve=5.0)))
    >>> found.latency_ms, unknown
    (Latency(total=None, retrieve=5.0, generate=None), {'latency_ms.total': 'out_of_range'})
    """
    latency = record.latency_ms
    lists = (record.retrieved_ids, record.contexts, record.scores, record.candidate_ids, record.verdicts)
    if (latency is None or latencies_in_range(latency)) and not any(
        len(values) > MAX_DOCUMENTS_KEPT for values in lists if values
    ):
        return record, _NO_REASONS
    changes: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    if latency is not None and not latencies_in_range(latency):
        latencies = {stage: getattr(latency, stage) for stage in STAGES}
        bad_stages = [stage for stage, ms in latencies.items() if ms is not None and not in_range(ms)]
        changes["latency_ms"] = msgspec.structs.replace(latency, **dict.fromkeys(bad_stages))
        unknown |= {f"latency_ms.{stage}": OUT_OF_RANGE for stage in bad_stages}
    for id_field, parallel_fields in (("retrieved_ids", _PARALLEL_FIELDS), ("candidate_ids", ())):
        cut_lists = _cut(record, id_field, parallel_fields)
        if cut_lists:
            changes |= cut_lists
            unknown[id_field] = TOO_MANY_DOCUMENTS
    return msgspec.structs.replace(record, **changes), unknown


def _cut(record: Record, id_field: str, parallel_fields: Sequence[str]) -> dict[str, list[Any]]:
    """The lists of a record cut to `MAX_DOCUMENTS_KEPT`; a repeated document keeps its first position only."""
    lists = {name: values for name in (id_field, *parallel_fields) if (values := getattr(record, name)) is not None}
    if all(len(values) <= MAX_DOCUMENTS_KEPT for values in lists.values()):
        return {}
    ids: Sequence[str] = lists.get(id_field, ())
    positions = _first_positions(ids)
    return {
        name: [values[position] for position in positions] if len(values) == len(ids) else values[:MAX_DOCUMENTS_KEPT]
        for name, values in lists.items()
    }


def _first_positions(ids: Sequence[str]) -> list[int]:
    """The first position of each distinct id, for the first `MAX_DOCUMENTS_KEPT` of them."""
    positions: dict[str, int] = {}
    for position, document_id in enumerate(ids):
        if len(positions) >= MAX_DOCUMENTS_KEPT:
            break
        positions.setdefault(document_id, position)
    return list(positions.values())
