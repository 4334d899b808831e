"""What came in and what became of it: counts that are journalled with the rows they belong to."""

from __future__ import annotations

from typing import Final

import msgspec

from ragmon.scoring.counts import add_counts

FORGOTTEN: Final = "forgotten"
"""Why a request is not scored: somebody asked to forget it."""


class Counts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How often each thing happened.

    Attributes:
        received: Requests of users that came in: a whole record, or the first span of a trace.
        duplicate: Those that were there already.
        ignored: Those that are no RAG, by reason.
        dropped: Those that were lost, by reason.
        spans: Spans that belong to no record, by reason.
        unknown: Fields that a request's spans do not tell, by `field|reason`.
        labels: What became of labels.
        probed: What became of applications' own records of probes that this server sent.
        own: Whole records that producers sent; what they say they kept is held against it.
    """

    received: int = 0
    duplicate: int = 0
    ignored: dict[str, int] = {}
    dropped: dict[str, int] = {}
    spans: dict[str, int] = {}
    unknown: dict[str, int] = {}
    labels: dict[str, int] = {}
    probed: dict[str, int] = {}
    own: int = 0

    def add(self, other: Counts) -> None:
        """Add other counts."""
        self.received += other.received
        self.duplicate += other.duplicate
        self.own += other.own
        for mine, theirs in zip(self._parts(), other._parts(), strict=True):
            add_counts(mine, theirs)

    def _parts(self) -> tuple[dict[str, int], ...]:
        return self.ignored, self.dropped, self.spans, self.unknown, self.labels, self.probed

    def __bool__(self) -> bool:
        return bool(self.received or self.duplicate or any(self._parts()))

    def dump(self) -> bytes:
        """JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def load(cls, data: bytes) -> Counts:
        """What `dump` wrote."""
        return msgspec.json.decode(data, type=cls)


def count(into: dict[str, int], key: str, n: int = 1) -> None:
    """Add to one count.

    >>> found = {"late": 1}; count(found, "late"); found
    {'late': 2}
    """
    if n:
        into[key] = into.get(key, 0) + n
