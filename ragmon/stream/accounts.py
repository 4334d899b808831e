"""What arrived and what became of it: the counts that stand in a journal row, a chunk and a checkpoint."""

from __future__ import annotations

from typing import Final

import msgspec

from ragmon.ingest.spans.span import count_scope
from ragmon.stats.histograms import add_counts

ERASED: Final = "forgotten"
"""Reason why a request is not scored: it was erased on request."""


class BatchCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Counts of one batch.

    Attributes:
        received: User requests that arrived: a native record, or the first span of a trace.
        duplicate: Requests that had arrived before.
        ignored: Requests that are not RAG, by reason.
        dropped: Requests that were lost, by reason.
        spans: Spans that belong to no record, by reason.
        unknown: Fields that are missing in a request's spans, by `field|reason`.
        labels: Labels, by result.
        probed: Applications' own records of probes of this server, by result.
        native: Native records that producers sent; compared with the totals that producers report.
        scopes: Requests whose convention is not known, by the name of their instrumentation, of a bounded number.
        tools: Requests without a retrieval, by the names of the tools called in them, of a bounded number.
    """

    received: int = 0
    duplicate: int = 0
    ignored: dict[str, int] = {}
    dropped: dict[str, int] = {}
    spans: dict[str, int] = {}
    unknown: dict[str, int] = {}
    labels: dict[str, int] = {}
    probed: dict[str, int] = {}
    native: int = 0
    scopes: dict[str, int] = {}
    tools: dict[str, int] = {}

    def add(self, other: BatchCounts) -> None:
        """Add other counts."""
        self.received += other.received
        self.duplicate += other.duplicate
        self.native += other.native
        for counts, other_counts in zip(self._parts(), other._parts(), strict=True):
            add_counts(counts, other_counts)
        for names, other_names in ((self.scopes, other.scopes), (self.tools, other.tools)):
            for name, n in other_names.items():
                count_scope(names, name, n)

    def _parts(self) -> tuple[dict[str, int], ...]:
        return self.ignored, self.dropped, self.spans, self.unknown, self.labels, self.probed

    def __bool__(self) -> bool:
        return bool(self.received or self.duplicate or any(self._parts()))

    def dump(self) -> bytes:
        """The counts as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def load(cls, data: bytes) -> BatchCounts:
        """The counts that `dump` wrote."""
        return msgspec.json.decode(data, type=cls)


def count(into: dict[str, int], key: str, n: int = 1) -> None:
    """Add to a counter in a dictionary.

    >>> found = {"late": 1}; count(found, "late"); found
    {'late': 2}
    """
    if n:
        into[key] = into.get(key, 0) + n
