"""What broke: a gate's outcomes before and after, and what differs between them.

look        the rows the gate reads, step by step
measures    what is followed: a metric, the share that was fast enough, the share of one index
change      when it became worse, how sure that is, and how exact
sides       what was before and what came after
traits      what the failing requests have in common
parts       the same requests by build, index, gold version, slice and stratum
suspects    which of the parts explains the change; `slower`: which stage takes longer
answer      all of it together
"""

from ragmon.gates.diagnosis.explain import explain
from ragmon.gates.diagnosis.model import (
    ChangePoint,
    Level,
    Moved,
    Part,
    Side,
    Split,
    Stage,
    Standing,
    Suspect,
    Times,
    Why,
    load,
    plain,
)
from ragmon.gates.diagnosis.traits import traits_of

__all__ = [
    "ChangePoint",
    "Level",
    "Moved",
    "Part",
    "Side",
    "Split",
    "Stage",
    "Standing",
    "Suspect",
    "Times",
    "Why",
    "explain",
    "load",
    "plain",
    "traits_of",
]
