"""What requests have in common: how they were answered, in the order in which a pipeline goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ragmon.core.errors import Unassessed
from ragmon.gates.diagnosis.change import level, moved_by, share
from ragmon.gates.diagnosis.model import Moved
from ragmon.metrics.facts import DEPTH, Facts, Key
from ragmon.scoring.score_table import Stat

CLEAR: Final = 3.0
"""Standard errors a trait must have risen by to be named as what happened."""
MAIN: Final = 0.5
"""What it must account for, as a part of the largest rise."""


def _unfound(facts: Facts) -> bool | None:
    if not facts.answerable:
        return None
    facts.require_documents()
    return facts.relevant(DEPTH) == 0


def _over_refused(facts: Facts) -> bool | None:
    return facts.refused if facts.answerable else None


def _under_refused(facts: Facts) -> bool | None:
    return facts.shipped if facts.matched and not facts.answerable else None


def _wrong_claim(facts: Facts) -> bool | None:
    return not facts.contains_claim if facts.answerable and facts.shipped else None


def _cites_other(facts: Facts) -> bool | None:
    return not facts.cites_gold if facts.answerable and facts.shipped else None


def _out_of_scope(facts: Facts) -> bool | None:
    return not facts.cites_only_retrieved if facts.shipped else None


def _cites_nothing(facts: Facts) -> bool | None:
    return not facts.cites_retrieved if facts.shipped else None


def _ungrounded(facts: Facts) -> bool | None:
    return not facts.grounded if facts.shipped else None


TRAITS: Final[Mapping[str, Callable[[Facts], bool | None]]] = {
    "ended in an error": lambda facts: facts.error,
    "took longer than allowed": lambda facts: not facts.within if facts.bounded else None,
    "retrieved nothing": lambda facts: facts.empty,
    "retrieved no gold document": _unfound,
    "gave no answer": lambda facts: None if facts.error else not facts.answered,
    "refused what can be answered": _over_refused,
    "answered what cannot be answered": _under_refused,
    "refused": lambda facts: facts.refused,
    "refused in its own words": lambda facts: facts.refusal_like,
    "said something else than the gold claim": _wrong_claim,
    "said what is not in the contexts": _ungrounded,
    "cited no gold document": _cites_other,
    "cited what was not retrieved": _out_of_scope,
    "cited nothing that was retrieved": _cites_nothing,
    "broke the answer format": lambda facts: None if facts.error else not facts.compliant,
}
"""Whether a request has a trait, by its name; None where it cannot have it. In the order of the pipeline."""


def has(name: str, key: Key) -> bool | None:
    """Whether a request has a trait; None where it cannot, or nobody knows."""
    try:
        return TRAITS[name](Facts._make(key))
    except Unassessed:
        return None


def traits_of(key: Key) -> tuple[str, ...]:
    """The traits of one request, in the order of the pipeline.

    >>> from ragmon.metrics.facts import FactReader
    >>> from ragmon.testing import make_record
    >>> traits_of(FactReader().read(make_record(claim="not in context", citations=[]), None))
    ('refused',)
    """
    return tuple(name for name in TRAITS if has(name, key))


def compared(before: Mapping[Key, int], after: Mapping[Key, int], failing: Mapping[Key, int]) -> tuple[Moved, ...]:
    """Every trait that some request has, those that moved most first.

    Args:
        before: Requests before the change, by facts.
        after: Those after it.
        failing: Those after the change that break the gate.
    """
    found = []
    for name in TRAITS:
        a, b, bad = (_share(name, cells) for cells in (before, after, failing))
        if a.sum or b.sum:
            found.append(Moved(name, level(a), level(b), moved_by(a, b), level(bad)))
    return tuple(sorted(found, key=lambda one: -abs(one.by)))


def mechanism(traits: Iterable[Moved]) -> str:
    """The first trait, in the order of the pipeline, that clearly rose and accounts for much of what rose."""
    held = list(traits)
    known = any(one.failing is not None and one.failing.n for one in held)
    risen = {one.name: _rise(one) for one in held if one.by >= CLEAR and not (known and _elsewhere(one))}
    most = max(risen.values(), default=0.0)
    return next((name for name in TRAITS if risen.get(name, 0.0) > 0 and risen[name] >= MAIN * most), "")


def _elsewhere(one: Moved) -> bool:
    """Whether a trait is no commoner among the failing requests than among all: it rose beside the change."""
    return one.failing is None or (one.failing.value or 0.0) < (one.after.value or 0.0)


def _rise(one: Moved) -> float:
    """By how many requests after the change it rose."""
    return one.after.n * ((one.after.value or 0.0) - (one.before.value or 0.0))


def _share(name: str, cells: Mapping[Key, int]) -> Stat:
    known = [(found, n) for key, n in cells.items() if (found := has(name, key)) is not None]
    return share(sum(n for found, n in known if found), sum(n for _, n in known))
