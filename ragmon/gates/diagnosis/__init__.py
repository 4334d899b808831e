"""The diagnosis of a gate: when its metric became worse, and what differs between the requests before and after.

It needs counts only. `reads` selects the rows a gate reads and the measure to follow, `change` locates the change
point, `traits` are what failing requests have in common, `suspects` splits the requests by build, index, gold version,
slice and stratum and scores the parts and the stages as causes, and `explain` puts all of it together.
"""

from ragmon.gates.diagnosis.explain import explain, explain_drift
from ragmon.gates.diagnosis.model import (
    ChangePoint,
    GateState,
    Level,
    Moved,
    Part,
    Side,
    Split,
    Stage,
    Suspect,
    Times,
    Why,
)
from ragmon.gates.diagnosis.suspects import traits_of

__all__ = [
    "ChangePoint",
    "GateState",
    "Level",
    "Moved",
    "Part",
    "Side",
    "Split",
    "Stage",
    "Suspect",
    "Times",
    "Why",
    "explain",
    "explain_drift",
    "traits_of",
]
