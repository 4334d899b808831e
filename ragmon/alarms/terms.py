"""What the alarms of one pipeline are told: what to guard, how long to learn, which index is one too many."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from ragmon.alarms.frozen import FrozenPipeline
from ragmon.alarms.watches import Watch
from ragmon.core import constants
from ragmon.core.policy import Gate
from ragmon.scoring.minutes import CLUSTER

LEARN: Final = 60
"""Minutes of traffic before a baseline is used."""
INDEX_ALERT: Final = f"{constants.INDEX_HASH}:drift"


@dataclass(frozen=True)
class IndexTerms:
    """An alarm on the indexes under one build.

    Args:
        limit: So many are right.
        alert, severity: How the alarm on more is called, and how urgent it is.
    """

    limit: int = 1
    alert: str = INDEX_ALERT
    severity: str = constants.TICKET


@dataclass(frozen=True)
class AlarmTerms:
    """What holds for one pipeline.

    Args:
        watches: What is guarded.
        learn: Minutes of traffic before a baseline is used.
        given: What a release run was; None: everything is learned.
        cluster: What makes one observation of several requests.
        indexes: How many indexes under one build are right, and what is raised where there are more.
    """

    watches: Sequence[Watch]
    learn: int = LEARN
    given: FrozenPipeline | None = None
    cluster: Collection[str] = CLUSTER
    indexes: Sequence[IndexTerms] = (IndexTerms(),)


def index_terms(gates: Sequence[Gate]) -> tuple[IndexTerms, ...]:
    """What declared gates on distinct indexes say; without one, a second index is a ticket."""
    declared = [gate for gate in gates if gate.kind == "distinct"]
    return tuple(IndexTerms(int(gate.threshold), gate.name, gate.severity) for gate in declared) or (IndexTerms(),)
