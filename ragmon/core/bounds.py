"""What a record may hold: numbers that a sum can take in, and as many documents as are ranked.

One record with a latency of 10^308 milliseconds would make the sum of all latencies useless for ever. What is out of
range is unknown, with a reason; the rest of the record counts. Live and in a replay alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ragmon.core.constants import OUT_OF_RANGE, STAGES, TOO_MANY_DOCUMENTS
from ragmon.core.record import Latency, Record

LONGEST_MS: Final = 86_400_000.0
"""The longest latency, in milliseconds: a day. Nobody waits longer for an answer; clocks and units go wrong."""
LARGEST: Final = 10**13
"""The largest count a producer may tell: a thousand calls a second for three hundred years."""
DOCUMENTS: Final = 1_000
"""Documents of a record that are ranked: `ragmon.metrics.facts.DEPTH`."""
KEPT: Final = DOCUMENTS + 1
"""Documents that are kept: the one more says that there were others, so that nobody takes the list for whole."""
SHORT: Final = 2_000
"""Bytes of a line that is too short for more documents than that: a member of a list takes two."""
_BESIDE: Final = ("scores", "contexts", "verdicts")
"""What stands beside the ids of documents, in their order."""
_KNOWN: Final[Mapping[str, str]] = MappingProxyType({})


def in_range(milliseconds: float) -> bool:
    """Whether a latency is one.

    >>> in_range(0.0), in_range(-1.0), in_range(1e308), in_range(float("nan"))
    (True, False, False, False)
    """
    return 0.0 <= milliseconds <= LONGEST_MS


def fits(latency: Latency) -> bool:
    """Whether every latency of a request is one, as far as it is known."""
    return (
        0.0 <= (latency.total or 0.0) <= LONGEST_MS
        and 0.0 <= (latency.retrieve or 0.0) <= LONGEST_MS
        and 0.0 <= (latency.generate or 0.0) <= LONGEST_MS
    )


def bounded(record: Record) -> tuple[Record, Mapping[str, str]]:
    """A record without what no record holds, and the reasons by field.

    Args:
        record: As it came; it stays as it is.

    >>> found, unknown = bounded(Record(latency_ms=Latency(total=1e308, retrieve=5.0)))
    >>> found.latency_ms, unknown
    (Latency(total=None, retrieve=5.0, generate=None), {'latency_ms.total': 'out_of_range'})
    """
    latency = record.latency_ms
    lists = (record.retrieved_ids, record.contexts, record.scores, record.candidate_ids, record.verdicts)
    if (latency is None or fits(latency)) and not any(len(held) > KEPT for held in lists if held):
        return record, _KNOWN
    changes: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    if latency is not None and not fits(latency):
        told = {stage: getattr(latency, stage) for stage in STAGES}
        odd = [stage for stage, ms in told.items() if ms is not None and not in_range(ms)]
        changes["latency_ms"] = msgspec.structs.replace(latency, **dict.fromkeys(odd))
        unknown |= {f"latency_ms.{stage}": OUT_OF_RANGE for stage in odd}
    for ids, beside in (("retrieved_ids", _BESIDE), ("candidate_ids", ())):
        cut = _cut(record, ids, beside)
        if cut:
            changes |= cut
            unknown[ids] = TOO_MANY_DOCUMENTS
    return msgspec.structs.replace(record, **changes), unknown


def _cut(record: Record, ids: str, beside: Sequence[str]) -> dict[str, list[Any]]:
    """Lists of documents that are too long as far as they are kept: of each document, where it stands first."""
    lists = {name: held for name in (ids, *beside) if (held := getattr(record, name)) is not None}
    if all(len(held) <= KEPT for held in lists.values()):
        return {}
    named: Sequence[str] = lists.get(ids, ())
    places = _first_places(named)
    return {
        name: [held[place] for place in places] if len(held) == len(named) else held[:KEPT]
        for name, held in lists.items()
    }


def _first_places(ids: Sequence[str]) -> list[int]:
    places: dict[str, int] = {}
    for place, name in enumerate(ids):
        if len(places) >= KEPT:
            break
        places.setdefault(name, place)
    return list(places.values())
