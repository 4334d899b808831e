"""Releases on their way through a scorer: the requests of each are kept together where they share their fate."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache

from ragmon.assembly import ScorerPlan
from ragmon.core.policy import Gate
from ragmon.core.record import Line, Record
from ragmon.gates.releases import By, Clusters, Release, part


class Releases:
    """Follows the records of some releases; those of others are scored, and no more.

    Args:
        plan: Makes the scorer.
        by: What tells releases apart.
        names: Which releases.
        gates: What will be asked of them.

    Attributes:
        scorer: What scores the records.
    """

    def __init__(self, plan: ScorerPlan, by: By, names: Collection[str], gates: Sequence[Gate]) -> None:
        # By this clock no record comes from the future, and one without a time of its own is kept with its session too.
        self.scorer = plan(clock=lambda: math.inf)
        self._by: By = by
        cluster = cache(lambda pipeline: plan.settings.of(pipeline).metrics.cluster)
        self._clusters = {name: Clusters(self.scorer.table, gates, cluster) for name in names}

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records on, and see to it that each is kept with its release."""
        for record in records:
            if isinstance(record, Record):
                self.scorer.steps = self._clusters.get(getattr(record, self._by) or "")
            yield record

    def release(self, name: str) -> Release:
        """What is known of a release.

        Raises:
            UnknownNameError: No record carries it.
        """
        return Release(name, part(self.scorer.state, self._by, name), self._clusters[name])

    def notes(self) -> list[str]:
        """What a reader of the verdicts should know."""
        found = []
        for name, clusters in self._clusters.items():
            if clusters.alone:
                which = f"{clusters.alone} requests of {name} carry nothing that [metrics] cluster names"
                found.append(f"{which}: each counts as one observation")
        return found
