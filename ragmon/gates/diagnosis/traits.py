"""Traits of requests, such as `retrieved nothing`, in the order of the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ragmon.core.errors import Unassessed
from ragmon.gates.diagnosis.change import level, moved_by, share
from ragmon.gates.diagnosis.model import Moved
from ragmon.metrics.facts import DEPTH, Facts, Key
from ragmon.scoring.score_table import Stat

CLEAR: Final = 3.0
"""Standard errors a trait must have risen by to be named as the mechanism."""
MAIN: Final = 0.5
"""Its rise must be at least this share of the largest rise."""


def _gold_not_retrieved(facts: Facts) -> bool | None:
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
    "retrieved no gold document": _gold_not_retrieved,
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
"""Whether a request has a trait, by name, in the order of the pipeline; None where the trait does not apply."""


def has(name: str, key: Key) -> bool | None:
    """Whether a request has a trait; None where the trait does not apply or is unknown."""
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
    """Every trait that at least one request has, largest change first.

    Args:
        before: The requests before the change, by facts.
        after: The requests after the change, by facts.
        failing: The requests after the change that break the gate, by facts.
    """
    traits = []
    for name in TRAITS:
        a, b, bad = (_share(name, cells) for cells in (before, after, failing))
        if a.sum or b.sum:
            traits.append(Moved(name, level(a), level(b), moved_by(a, b), level(bad)))
    return tuple(sorted(traits, key=lambda moved: -abs(moved.by)))


def mechanism(traits: Iterable[Moved]) -> str:
    """The first trait, in the order of the pipeline, that rose significantly and explains much of the rise."""
    all_traits = list(traits)
    failing_known = any(trait.failing is not None and trait.failing.n for trait in all_traits)
    rises = {
        trait.name: _rise(trait)
        for trait in all_traits
        if trait.by >= CLEAR and not (failing_known and _unrelated(trait))
    }
    largest = max(rises.values(), default=0.0)
    return next((name for name in TRAITS if rises.get(name, 0.0) > 0 and rises[name] >= MAIN * largest), "")


def _unrelated(trait: Moved) -> bool:
    """Whether a trait is rarer among the failing requests than among all, so that its rise is no cause of failures."""
    return trait.failing is None or (trait.failing.value or 0.0) < (trait.after.value or 0.0)


def _rise(trait: Moved) -> float:
    """The number of requests after the change by which the trait rose."""
    return trait.after.n * ((trait.after.value or 0.0) - (trait.before.value or 0.0))


def _share(name: str, cells: Mapping[Key, int]) -> Stat:
    assessed = [(present, n) for key, n in cells.items() if (present := has(name, key)) is not None]
    return share(sum(n for present, n in assessed if present), sum(n for _, n in assessed))
