"""What the alarms of one pipeline are told: what to guard, how long to learn, which index is one too many."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ragmon import names
from ragmon.alarms.frozen import FrozenPipeline
from ragmon.alarms.steps import CLUSTER
from ragmon.alarms.watches import Watch
from ragmon.gates import Gate

LEARN: Final = 60
"""Minutes of traffic before a baseline is used."""
INDEX_ALERT: Final = f"{names.INDEX_HASH}:drift"


@dataclass(frozen=True)
class AlarmTerms:
    """What holds for one pipeline.

    Args:
        watches: What is guarded.
        learn: Minutes of traffic before a baseline is used.
        given: What a release run was; None: everything is learned.
        cluster: What makes one observation of several requests.
        indexes: So many indexes under one build are right.
        index_alert, index_severity: How the alarm on more is called, and how urgent it is.
    """

    watches: Sequence[Watch]
    learn: int = LEARN
    given: FrozenPipeline | None = None
    cluster: Collection[str] = CLUSTER
    indexes: int = 1
    index_alert: str = INDEX_ALERT
    index_severity: str = names.TICKET


def index_terms(gates: Sequence[Gate]) -> dict[str, Any]:
    """What a declared gate on distinct indexes says; without one, a second index is a ticket."""
    gate = next((gate for gate in gates if gate.kind == "distinct"), None)
    if gate is None:
        return {}
    return {"indexes": int(gate.threshold), "index_alert": gate.name, "index_severity": gate.severity}
